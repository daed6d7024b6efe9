from __future__ import annotations

from pathlib import Path

import pytest
import torch

import umbel
from tests.federations import blobs, mlp
from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.client.schedules import SCHEDULES, Constant, CosineRestarts, InverseTime, Schedule
from umbel.client.work import LocalTraining


def test_cosine_annealing_is_that_of_pytorch() -> None:
    for period, growth, lowest in ((5, 1, 0.0), (3, 2, 0.1)):
        schedule = CosineRestarts(period, growth, lowest)
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
        theirs = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
            optimizer, period, growth, eta_min=0.4 * lowest
        )
        for number in range(25):
            lr = LocalTraining(lr=0.4, schedule=schedule).at_round(number).lr
            assert lr == pytest.approx(theirs.get_last_lr()[0])
            optimizer.step()
            theirs.step()


def test_proposition_1_divides_by_the_rounds_since_clustering_ended() -> None:
    local = LocalTraining(lr=0.5, schedule=InverseTime(start=3))
    assert [local.at_round(n).lr for n in (0, 3, 4, 5, 12)] == [0.5, 0.5, 0.25, 0.5 / 3, 0.05]


@pytest.mark.parametrize("schedule", [kind() for kind in SCHEDULES.values()], ids=str)
def test_a_rate_of_a_round_is_not_slowed_twice_and_decay_counts_in_addition(
    schedule: Schedule,
) -> None:
    local = LocalTraining(lr=0.2, lr_decay=0.5, schedule=schedule)
    once = local.at_round(4)
    assert once.at_round(4) == once
    assert once.lr == pytest.approx(0.2 * 0.5**4 * schedule.factor(4))
    for setting in ("lr", "lr_decay", "schedule"):
        assert local.allows(setting, getattr(once, setting))
    assert once.schedule == Constant()


def test_every_method_trains_with_the_rate_of_the_round(tmp_path: Path) -> None:
    file = tmp_path / "it.toml"
    file.write_text(
        'rounds = 2\n[scenario]\nname = "rotated-digits"\n[model]\nname = "mlp"\n'
        '[algorithm]\nname = "fedavg"\n[algorithm.local]\nlr = 0.1\n'
        'schedule = { name = "cosine-restarts", period = 4 }\n'
    )
    local = umbel.read(file).algorithm.local  # type: ignore[attr-defined]
    assert local.schedule == CosineRestarts(period=4)
    run = umbel.Run(FedAvg(LocalTraining(schedule=CosineRestarts(2, lowest=0.0))), blobs(), mlp())
    slow = umbel.Run(FedAvg(LocalTraining(lr_decay=0.5)), blobs(), mlp())
    for (state, _), (other, _) in zip(run.rounds(2), slow.rounds(2), strict=True):
        torch.testing.assert_close(state.models, other.models)  # factors 1 and .5, both


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (CosineRestarts, {"period": 0}),
        (CosineRestarts, {"lowest": 2.0}),
        (InverseTime, {"start": -1}),
    ],
)
def test_settings_out_of_range_are_refused(kind: type[Schedule], settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(settings))}: "):
        kind(**settings)
