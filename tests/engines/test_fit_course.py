"""What can't be trained is told as training shows it, and models stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import umbel
from tests.engines.fitted import LABELS, clients, numbers
from tests.engines.modules import OwnStatistics, chain
from umbel.client.objectives import REGRESSION
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines import EngineSettings, make_engine
from umbel.preflight.sample import sample


def test_divergence_says_what_happened_and_what_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unscaled = clients(numbers(12, 6) * 1e6, numbers(12))
    run = umbel.Run(umbel.FedAvg(), unscaled, umbel.Net(chain(6, 1), REGRESSION))
    expected = r"training diverged for 3 of 3 clients.*scale the inputs, which reach .*e\+06.*lower"
    with pytest.raises(umbel.QuorumError, match=expected):
        next(run.rounds(1))
    some = Federation.from_arrays(
        [(numbers(12, 6) * scale, numbers(12)) for scale in (1, 1, 1, 1e6)]
    )
    small = umbel.LocalTraining(lr=0.01)
    run = umbel.Run(umbel.FedAvg(local=small), some, umbel.Net(chain(6, 1), REGRESSION))
    records = [record for _, record in run.rounds(3)]
    assert all(set(record.refused) == {3} for record in records)
    assert "training diverged there, or the reply is faulty" in records[0].refused[3]
    warnings = [entry for entry in caplog.records if "training diverged" in entry.getMessage()]
    assert len(warnings) == 1


def test_numbers_spoilt_on_purpose_are_not_called_divergence() -> None:
    federation, net = clients(numbers(12, 6), LABELS), umbel.Net(chain(6, 3))
    faults = umbel.Faults(not_finite=1.0)
    with pytest.raises(umbel.QuorumError, match=r"^round 0: 0 of 3 clients gave a usable reply"):
        next(umbel.Run(umbel.FedAvg(), federation, net, faults=faults).rounds(1))


@pytest.mark.parametrize("number", [16_777_220, 20_000_000, 100_000_000])
def test_the_examples_that_are_tried_are_there_however_many_there_are(number: int) -> None:
    federation = clients(numbers(12, 4), LABELS, count=1)
    row, y = federation.train.x[:1], torch.tensor(2)
    many = Split(row.expand(number, 4), y.expand(number), np.array([0, number]))
    net = umbel.Net(lambda: nn.Linear(4, 3))
    batch = sample(net, replace(federation, train=many))
    assert batch.y.tolist() == [2, 2]


@pytest.mark.parametrize("kernel", ["auto", "general"])
def test_an_evaluation_leaves_the_servers_models_as_they_are(kernel: Any) -> None:
    federation = clients(numbers(12, 6), LABELS)
    net = umbel.Net(partial(OwnStatistics, always=True), moving=["running"])
    run = umbel.Run(umbel.FedAvg(), federation, net, engine=EngineSettings(kernel=kernel))
    state = run.start(2)
    before = state.models.clone()
    run.scores(state, run.context(0, 2))
    assert torch.equal(state.models, before)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_run_where_gradients_are_turned_off_is_refused(off: Callable[[], Any]) -> None:
    federation = clients(numbers(12, 4), LABELS)
    with off(), pytest.raises(umbel.UsageError, match="gradients are turned off here") as error:
        make_engine(umbel.Net(lambda: nn.Linear(4, 3)), federation)
    assert str(error.value).endswith("interrupted has left them so: torch.set_grad_enabled(True)")
