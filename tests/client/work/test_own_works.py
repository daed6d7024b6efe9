"""Mistakes in a work of one's own are told by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.federations import blobs, each_its_own, mlp
from umbel.checks import UsageError
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work import LocalTraining, Promise, Work
from umbel.client.work.base import Cost
from umbel.engines import Vectorised
from umbel.engines.metering import Metered
from umbel.flow import Replies, Request

NET, DATA = mlp(), blobs()


def ask(work: Work) -> Replies:
    models = torch.stack([NET.new(seed) for seed in range(len(DATA.names))])
    clients = torch.arange(len(models))
    request = Request(work, clients, [0] * len(models), each={"theta": each_its_own(models)})
    return Metered(Vectorised(NET, DATA), DATA.train).send(request)


@dataclass(frozen=True)
class Total(Work):
    """The sum of a model's values; with `how` it does something that it must not do."""

    how: str = ""
    costs: Any = None
    promised: Any = None

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        del net, shard
        total = sent["theta"].sum()
        if self.how == "branches" and total > 0:
            return {"total": 2 * total}
        if self.how == "reads":
            return {"total": torch.tensor(total.item())}
        if self.how == "draws":
            return {"total": total + torch.rand(())}
        return {"total": total}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        del sent
        return self.promised or {"total": Promise(())}

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Any:
        del num_examples, sent
        return self.costs or Cost()


@dataclass(frozen=True)
class Alone(Total):
    """The same by one client after another."""

    alone = True


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("branches", "data-dependent control flow"),
        ("reads", r"calling \.item\(\) on a Tensor\)"),
        ("draws", "random"),
    ],
)
def test_what_many_clients_can_not_do_at_once_is_told(how: str, cause: str) -> None:
    message = rf"^Total can't be done by many clients at once \(.*{cause}.*alone = True"
    with pytest.raises(UsageError, match=message):
        ask(Total(how))
    assert len(ask(Alone(how)).clients) == len(DATA.names)


@dataclass(frozen=True)
class Around(Total):
    """The same around a work of umbel's."""

    inner = LocalTraining(epochs=1)


def test_an_own_work_around_one_of_umbels_is_the_one_that_is_named() -> None:
    with pytest.raises(UsageError, match=r"^Around can't be done by many clients at once"):
        ask(Around("branches"))


@pytest.mark.parametrize(
    ("promised", "said"),
    [
        ({"total": ()}, r"^Total.promises: \(\) is not a Promise for each column"),
        ({"total": Promise([])}, r"^Total.promises: Promise\(shape=\[\].* is not a Promise"),  # type: ignore[arg-type]
        ((Promise(()),), r"^Total.promises: \(Promise.* is not a Promise for each column"),
    ],
)
def test_promises_must_be_promises(promised: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ask(Total(promised=promised))
