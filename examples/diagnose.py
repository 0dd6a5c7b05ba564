"""A small network with batch norm learns 100 digits: where ⊥Grad would act in it, and how that came about.

python examples/diagnose.py FOLDER writes radial.png and diagnosis.json there, a few seconds' work for one core.
"""

import json
import platform
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import orthograd
from orthograd.lab.data import digits
from orthograd.lab.networks import MODELS

EPOCHS, BATCH, EVERY = 300, 32, 25


def main(folder: Path) -> None:
    """Train with a recorder on the optimizer, then diagnose the network, and keep both."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = digits()
    images, labels, _ = data.few(10, seed=0)
    model = MODELS["cnn_batchnorm"](data.shape, data.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    recorder = orthograd.Recorder(optimizer, every=EVERY, named_parameters=model.named_parameters())
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    diagnosis = orthograd.diagnose(model, torch.nn.CrossEntropyLoss(), (images, labels))
    print(diagnosis, recorder.table(), sep="\n\n")
    folder.mkdir(parents=True, exist_ok=True)
    recorder.figure(folder / "radial.png", title="CNN with batch norm")
    facts = {"orthograd": orthograd.__version__, "torch": torch.__version__, "device": f"{platform.machine()} CPU"}
    record = {"environment": facts, "diagnosis": diagnosis.as_dict(), "recorder": recorder.as_dict()}
    (folder / "diagnosis.json").write_text(json.dumps(rounded(record), ensure_ascii=False) + "\n", encoding="utf-8")


def rounded(value):
    """Six digits are enough to print and to draw from."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "diagnosis"))
