"""Probabilities that examples belong to each of many models, and their mean at a client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from umbel.checks import check
from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.work.base import MEMORY, Cost, Footprint, Promise, Work
from umbel.client.work.loss_bounds import clipped

LABEL_SHARES = "label_shares"
"""The reserved name of the share of each label among the examples of each model, as in FedRC."""


@dataclass(frozen=True)
class MixtureWeights(Work):
    """One step of expectation maximisation for only the weights of `models` (K, P).

    The client's weights (K,) are its memory. It gets the last weights, and returns the next: for
    each model, the mean over training examples of the probability that the example belongs to it.
    These probabilities are divided by `label_shares` (K, C), if sent.
    """

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        slices = shares_of_all(net, sent, shard)
        return {MEMORY: mean_shares(slices).to(sent[MEMORY].dtype)}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {MEMORY: Promise((sent["models"][0],), low=0, high=1, total=1)}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return Footprint(sent["models"][0])

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return Cost(losses=sent["models"][0] * num_examples)


def shares(net: Net, sent: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """q_i(k), proportional to weights[k] exp(-loss of model k on example i): (K, B).

    With label shares c (K, C), it is divided by c[k, y_i] (Guo et al. 2024).
    """
    # A model that does not fit at all must not change the shares of the others.
    losses = clipped(net.each(lambda theta: net.losses(theta, batch), sent["models"]))
    logs = sent[MEMORY].log()[:, None] - losses
    if LABEL_SHARES in sent:
        check_labels(batch.y, sent[LABEL_SHARES].shape[1])
        logs = logs - sent[LABEL_SHARES].log().index_select(1, batch.y)
    return logs.softmax(0)


def check_labels(y: Tensor, num_classes: int) -> None:
    """Raise `UsageError` unless y (B,) are labels of classes."""
    labels = y.dim() == 1 and not y.is_floating_point() and num_classes > 1
    form = f"{y.dtype} {tuple(y.shape)}"
    check(labels, "y", form, "a label for each example, of two or more classes, as FedRC needs")


def shares_of_all(
    net: Net, sent: Mapping[str, Tensor], shard: Shard
) -> Iterator[tuple[Batch, Tensor]]:
    """q_i(k) of all examples, in slices (K, B)."""
    for batch in shard.everything():
        yield batch, shares(net, sent, batch)


def mean_shares(slices: Iterable[tuple[Batch, Tensor]]) -> Tensor:
    """The mean of q_i over the examples of the slices (K, B), which are the next weights (K,)."""
    sums = [(vmap(batch.total)(q.double()), batch.size()) for batch, q in slices]
    totals, counts = zip(*sums, strict=True)
    return torch.stack(totals).sum(0) / torch.stack(counts).sum()
