"""A folder goes on with the run that it is of, and with no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.federations import blobs
from tests.runs.saved import LOCAL, Masked, binary, build, make_run
from umbel import FLACC, FedAvg, Run, UsageError
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.experiment import toml_file as config
from umbel.experiment.differences import check_same
from umbel.folder.run_folder import RunFolder
from umbel.networks import Model


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
    "the planted groups are different": {"federation": replace(blobs(), groups=None)},
    "the clients have other names": {"federation": replace(blobs(), names=tuple("abcdef"))},
    "scenario.clients is 6 there and 2 here": {"federation": blobs((5, 17))},
    "model.kind is 'Sequential' there and 'Linear' here": {
        "net": umbel.Net(lambda: nn.Linear(6, 3))
    },
    "the module is built differently": {
        "net": umbel.Net(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    },
    "the module's initial values are different": {"net": umbel.Net(scaled)},
    "model.objective is 'CLASSIFICATION' there and 'REGRESSION' here": {
        "net": umbel.Net(build, umbel.REGRESSION)
    },
    "algorithm.local.lr is 0.1 there and 0.2 here": {
        "algorithm": FLACC(replace(LOCAL, lr=0.2), n_sep=2)
    },
    "algorithm.name is 'flacc' there and 'fedavg' here": {"algorithm": FedAvg(LOCAL)},
    "seed is 0 there and 1 here": {"seed": 1},
    "limits.quorum is 0.5 there and 1.0 here": {"limits": umbel.Limits(quorum=1.0)},
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


def test_a_run_whose_folder_another_has_taken_before_its_first_round_is_refused(
    tmp_path: Path,
) -> None:
    path, fedavg = tmp_path / "mine", make_run(algorithm=FedAvg(LOCAL))
    earlier = {
        "algorithm.name is 'fedavg', not 'flacc'": make_run().rounds(3, folder=path),
        "rounds is 3, not 2": fedavg.rounds(2, folder=path),
        "the training examples have other values": replace(
            fedavg, federation=changed("train")
        ).rounds(3, folder=path),
        "model.initial is ": replace(fedavg, net=umbel.Net(scaled)).rounds(3, folder=path),
    }
    last = fedavg.rounds(3, folder=path)
    for how, rounds in earlier.items():
        with pytest.raises(UsageError, match=f"another run has taken this folder .*{how}"):
            next(rounds)
    assert len(list(last)) == 3


@dataclass(frozen=True)
class Layer(Model):
    """A model whose settings have the names of what is kept of modules made in Python."""

    initial: float = 0.1
    source: str = ""
    table: Mapping[str, Any] = field(default_factory=lambda: {"some": (1, 2), "none": nan})

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        raise NotImplementedError


@dataclass(frozen=True)
class Clients(Scenario):
    """A scenario that has a setting of the name of a digest."""

    groups: int = 2

    def build(self, seed: int, sources: Sources) -> umbel.Federation:
        raise NotImplementedError


LAYER = umbel.Experiment(Clients(), Layer(), FedAvg())


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(LAYER, model=Layer(initial=0.2)), r"model\.initial is 0\.2, not 0\.1"),
        (replace(LAYER, model=Layer(source="a.csv")), r"model\.source is 'a\.csv', not ''"),
        (replace(LAYER, scenario=Clients(groups=3)), r"scenario\.groups is 3, not 2"),
    ],
)
def test_settings_of_ones_own_are_compared_whatever_their_names(
    other: umbel.Experiment, said: str, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "mine", LAYER)
    RunFolder.create(folder.path, other)
    with pytest.raises(UsageError, match=f"taken this folder meanwhile \\({said}\\)"):
        folder.check_asked()


def test_a_folder_holds_the_run_asked_for_with_tuples_in_tables_and_nan(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "mine", LAYER)
    folder.check_asked()
    check_same(folder.path, folder.experiment, LAYER)


def test_what_another_run_has_finished_meanwhile_is_not_taken_for_this_run(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    rounds = make_run().rounds(1, folder=path)
    make_run(algorithm=FedAvg(LOCAL)).save(path, 1)
    with pytest.raises(UsageError, match="another run has taken this folder"):
        list(rounds)


def test_a_run_that_was_resumed_with_other_rounds_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    waiting, begun = (make_run().rounds(2, folder=path) for _ in range(2))
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    assert len(umbel.resume(path, make_run(), rounds=3).records) == 3
    assert list(waiting) == []  # all rounds are done
    not_begun = tmp_path / "other"
    make_run().rounds(9, folder=not_begun)
    assert len(umbel.resume(not_begun, make_run(), rounds=3).records) == 3


def test_fewer_rounds_than_are_done_need_another_folder(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    make_run().save(path, 2)
    said = r"rounds: 1 is not 2, as planned in .*mine; 2 rounds done; for fewer, choose another"
    with pytest.raises(UsageError, match=said):
        make_run().save(path, 1)


def test_no_round_of_another_process_is_lost_if_a_folder_is_created_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine"

    def meanwhile(experiment: umbel.Experiment) -> None:
        monkeypatch.undo()
        config.writable(experiment)
        make_run().save(path, 1)

    monkeypatch.setattr(config, "writable", meanwhile)
    with pytest.raises(UsageError, match="holds a finished run"):
        make_run(algorithm=FedAvg(LOCAL)).rounds(1, folder=path)
    assert umbel.load(path, make_run().net).experiment.algorithm == make_run().algorithm


def test_a_folder_is_a_run_only_when_its_goals_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "set_budget", killed)
    with pytest.raises(KeyboardInterrupt):
        make_run().save(tmp_path / "mine", 4, until="accuracy=0")
    assert not RunFolder(tmp_path / "mine").file("experiment.toml").exists()


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


def test_an_objective_may_refuse_some_of_the_made_up_outputs(tmp_path: Path) -> None:
    def fitting_probabilities(weight: float) -> Run:
        losses = nn.BCELoss(reduction="none")  # of outputs in [0, 1] alone
        objective = umbel.Objective(
            lambda outputs, y: weight * losses(outputs[:, 0], y.float()),
            lambda outputs, y: ((outputs[:, 0] > 0.5) == (y > 0.5)).float(),
        )
        net = umbel.Net(lambda: nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()), objective)
        return Run(FedAvg(LOCAL), binary(), net)

    fitting_probabilities(1).save(tmp_path / "mine", 1)
    with pytest.raises(UsageError, match="the objective's losses gives other values"):
        fitting_probabilities(2).save(tmp_path / "mine", 1)


def test_a_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    run = make_run(engine=EngineSettings("sequential", "cpu", workers=2))
    for _ in run.rounds(4, folder=tmp_path):
        break
    alone = replace(run, engine=EngineSettings("sequential", "cpu", workers=1))
    assert len(umbel.resume(tmp_path, alone).records) == 4
