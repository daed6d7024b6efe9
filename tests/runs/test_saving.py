"""Runs of own data and own modules in a folder: killed, gone on with, read back."""

from __future__ import annotations

import signal
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from torch import Tensor, nn

import umbel
from tests.engines.modules import OwnStatistics
from tests.federations import blobs, mlp
from tests.processes import ended, start, wait_for_lines
from tests.runs.test_execution import assert_same_end, untimed
from tests.shell import Shell
from umbel import FLACC, FedAvg, FedEM, LocalTraining, PFedMe, Run, RunFolder, UsageError
from umbel.algorithms import Restarts, Sharing
from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.restarts import RestartsState
from umbel.algorithms.sharing import SharingState
from umbel.engines import EngineSettings, Sequential
from umbel.runs.own import OwnModule, described, differences

LOCAL = LocalTraining(epochs=1, batch_size=8)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def with_mask() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    module.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
    return module


def binary() -> umbel.Federation:
    clients = [blobs().train.of(client) for client in range(6)]
    return umbel.Federation.from_arrays([(x, (y > 0).long()) for x, y in clients])


def make_run(**changes: Any) -> Run:
    run = Run(FLACC(LOCAL, n_sep=2), blobs(), umbel.Net(build), participation=0.75)
    return replace(run, **changes)


@dataclass(frozen=True)
class Elsewhere(FedAvg):
    """A method that stands in for one of a notebook."""


@dataclass(frozen=True)
class Mine(FLACC):
    """A method of a module of one's own."""


@dataclass(frozen=True)
class Weighing(FedAvg):
    """A method with a setting that no text file can hold."""

    weigh: Any = None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> umbel.Result:
    """Six rounds without interruption."""
    return make_run().save(tmp_path_factory.mktemp("runs") / "mine", 6)


def test_a_run_of_own_data_and_own_module_is_like_any_other_in_a_folder(
    whole: umbel.Result, umbel: Shell
) -> None:
    path = str(whole.folder.path)
    plain = [record.untimed() for _, record in make_run().rounds(6)]
    assert [record.untimed() for record in whole.records] == plain
    assert whole.experiment.name == "mine"
    assert "accuracy, mean over clients" in umbel("show", path)[0]
    assert "mine" in umbel("show", str(whole.folder.path.parent))[0]
    assert "finished already: 6 rounds" in umbel("resume", path)[0]
    umbel("report", path, "--out", "page.html")
    page = (umbel.folder / "page.html").read_text()
    assert "in Python the same umbel.Run, whose settings are below, this line makes the" in page
    assert 'run.save("mine", rounds=6)' in unescape(page)


def test_the_number_of_rounds_may_be_a_scalar_of_numpy_and_is_checked_at_once() -> None:
    run = make_run()
    assert [record.round for _, record in run.rounds(np.int64(2))] == [0, 1]  # type: ignore[arg-type]
    for rounds in (True, 2.5, 0):
        with pytest.raises(UsageError, match=f"rounds: {rounds} is not "):
            run.rounds(rounds)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [0, 1, 4, 6])
def test_a_stopped_loop_goes_on_to_the_same_end(
    after: int, tmp_path: Path, whole: umbel.Result
) -> None:
    path = tmp_path / "mine"
    assert len(list(islice(make_run().rounds(6, folder=path), after))) == after
    result = make_run().save(path, 6) if after == 0 else umbel.resume(path, make_run())
    assert_same_end(result.folder, whole.folder)
    assert list(make_run().rounds(6, folder=path)) == []


IDLE = [
    Restarts(FLACC(LOCAL, n_sep=2), restarts=1, keep="most-balanced"),
    Sharing(FLACC(LOCAL, n_sep=2)),
    Restarts(Sharing(FLACC(LOCAL, n_sep=2)), restarts=1, keep="most-balanced"),
]


@pytest.mark.parametrize("method", IDLE, ids=lambda each: type(each).__name__)
def test_a_run_of_a_wrapper_that_changes_nothing_is_one_of_the_method(
    method: Algorithm[Any], tmp_path: Path, whole: umbel.Result
) -> None:
    path, run = tmp_path / "mine", make_run(algorithm=method)
    assert run.algorithm == make_run().algorithm
    for _ in islice(run.rounds(6, folder=path), 2):
        pass
    result = run.save(path, 6)
    assert_same_end(result.folder, whole.folder)
    assert untimed(run.save(path, 6).folder) == untimed(whole.folder)


