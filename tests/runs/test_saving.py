"""Runs of own data and own modules in a folder: killed, gone on with, read back."""

from __future__ import annotations

import logging
import pickle
import shutil
import signal
import tomllib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from torch import nn

import umbel
from tests.engines.modules import OwnStatistics
from tests.federations import blobs
from tests.processes import ended, start, wait_for_lines
from tests.runs.saved import LOCAL, binary, build, make_run
from tests.runs.test_execution import assert_same_end, untimed
from tests.shell import Shell
from umbel import FLACC, FedAvg, Run, RunFolder, UsageError
from umbel.algorithms import Restarts, Sharing
from umbel.algorithms.base import Algorithm, State
from umbel.engines import Sequential
from umbel.run.start import unsaid


def with_mask() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    module.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
    return module


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


@dataclass(frozen=True)
class Listing(FedAvg):
    """A method whose settings are a list and a dict, which no type of `Settings` covers."""

    sizes: list[int] = field(default_factory=lambda: [2, 4])
    extra: dict[str, Any] = field(default_factory=lambda: {"a": 1.5, "b": {"c": ["x"]}})


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
    assert "no file says how to build its Sequential: pass the net to load and export" in said
    list(rounds)
    with pytest.raises(UsageError, match=r"was built in Python: give the net again, by umbel"):
        umbel.load(tmp_path / "mine").model(0)
    assert umbel.load(tmp_path / "mine", run.net).model(0)(torch.zeros(2, 6)).shape == (2, 3)
    other = umbel.Net(lambda: nn.Linear(6, 3))
    with pytest.raises(
        UsageError, match="net: Linear with 21 values: the run's is Sequential with"
    ):
        umbel.load(tmp_path / "mine", other)


def test_a_folder_of_an_experiment_and_one_of_a_run_are_not_mixed_up(
    whole: umbel.Result, umbel: Shell
) -> None:
    import umbel as package

    umbel("run", "both/fedavg.toml", "--set", "rounds=1")
    with pytest.raises(UsageError, match="it was made from an experiment, not from data and a"):
        package.resume("runs/fedavg-seed0", make_run())
    with pytest.raises(UsageError, match="net: 'MLP' is not needed: the run's experiment says how"):
        package.load("runs/fedavg-seed0", make_run().net)
    with pytest.raises(UsageError, match=r"made in Python, .*: go on there by umbel\.res"):
        package.resume(whole.folder.path)
    (whole.folder.path / "clusters.csv").rename("kept.csv")
    message = umbel.refused("resume", str(whole.folder.path))
    ending = umbel.refused("finish", str(whole.folder.path))
    Path("kept.csv").rename(whole.folder.path / "clusters.csv")
    assert f'umbel.resume("{whole.folder.path}", run)' in message
    assert f'go on there by umbel.finish("{whole.folder.path}", run)' in ending
    message = umbel.refused("run", str(whole.folder.path / "experiment.toml"))
    assert "these data were made in Python, and no file holds them" in message


def test_the_way_on_is_one_that_a_run_made_in_python_can_take(
    tmp_path: Path, whole: umbel.Result, umbel: Shell
) -> None:
    run = RunFolder(Path(shutil.copytree(whole.folder.path, tmp_path / "run")))
    way = f'umbel.resume("{run.path}", run'
    (run.path / "models" / "cluster-0.safetensors").unlink()
    (run.path / "encoding.json").write_text("{}")
    again = f"remove clusters.csv, and {way}) writes"
    assert again in umbel.refused("export", str(run.path), "--to", "safetensors", "--cluster", "0")
    assert f"remove it and clusters.csv, and {way}) writes" in umbel.refused(
        "assign", str(run.path), "newcomers"
    )
    assert f"{way}) continues it" in umbel.refused("compare", str(run.path))
    run.file("clusters.csv").unlink()
    umbel("report", str(run.path), "--out", "page.html")
    assert "umbel.resume in Python continues it" in (umbel.folder / "page.html").read_text()
    with pytest.raises(UsageError) as refused:
        RunFolder.create(run.path, whole.experiment)
    assert f"holds a run already; go on with it by {way}), or choose" in str(refused.value)
    file = run.file("experiment.toml")
    file.write_text(file.read_text().replace('kernel = "auto"', 'kernel = "general"'))
    assert f"run {way}, rounds=N)" in umbel.refused("show", str(run.path))


