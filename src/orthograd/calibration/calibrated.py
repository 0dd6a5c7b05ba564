"""A model and its calibrator as one module, to save, move and export together."""

from __future__ import annotations

from typing import Any, Literal, get_args

from torch import Tensor, nn

from .calibrators.calibrator import Calibrator

Output = Literal["logits", "probabilities"]


class Calibrated(nn.Module):
    """A model whose logits are calibrated: its parameters, then the calibrator.

    Args:
        model: any module that returns logits, of the calibrator's form, as one tensor.
        calibrator: fitted, or to be fitted or loaded before the first call.
        output: ``logits``, calibrated, or ``probabilities``.

    Raises:
        TypeError: if the calibrator is not a `Calibrator`.
        ValueError: for multiple choice, whose logits are not one tensor, or another output.

    It is one module for ``state_dict``, ``to``, ``torch.compile``, ``torch.export.export`` and ``torch.onnx.export``.
    The calibrator stays in float64, also when the model is cast. Call ``eval`` first: a calibrator is fitted to logits
    of a model that is not training.

    >>> import torch
    >>> from orthograd.calibration import TemperatureScaling
    >>> logits = torch.tensor([[4.0, 0.0]] * 4)
    >>> scaling = TemperatureScaling().fit(logits, torch.tensor([0, 0, 0, 1]))
    >>> model = Calibrated(nn.Identity(), scaling, output="probabilities").eval()
    >>> model(logits[:1])
    tensor([[0.7500, 0.2500]])
    >>> program = torch.export.export(model, (logits,), dynamic_shapes=[{0: torch.export.Dim("n")}])
    >>> program.module()(logits[:1])
    tensor([[0.7500, 0.2500]])
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator, *, output: Output = "logits") -> None:
        super().__init__()
        if not isinstance(calibrator, Calibrator):
            raise TypeError(f"expected a Calibrator, got a {type(calibrator).__name__}")
        if calibrator.form.task == "multiple_choice":
            raise ValueError("expected a calibrator for logits in one tensor, got one for task 'multiple_choice'")
        if output not in get_args(Output):
            raise ValueError(f"expected an output among {', '.join(get_args(Output))}, got {output!r}")
        self.model, self.calibrator, self.output = model, calibrator, output

    def forward(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Calibrated logits or probabilities, in the shape of the model's logits for these arguments."""
        logits = self.model(inputs, *args, **kwargs)
        calibrated = self.calibrator.probabilities if self.output == "probabilities" else self.calibrator
        return calibrated(logits)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The output."""
        return f"output={self.output!r}"