def as_formerly(folder: RunFolder, wrapped: Mapping[str, Any], state: State) -> None:
    """Make it that of an earlier version, in which such a wrapper ran, and its table said so."""
    table = tomllib.loads(folder.toml)
    table["algorithm"] |= wrapped
    folder.file("experiment.toml").write_text(tomli_w.dumps(table))
    folder.save(state, 2, {})


@pytest.mark.parametrize("own", [False, True])
def test_a_run_of_an_idle_wrapper_of_an_earlier_version_goes_on(own: bool, tmp_path: Path) -> None:
    run = make_run(algorithm=Mine(LOCAL, n_sep=2) if own else FLACC(LOCAL, n_sep=2))
    whole = run.save(tmp_path / "mine", 4)
    restarts = {"restarts": 1, "trial_rounds": 10, "keep": "most-balanced"}
    sharing: dict[str, Any] = {"share": "both", "kept": []}
    for number, wrapped in enumerate((restarts, sharing, restarts | sharing)):
        folder = RunFolder(tmp_path / f"{number}" / "mine")
        state: State = list(islice(run.rounds(4, folder=folder.path), 2))[-1][0]
        if "share" in wrapped:
            kept = state.models.new_zeros(len(state.labels), 0)
            state = SharingState(state.models, state.labels, (state,), kept)
        if "keep" in wrapped:
            state = RestartsState(state.models, state.labels, (state,))
        as_formerly(folder, wrapped, state)
        assert untimed(run.save(folder.path, 4).folder) == untimed(whole.folder)


def test_loaded_models_give_what_the_records_say(whole: umbel.Result) -> None:
    test = blobs().test
    again = umbel.load(whole.folder.path)  # its module comes from a function of this file
    for result in (whole, again):
        accuracies = []
        for client in range(6):
            x, y = test.of(client)
            outputs = result.model_for(str(client))(x)
            accuracies.append(float((outputs.argmax(1) == y).float().mean()))
        assert sum(accuracies) / 6 == pytest.approx(whole.records[-1].accuracy)


@pytest.mark.parametrize(
    "net",
    [
        umbel.Net(OwnStatistics, moving=["run*"]),
        umbel.Net(with_mask, umbel.BINARY),
    ],
    ids=["own statistics", "a mask of -inf, binary"],
)
def test_constants_statistics_and_objectives_are_there_again(
    net: umbel.Net, tmp_path: Path
) -> None:
    clients = blobs() if net.moving else binary()
    saved = Run(FedAvg(LOCAL), clients, net).save(tmp_path / "mine", 2)
    again = umbel.load(tmp_path / "mine")
    assert again.net.layout == net.layout
    assert again.net.objective is net.objective
    x = clients.test.of(0)[0]
    torch.testing.assert_close(again.model_for("0")(x), saved.model_for("0")(x))


def test_a_module_that_no_file_builds_is_said_at_once_and_given_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(net=umbel.Net(lambda: build()))
    rounds = run.rounds(2, folder=tmp_path / "mine")
    (said,) = caplog.messages
    assert "no file says how to build its Sequential: give load and export the net again" in said
    list(rounds)
    with pytest.raises(UsageError, match=r'was built in Python: umbel\.load\(".*", net\) needs it'):
        umbel.load(tmp_path / "mine").model(0)
    assert umbel.load(tmp_path / "mine", run.net).model(0)(torch.zeros(2, 6)).shape == (2, 3)
    other = umbel.Net(lambda: nn.Linear(6, 3))
    with pytest.raises(
        UsageError, match="net: Linear with 21 values: the run's is Sequential with"
    ):
        umbel.load(tmp_path / "mine", other)