def test_what_no_folder_can_hold_is_refused_before_the_first_round(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Inside(FedAvg):
        pass

    notebook: Any = type("Method", (Elsewhere,), {"__module__": "__main__"})
    told = "algorithm: 'Method' is not importable, as it is defined in a notebook or script"
    for algorithm, message in [
        (notebook(), told),
        (Inside(), "algorithm: 'Inside' is not importable, as it is defined in a function"),
        (Weighing(weigh=len), r"algorithm\.weigh: .* is not a number, text, dataclass"),
    ]:
        with pytest.raises(UsageError, match=message):
            make_run(algorithm=algorithm).rounds(3, folder=tmp_path / "mine")
        assert not (tmp_path / "mine").exists()
    assert make_run(algorithm=Elsewhere(LOCAL)).save(tmp_path / "mine", 1).num_clusters == 1
    with pytest.raises(UsageError, match="state, first: leave them out with a folder"):
        make_run().rounds(3, first=1, folder=tmp_path / "mine")
    with pytest.raises(UsageError, match=r"rounds: 9 is not 1, as planned in .*resume"):
        make_run(algorithm=Elsewhere(LOCAL)).save(tmp_path / "mine", 9)


def test_lists_and_dicts_of_plain_values_are_settings_that_a_folder_holds(tmp_path: Path) -> None:
    run = make_run(algorithm=Listing(LOCAL))
    next(run.rounds(2, folder=tmp_path / "mine"))
    result = run.save(tmp_path / "mine", 2)
    assert len(result.records) == 2
    assert result.algorithm == umbel.load(tmp_path / "mine").algorithm == run.algorithm


def test_tuples_in_lists_and_dicts_are_compared_as_the_lists_that_a_folder_holds(
    tmp_path: Path,
) -> None:
    run = make_run(algorithm=Listing(LOCAL, extra={"a": (1, 2), "b": [{"c": (3,)}]}))
    next(run.rounds(2, folder=tmp_path / "mine"))
    saved = run.save(tmp_path / "mine", 2)
    assert vars(saved.algorithm)["extra"] == {"a": [1, 2], "b": [{"c": [3]}]}
    other = make_run(algorithm=Listing(LOCAL, extra={"a": (1, 3), "b": [{"c": (3,)}]}))
    with pytest.raises(UsageError, match=r"\.extra\.a is \[1, 2\] there and \[1, 3\] here"):
        other.save(tmp_path / "mine", 2)


def test_a_file_in_the_place_of_the_folder_is_refused_as_is_a_module_for_a_net(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine").write_text("notes")
    with pytest.raises(UsageError, match=r"^folder: '.*mine' is not a folder to write in"):
        make_run().save(tmp_path / "mine", 1)
    assert (tmp_path / "mine").read_text() == "notes"
    folder = make_run().save(tmp_path / "ours", 1).folder
    module: Any = nn.Linear(6, 3)
    with pytest.raises(UsageError, match=r"^net: .*Linear.* is not a Net; write Net\(lambda"):
        umbel.load(folder.path, module)


def losses(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def hits(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return outputs.argmax(1) == y


def test_an_objective_of_ones_own_is_said_at_once_and_its_net_given_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(net=umbel.Net(build, umbel.Objective(losses, hits)))
    run.save(tmp_path / "mine", 1)
    assert "its objective, tests.runs.test_saving:losses" in caplog.text
    assert "is your own: pass the net to load and export" in caplog.text
    with pytest.raises(UsageError, match=r"is one of your own: give the net again, by umbel\.load"):
        umbel.load(tmp_path / "mine").model(0)
    assert umbel.load(tmp_path / "mine", run.net).model(0)(torch.zeros(2, 6)).shape == (2, 3)


@pytest.mark.parametrize("twin", [deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_of_a_run_is_the_same_run(
    twin: Callable[[Any], Any], tmp_path: Path, whole: umbel.Result
) -> None:
    run = make_run()
    for _ in islice(run.rounds(6, folder=tmp_path / "mine"), 2):
        pass
    result = umbel.resume(tmp_path / "mine", twin(run))
    assert_same_end(result.folder, whole.folder)
    umbel.load(tmp_path / "mine", twin(run.net))


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


def test_records_of_a_saved_run_are_those_of_a_run_in_memory(whole: umbel.Result) -> None:
    assert untimed(whole.folder) == [record.untimed() for _, record in make_run().rounds(6)]


def test_going_on_with_more_rounds_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(algorithm=Restarts(umbel.IFCA(2, LOCAL), restarts=2, trial_rounds=9))
    run.save(tmp_path, 1)
    caplog.clear()
    umbel.resume(tmp_path, run, rounds=2)
    assert caplog.text.count("trial_rounds: only a run of 9 rounds") == 1


def test_messages_appear_again_when_the_last_of_several_threads_is_no_longer_silent() -> None:
    before = logging.getLogger("umbel").level
    one, other = unsaid(), unsaid()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    other.__exit__(None, None, None)
    assert logging.getLogger("umbel").level == before
