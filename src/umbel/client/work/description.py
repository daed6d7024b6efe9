"""Descriptions of clients by their inputs only, for newcomers without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.checks import check, check_least
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import Footprint, Promise, Work


@dataclass(frozen=True)
class Description(Work):
    """Mean and standard deviation (R * C,), over the inputs, of the outputs of `models` (R, P).

    The models are untrained and the same for all clients, so that descriptions can be compared.
    Outputs are cut at a public `bound`; the descriptors of FLUX (arXiv 2511.22305) are cut at a
    measured one.
    """

    outputs: int  #: C, the number of outputs of a model
    bound: float = 5.0  #: outputs are cut at plus and minus this

    def __post_init__(self) -> None:
        check_least(self, 1, "outputs")
        check(self.bound > 0, "bound", self.bound, "more than 0")

    def allows(self, setting: str, value: object) -> bool:
        """The number of outputs is that of the network."""
        return setting == "outputs" or super().allows(setting, value)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        models = sent["models"]
        size = (len(models), self.outputs)
        total = torch.zeros(size, dtype=torch.float64, device=models.device)
        squares = total
        for batch in shard.everything():
            said = net.each(lambda theta, x=batch.x: self._said(net, theta, x), models)
            said = said.double().clamp(-self.bound, self.bound)
            said = said if batch.keep is None else said.where(batch.keep[None, :, None], 0)
            total = total + said.sum(1)
            squares = squares + (said * said).sum(1)
        count = shard.num_examples.clamp(min=1)
        mean = total / count
        deviation = (squares / count - mean * mean).clamp(min=0).sqrt()
        return {"mean": mean.flatten(), "deviation": deviation.flatten()}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        size = (sent["models"][0] * self.outputs,)
        return {
            "mean": Promise(size, torch.float64, -self.bound, self.bound),
            "deviation": Promise(size, torch.float64, 0.0, self.bound),
        }

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return Footprint(sent["models"][0])

    @classmethod
    def width(cls, net: Net, theta: Tensor, x: Tensor) -> int:
        """C, the number of outputs of a model; x is (B, ...), with examples of any values."""
        with torch.no_grad():
            return cls._said(net, theta, x).shape[1]

    @staticmethod
    def _said(net: Net, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs (B, C); if an example has outputs at many positions, their mean."""
        said = net.outputs(theta, x)
        said = said[:, None] if said.dim() == 1 else said
        return said if said.dim() == 2 else said.flatten(2).mean(2)