class Masked(nn.Module):
    """Two inputs in three are left out, by a constant."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.mask: Tensor
        self.register_buffer("mask", (torch.arange(6) % 3 == kept).int(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * self.mask)  # type: ignore[no-any-return]


def test_a_net_with_other_constants_is_refused(tmp_path: Path) -> None:
    make_run(net=umbel.Net(lambda: Masked(0))).save(tmp_path / "mine", 1)
    with pytest.raises(UsageError, match=r"net: Masked with 21 values: .*, built otherwise"):
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
    "the planted groups are others": {"federation": replace(blobs(), groups=None)},
    "the clients have other names": {"federation": replace(blobs(), names=tuple("abcdef"))},
    "scenario.clients is 6 there and 2 here": {"federation": blobs((5, 17))},
    "model.kind is 'Sequential' there and 'Linear' here": {
        "net": umbel.Net(lambda: nn.Linear(6, 3))
    },
    "the module is built otherwise": {
        "net": umbel.Net(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    },
    "the module's initial values are others": {"net": umbel.Net(scaled)},
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


def test_a_folder_from_before_objectives_were_compared_goes_on() -> None:
    run = fitting(weighted(1))
    here = described(run, "mine", 2, 1)
    assert isinstance(here.model, OwnModule)
    assert all(here.model.gives)
    before = replace(here, model=replace(here.model, gives=OwnModule.gives))
    assert list(differences(before, here, run.net)) == []


def test_a_run_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    run = make_run(engine=EngineSettings("sequential", workers=2))
    for _ in run.rounds(4, folder=tmp_path):
        break
    alone = replace(run, engine=EngineSettings("sequential", workers=1))
    assert len(umbel.resume(tmp_path, alone).records) == 4


def test_a_folder_of_an_experiment_and_one_of_a_run_are_not_mixed_up(
    whole: umbel.Result, umbel: Shell
) -> None:
    import umbel as package

    umbel("run", "both/fedavg.toml", "--set", "rounds=1")
    with pytest.raises(UsageError, match="it was made from an experiment, not of data and a"):
        package.resume("runs/fedavg-seed0", make_run())
    with pytest.raises(UsageError, match="net: 'MLP' is not needed: the run's experiment says how"):
        package.load("runs/fedavg-seed0", make_run().net)
    with pytest.raises(
        UsageError, match=r"made in Python, .*: give the same run there, umbel\.res"
    ):
        package.resume(whole.folder.path)
    (whole.folder.path / "clusters.csv").rename("kept.csv")
    message = umbel.refused("resume", str(whole.folder.path))
    Path("kept.csv").rename(whole.folder.path / "clusters.csv")
    assert f'umbel.resume("{whole.folder.path}", run)' in message
    message = umbel.refused("run", str(whole.folder.path / "experiment.toml"))
    assert "these data were made in Python, and no file holds them" in message


def test_what_no_folder_can_hold_is_refused_before_the_first_round(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Inside(FedAvg):
        pass

    notebook: Any = type("Method", (Elsewhere,), {"__module__": "__main__"})
    told = "algorithm: 'Method' is not importable, as it is defined in a notebook or script"
    for algorithm, message in [
        (notebook(), told),
        (Inside(), "algorithm: 'Inside' is not importable, as it is defined in a function"),
        (Weighing(weigh=len), r"algorithm\.weigh: .* is not a number, text or dataclass"),
    ]:
        with pytest.raises(UsageError, match=message):
            make_run(algorithm=algorithm).rounds(3, folder=tmp_path / "mine")
        assert not (tmp_path / "mine").exists()
    assert make_run(algorithm=Elsewhere(LOCAL)).save(tmp_path / "mine", 1).num_clusters == 1
    with pytest.raises(UsageError, match="state, first: leave them out with a folder"):
        make_run().rounds(3, first=1, folder=tmp_path / "mine")
    with pytest.raises(UsageError, match=r"rounds: 9 is not 1, as planned in .*resume"):
        make_run(algorithm=Elsewhere(LOCAL)).save(tmp_path / "mine", 9)


def test_an_engine_of_ones_own_is_said_and_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    own = replace(run, engine=Sequential(run.net, run.federation, torch.device("cpu")))
    own.save(tmp_path / "mine", 2)
    assert "its engine, umbel.engines.sequential:Sequential, is an object" in caplog.text
    with pytest.raises(UsageError, match=r"scenario\.engine is 'umbel\.eng.*' there and '' here"):
        umbel.resume(tmp_path / "mine", run)


def save(path: Path) -> None:
    make_run().save(path, 40)


@pytest.mark.long
def test_a_process_killed_at_any_moment_goes_on_to_the_same_end(tmp_path: Path) -> None:
    expected = make_run().save(tmp_path / "whole" / "mine", 40).folder
    folder = RunFolder(tmp_path / "killed" / "mine")
    process = start(save, folder.path)
    wait_for_lines(process, folder.file("records.jsonl"), 9)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    assert not folder.finished
    umbel.resume(folder.path, make_run())
    assert_same_end(folder, expected)


# ------------------------------------------------------------------ what each client is served


def test_clients_get_their_personal_model_or_mixture(tmp_path: Path) -> None:
    methods = (
        PFedMe(local=replace(LOCAL, lr=0.05)),
        umbel.PerFedAvg(alpha=0.1),
        FedEM(2, replace(LOCAL, lr=0.5)),
        umbel.LocalOnly(LOCAL),
        umbel.IFCA(2, LOCAL),
    )
    test = blobs().test
    for algorithm in methods:
        result = make_run(algorithm=algorithm).save(tmp_path / type(algorithm).__name__, 3)
        models = [result.model_for(client) for client in range(6)]
        for client, row in enumerate(result.clients):
            x, y = test.of(client)
            assert not models[client].training
            loss = nn.functional.cross_entropy(models[client](x), y)
            assert loss.item() == pytest.approx(row.loss, rel=1e-4)
        x, _ = test.of(0)
        assert not torch.allclose(models[0](x), models[1](x))
        with pytest.raises(UsageError, match=r"client: 'site-3' is not known; known: 0, 1, 2, 3"):
            result.model_for("site-3")


def test_clients_with_names_are_known_by_their_numbers_too(tmp_path: Path) -> None:
    data = blobs()
    clients = range(data.num_clients)
    pairs = {f"site-{n}": data.train.of(n) for n in clients}
    named = umbel.Federation.from_arrays(pairs, num_classes=data.num_classes, test_fraction=0.2)
    result = umbel.Run(umbel.LocalOnly(LOCAL), named, mlp()).save(tmp_path / "run", 1)
    x = data.train.of(0)[0]
    assert torch.equal(result.model_for(3)(x), result.model_for("site-3")(x))
    for client in (-1, data.num_clients):
        with pytest.raises(UsageError, match=f"client: '{client}' is not known"):
            result.model_for(client)


def test_models_that_clients_share_are_saved_once(tmp_path: Path) -> None:
    result = make_run(algorithm=FedEM(2, LOCAL)).save(tmp_path / "mine", 2)
    models, weights = result.folder.models.mixture(3)
    assert models.shape == (2, make_run().net.layout.num_values)
    assert float(weights.sum()) == pytest.approx(1)
    shared = make_run(algorithm=FedAvg(LOCAL)).save(tmp_path / "one", 2)
    assert [file.name for file in (tmp_path / "one" / "models").iterdir()] == [
        "cluster-0.safetensors"
    ]
    assert torch.equal(shared.model_for(2)[0].weight, shared.model(0)[0].weight)  # type: ignore[index]


def test_of_folders_before_clients_models_were_kept_the_rest_can_be_used(tmp_path: Path) -> None:
    import json

    from safetensors.torch import load_file, save_file

    for algorithm, known in [(PFedMe(), False), (FLACC(LOCAL, n_sep=2), True)]:
        path = tmp_path / type(algorithm).__name__
        result = make_run(algorithm=algorithm).save(path, 2)
        (path / "models" / "clients.safetensors").unlink(missing_ok=True)
        for file in (path / "models").iterdir():
            old = {"input_shape": [6], "num_outputs": 3, "num_classes": 3, "label": 0}
            save_file(load_file(file), file, {"umbel": json.dumps(old)})
        result = umbel.load(path)
        assert result.model(0)(torch.zeros(1, 6)).shape == (1, 3)
        if known:
            assert result.model_for("0")(torch.zeros(1, 6)).shape == (1, 3)
        else:
            with pytest.raises(
                UsageError, match=r"written before clients' .*; remove clusters.csv"
            ):
                result.model_for("0")
            (path / "clusters.csv").unlink()
            umbel.resume(path, make_run(algorithm=algorithm))
            assert umbel.load(path).model_for("0")(torch.zeros(1, 6)).shape == (1, 3)


def test_results_are_not_to_be_removed_where_only_the_net_is_not_known(tmp_path: Path) -> None:
    make_run(net=umbel.Net(lambda: build())).save(tmp_path / "mine", 1)
    result = umbel.load(tmp_path / "mine")
    with pytest.raises(UsageError, match=r"needs it again, and umbel export its --net$"):
        result.model(0)
    with pytest.raises(UsageError, match=r"needs it again, and umbel export its --net$"):
        result.model_for("0")


def test_records_of_a_saved_run_are_those_of_a_run_in_memory(whole: umbel.Result) -> None:
    assert untimed(whole.folder) == [record.untimed() for _, record in make_run().rounds(6)]
