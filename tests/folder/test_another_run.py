"""A folder goes on with the run that it is of, and with no other."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.federations import blobs
from tests.folder.saved import LOCAL, Masked, build, make_run
from umbel import FLACC, FedAvg, Run, UsageError
from umbel.engines import EngineSettings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> umbel.Result:
    """Six rounds without interruption."""
    return make_run().save(tmp_path_factory.mktemp("runs") / "mine", 6)


def test_a_net_with_other_constants_is_refused(tmp_path: Path) -> None:
    make_run(net=umbel.Net(lambda: Masked(0))).save(tmp_path / "mine", 1)
    with pytest.raises(UsageError, match=r"net: Masked with 21 values: .*, built differently"):
        umbel.load(tmp_path / "mine", umbel.Net(lambda: Masked(1)))


def changed(split: str) -> umbel.Federation:
    federation = blobs()
    old = getattr(federation, split)
    x = old.x.clone()
    x[0, 0] += 1
    return replace(federation, **{split: replace(old, x=x)})


def scaled() -> nn.Module:
    module = build()
    with torch.no_grad():
        next(iter(module.parameters()))[0, 0] += 0.1
    return module


OTHERS: dict[str, dict[str, Any]] = {
    "the training examples have other values": {"federation": changed("train")},
    "the test examples have other values": {"federation": changed("test")},
    "scenario.clients was 6 and is 2": {"federation": blobs((5, 17))},
    "the module's initial values are different": {"net": umbel.Net(scaled)},
    "model.objective was 'CLASSIFICATION' and is 'REGRESSION'": {
        "net": umbel.Net(build, umbel.REGRESSION)
    },
    "algorithm.local.lr was 0.1 and is 0.2": {"algorithm": FLACC(replace(LOCAL, lr=0.2), n_sep=2)},
    "algorithm.name was 'flacc' and is 'fedavg'": {"algorithm": FedAvg(LOCAL)},
    "seed was 0 and is 1": {"seed": 1},
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_run_is_refused_and_what_differs_is_said(what: str, whole: umbel.Result) -> None:
    other = make_run(**OTHERS[what])
    calls = (
        lambda: umbel.resume(whole.folder.path, other),
        lambda: umbel.finish(whole.folder.path, other),
        lambda: other.rounds(6, folder=whole.folder.path),
    )
    for call in calls:
        with pytest.raises(UsageError) as refused:
            call()
        assert str(refused.value).startswith(f"{whole.folder.path}: holds another run: ")
        assert what in str(refused.value)


def test_fewer_rounds_than_are_done_need_another_folder(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    make_run().save(path, 2)
    said = r"rounds: 1 is not 2, as planned in .*mine; 2 rounds done; for fewer, choose another"
    with pytest.raises(UsageError, match=said):
        make_run().save(path, 1)


def weighted(weight: float, near: float = 0.5) -> umbel.Objective:
    """The squared error times a weight, in functions of the same names whatever the numbers."""

    def losses(outputs: Tensor, y: Tensor) -> Tensor:
        return weight * ((outputs - y) ** 2).mean(1)

    def correct(outputs: Tensor, y: Tensor) -> Tensor:
        return ((outputs - y).abs().amax(1) < near).float()

    return umbel.Objective(losses, correct)


def fitting(objective: umbel.Objective) -> Run:
    clients = [(x, x[:, :2]) for x in (blobs().train.of(client)[0] for client in range(3))]
    federation = umbel.Federation.from_arrays(clients)
    return Run(FedAvg(LOCAL), federation, umbel.Net(lambda: nn.Linear(6, 2), objective))


@pytest.mark.parametrize(
    ("other", "which"), [(weighted(0.01), "losses"), (weighted(1, near=0.1), "correct")]
)
def test_an_objective_that_gives_other_values_is_refused(
    other: umbel.Objective, which: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine"
    list(islice(fitting(weighted(1)).rounds(2, folder=path), 1))
    with pytest.raises(UsageError, match=f"the objective's {which} gives other values"):
        umbel.resume(path, fitting(other))
    assert len(umbel.resume(path, fitting(weighted(1))).records) == 2


def test_a_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    run = make_run(engine=EngineSettings("sequential", "cpu", workers=2))
    for _ in run.rounds(4, folder=tmp_path):
        break
    alone = replace(run, engine=EngineSettings("sequential", "cpu", workers=1))
    assert len(umbel.resume(tmp_path, alone).records) == 4
