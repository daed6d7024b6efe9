"""What an evaluation asked is not asked again by the round after it, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch

from tests.federations import blobs, mlp
from umbel.algorithms import IFCA, Restarts
from umbel.client.work import ChooseByLoss, LocalTraining, MeanLoss
from umbel.engines import EngineSettings, Sequential, make_engine
from umbel.engines.remembering import Remembering
from umbel.flow import Engine, Replies, Request
from umbel.result.run import Run
from umbel.testing import assert_same_state

LOCAL = LocalTraining(lr=0.1, epochs=2, batch_size=4)
MODELS = torch.stack([mlp().new(seed) for seed in range(3)])


@dataclass
class Listening:
    """An engine that keeps what it was asked."""

    engine: Engine
    asked: list[Request] = field(default_factory=list)

    def send(self, request: Request) -> Replies:
        self.asked.append(request)
        return self.engine.send(request)


def remembering(name: str = "vectorised") -> tuple[Remembering, Listening]:
    settings = EngineSettings(name, "cpu")  # type: ignore[arg-type]
    inner = Listening(make_engine(mlp(), blobs(), settings))
    return Remembering(inner, 6), inner


def choosing(clients: list[int], models: torch.Tensor = MODELS) -> Request:
    seeds = [10 + client for client in clients]
    return Request(ChooseByLoss(LOCAL), torch.tensor(clients), seeds, {"models": models})


def judging(models: torch.Tensor = MODELS) -> Request:
    return Request(MeanLoss(), torch.arange(6), range(6), {"models": models})


def test_the_same_models_are_judged_once_and_the_same_bits_come_of_it() -> None:
    knowing, inner = remembering()
    judged = knowing.send(judging())
    first, second = (knowing.send(choosing(part)) for part in ([0, 1, 2], [3, 4, 5]))
    assert [type(request.work) for request in inner.asked] == [MeanLoss] + [LocalTraining] * 2
    fresh, _ = remembering()
    for known, part in ((first, [0, 1, 2]), (second, [3, 4, 5])):
        again = fresh.send(choosing(part))
        assert torch.equal(known.columns["losses"], judged.columns["losses"][part])
        for name, values in again.columns.items():
            assert torch.equal(known.columns[name], values), name
    assert knowing.take() > 0
    assert knowing.take() == fresh.take() == 0


def test_models_that_moved_are_judged_again_even_in_place() -> None:
    engine, inner = remembering()
    models = MODELS.clone()
    before = engine.send(judging(models)).columns["losses"]
    models += 0.1
    after = engine.send(judging(models)).columns["losses"]
    assert len(inner.asked) == 2
    assert not torch.equal(before, after)


@pytest.mark.parametrize("method", [IFCA(3, LOCAL), Restarts(IFCA(2, LOCAL), 2, trial_rounds=2)])
def test_a_run_that_knows_what_was_judged_goes_as_one_that_never_does(
    method: IFCA | Restarts,
) -> None:
    run = Run(method, blobs(), mlp(), engine=EngineSettings("sequential", "cpu"))
    rounds = list(run.rounds(4))
    # An engine of one's own is asked in one step.
    plain = list(replace(run, engine=Sequential(run.net.using("in-place"), blobs())).rounds(4))
    for (state, record), (other, expected) in zip(rounds, plain, strict=True):
        assert_same_state(state, other, 1e-5)
        found = replace(record.untimed(), loss=None)
        assert found == replace(expected.untimed(), loss=None)
        assert record.loss == pytest.approx(expected.loss, rel=1e-5)
