"""The principal directions of a client's inputs: the client's side of PACFL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.work.base import Footprint, Promise, Work

NOISE = 1e-10
"""A second moment below this share of the largest is rounding, and has no direction."""


@dataclass(frozen=True)
class PrincipalVectors(Work):
    """The leading left singular vectors of the data matrix, whose columns are the examples.

    The reply is `vectors` (D, Q), or (D, num_classes * Q) for separate classes, where Q is the
    smaller of `num_vectors` and D. They are eigenvectors of the second-moment matrix (D, D), which
    is summed slice by slice. If the rank is lower, the remaining columns are zero. The sign of a
    singular vector is arbitrary: the entry of largest magnitude is made positive.
    """

    num_vectors: int  #: p, the number of vectors
    num_inputs: int  #: D, number of values of one example
    num_classes: int | None = None  #: if given, p vectors for each class

    def allows(self, setting: str, value: object) -> bool:
        """The sizes of inputs and outputs are those of the examples, which a method learns late."""
        if setting == "num_inputs":
            return True
        if setting == "num_classes":
            return (value is None) == (self.num_classes is None)
        return super().allows(setting, value)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        size = prod(shard.x.shape[1:])
        check(size == self.num_inputs, "num_inputs", self.num_inputs, f"{size}, as in the examples")
        groups = self.num_classes or 1
        moment = torch.zeros(groups, size, size, dtype=torch.float64, device=shard.x.device)
        for batch in shard.everything():
            x = batch.x.reshape(len(batch.x), -1).double()
            moment = moment + torch.einsum("bc,bi,bj->cij", self._members(batch), x, x)
        values, vectors = torch.linalg.eigh(moment)  # in ascending order
        values, vectors = values.flip(-1), vectors.flip(-1)[..., : self.num_vectors]
        real = values[:, : self.num_vectors] > NOISE * values[:, :1]
        # An entry of largest magnitude is positive in each column.
        largest = vectors.abs().argmax(-2, keepdim=True)
        vectors = vectors * vectors.gather(-2, largest).sign() * real[:, None]
        return {"vectors": vectors.transpose(0, 1).flatten(1)}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        columns = min(self.num_vectors, self.num_inputs) * (self.num_classes or 1)
        # Entries of vectors of length 1, up to rounding.
        within = Promise((self.num_inputs, columns), torch.float64, low=-1.001, high=1.001)
        return {"vectors": within}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:  # noqa: ARG002
        # Moments and eigenvectors are double: they need more memory than the examples.
        return Footprint(values=4 * self.num_inputs * (self.num_classes or 1))

    def _members(self, batch: Batch) -> Tensor:
        """(B, C) 1 if an example is of the class, else 0, also for padding."""
        member = torch.ones(len(batch.x), 1, dtype=torch.bool, device=batch.x.device)
        if self.num_classes is not None:
            labels = batch.y.dim() == 1 and not batch.y.is_floating_point()
            check(labels, "algorithm.per_class", True, "possible without a class for each example")
            member = batch.y[:, None] == torch.arange(self.num_classes, device=batch.y.device)
        return (member if batch.keep is None else member & batch.keep[:, None]).double()
