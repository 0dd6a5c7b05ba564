"""The weights of convolutions in bfloat16, cast all at once: one by one, to and fro, takes some forty launches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call


class HalfWeights:
    """Copies that a network computes with in place of its own weights, which stay in float32."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._whole = {
            name: value for name, value in model.named_parameters() if value.ndim > 2 and value.requires_grad
        }
        self._half = {name: value.detach().to(torch.bfloat16).requires_grad_() for name, value in self._whole.items()}

    @property
    def by_weight(self) -> dict[Tensor, Tensor]:
        """Each copy by what it is a copy of."""
        return dict(zip(self._whole.values(), self._half.values(), strict=True))

    def __call__(self, images: Tensor) -> Tensor:
        """The network's answer, computed with the copies."""
        answer: Tensor = functional_call(self._model, self._half, (images.to(torch.bfloat16),))
        return answer

    @torch.no_grad()
    def follow(self) -> None:
        """Become what the weights are."""
        torch._foreach_copy_([*self._half.values()], [*self._whole.values()])

    def forget_gradients(self) -> None:
        """As an optimizer's ``zero_grad``."""
        for copy in self._half.values():
            copy.grad = None

    @torch.no_grad()
    def hand_gradients_over(self) -> None:
        """Give their gradients to the weights, in float32."""
        learning = [(whole, copy.grad) for whole, copy in self.by_weight.items() if copy.grad is not None]
        for whole, _ in learning:
            whole.grad = torch.empty_like(whole)
        torch._foreach_copy_([whole.grad for whole, _ in learning], [gradient for _, gradient in learning])  # type: ignore[misc]
