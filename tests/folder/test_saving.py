"""Runs of own data and own modules in a folder: killed, gone on with, read back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import umbel
from tests.engines.modules import OwnStatistics
from tests.federations import blobs
from tests.folder.saved import LOCAL, binary, build, make_run
from tests.folder.test_execution import assert_same_end
from tests.shell import Shell
from umbel import FedAvg, Run, UsageError
from umbel.engines import Sequential


def with_mask() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    module.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
    return module


@dataclass(frozen=True)
class Elsewhere(FedAvg):
    """A method that stands in for one of a notebook."""


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
    page = " ".join((umbel.folder / "page.html").read_text().split())
    assert "in Python the same umbel.Run, whose settings are below, this line makes the" in page
    assert 'run.save("mine", rounds=6)' in unescape(page)


@pytest.mark.parametrize("after", [0, 4])
def test_a_stopped_loop_goes_on_to_the_same_end(
    after: int, tmp_path: Path, whole: umbel.Result
) -> None:
    path = tmp_path / "mine"
    assert len(list(islice(make_run().rounds(6, folder=path), after))) == after
    result = make_run().save(path, 6) if after == 0 else umbel.resume(path, make_run())
    assert_same_end(result.folder, whole.folder)
    assert list(make_run().rounds(6, folder=path)) == []


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


def losses(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, y, reduction="none")


def hits(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return outputs.argmax(1) == y


def test_an_objective_of_ones_own_is_said_at_once_and_its_net_given_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(net=umbel.Net(build, umbel.Objective(losses, hits)))
    run.save(tmp_path / "mine", 1)
    assert "its objective, tests.folder.test_saving:losses" in caplog.text
    assert "is your own: pass the net to load and export" in caplog.text
    with pytest.raises(UsageError, match=r"is one of your own: give the net again, by umbel\.load"):
        umbel.load(tmp_path / "mine").model(0)
    assert umbel.load(tmp_path / "mine", run.net).model(0)(torch.zeros(2, 6)).shape == (2, 3)


def test_an_engine_of_ones_own_is_said_and_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run()
    own = replace(run, engine=Sequential(run.net, run.federation, torch.device("cpu")))
    own.save(tmp_path / "mine", 2)
    assert "its engine, umbel.engines.sequential:Sequential, is an object" in caplog.text
    with pytest.raises(UsageError, match=r"scenario\.engine was 'umbel\.eng.*' and is ''"):
        umbel.resume(tmp_path / "mine", run)


# ------------------------------------------------------------------ what each client is served
