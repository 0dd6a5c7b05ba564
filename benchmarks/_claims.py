"""Run measurements on a device, and conclude as `_recorded` does."""

import torch
from _recorded import conclude, recording_parser


def check(*on_any_device, on_cuda=()):
    parser = recording_parser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads; the bounds are for 2")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    measured = (claim for measure in on_any_device for claim in measure(device))
    on_gpu = (claim for measure in on_cuda if device.type == "cuda" for claim in measure())
    conclude((claim for part in (measured, on_gpu) for claim in part), device, options.record)
