"""Options that don't count beside others are refused, and results are printed before files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import umbel as package
from tests.shell import Shell
from umbel.cli.options import job_count


@pytest.fixture
def flacc(umbel: Shell) -> Path:
    umbel("run", "both/flacc.toml", "--set", "rounds=2")
    return Path("runs") / "flacc-seed0"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--at", "2", "--reach", "accuracy=0.1", "--json"), "--at, --reach: give only one"),
        (("--config", "--json"), "--config: prints only the settings"),
        (("--config", "--judge", "loss"), "--config: prints only the settings"),
        (("--rows", "clients"), "--rows clients: says what --json and"),
        (("--rows", "clients", "--at", "1", "--json"), "--rows clients: leave it out with"),
        (("--judge", "nonsense"), "--judge: compares methods, and"),
        (("--judge", "loss", "--json"), "--judge: needs --rows differences"),
        (("--judge", "loss", "--at", "1"), "--judge: leave it out with --at and --reach"),
        (("--judge", "loss", "--reach", "ari=0"), "--judge: leave it out with --at and --reach"),
        (("--reach", "accuracy"), "--reach: 'accuracy' is not of the form purity=0.9"),
    ],
)
def test_options_of_show_that_would_not_count_are_refused(
    options: tuple[str, ...], said: str, umbel: Shell, flacc: Path
) -> None:
    assert said in umbel.refused("show", str(flacc), *options)


@pytest.mark.parametrize("goal", ["ari=-0.5", "accuracy=1e-3"])
def test_goals_are_written_as_for_until(goal: str, umbel: Shell, flacc: Path) -> None:
    printed, _ = umbel("show", str(flacc), "--reach", goal, "--json")
    assert json.loads(printed)[0]["round"] == 1


def test_compare_takes_seeds_by_their_own_options(umbel: Shell) -> None:
    said = umbel.refused("compare", "both", "--set", "seed=7")
    assert "--set: 'seed=7' is not allowed: choose seeds by --seeds and --first-seed" in said


def test_without_a_command_the_help_is_printed_as_it_is(umbel: Shell) -> None:
    alone, asked = umbel()[0], umbel("--help")[0]
    assert alone.split() == asked.split()
    assert alone.count("\n") == asked.count("\n")


def test_a_figure_in_a_new_folder_is_drawn_after_what_is_printed(umbel: Shell) -> None:
    pytest.importorskip("matplotlib")
    umbel("run", "cfl-gp-digits", "--set", "rounds=4", "--set", "scenario.clients=8")
    run, plot = str(Path("runs") / "cfl-gp-digits-seed0"), Path("new") / "deep" / "x.svg"
    printed, _ = umbel("estimate-clusters", run, "--plot", str(plot))
    assert printed.strip().endswith(f"drawn: {plot}")
    assert (umbel.folder / plot).is_file()


@pytest.mark.parametrize(
    "own", ["checkpoint.safetensors", "experiment.toml", "models/cluster-0.safetensors"]
)
def test_no_file_of_a_run_is_written_over(own: str, umbel: Shell, flacc: Path) -> None:
    before = (umbel.folder / flacc / own).read_bytes()
    out = str(flacc / own)
    words = ("export", str(flacc), "--to", "safetensors", "--cluster", "0", "--out", out)
    for command in (words, ("report", str(flacc), "--out", out)):
        assert "belongs to the run itself; choose another place" in umbel.refused(*command)
    assert (umbel.folder / flacc / own).read_bytes() == before


def test_one_setting_may_be_given_as_a_text() -> None:
    file = package.find_experiment("flacc-digits")
    assert package.read(file, "rounds=3").rounds == 3


@pytest.mark.parametrize("seed", [-1, 1.5])
def test_seeds_of_scenarios_are_whole_numbers_from_zero(seed: float) -> None:
    with pytest.raises(package.UsageError, match="seed"):
        package.scenario("rotated-digits", clients=4, seed=seed)  # type: ignore[arg-type]


def test_no_noise_may_be_minus_zero() -> None:
    made = package.scenario(
        "linear-regressions", clients=3, examples=5, test_examples=2, noise=-0.0
    )
    assert made.num_clients == 3


def test_adapters_need_hidden_layers() -> None:
    with pytest.raises(package.UsageError, match="adapters: 2 is not None: there are no"):
        package.read(
            package.find_experiment("flacc-digits"), ["model.hidden=[]", "model.adapters=2"]
        )


def test_no_more_jobs_than_a_gpu_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umbel.cli.options.cores", lambda: 16)
    counts = []
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        counts.append(job_count(None, None, "auto"))  # type: ignore[arg-type]
    assert counts == [16, 4]
    assert job_count(None, None, "9") == 9  # type: ignore[arg-type]
