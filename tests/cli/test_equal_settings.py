"""Equal settings are one row of a comparison, whatever they are called, and are trained once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import Shell
from umbel import load, results
from umbel.result.outcomes import by_method

SWEEP = ("compare", "both", "--seeds", "1", "--set", "rounds=2")


def rows(folder: str) -> list[tuple[str, int]]:
    runs = [load(each.path) for each in results(folder).folders]
    return sorted((name, len(seeded)) for name, seeded in by_method(runs))


def test_a_sweep_over_a_value_that_is_there_already_makes_no_run_again(umbel: Shell) -> None:
    umbel(*SWEEP)
    settings = ("--set", "algorithm.local.lr=0.1,0.2")
    out, err = umbel(*SWEEP, *settings)
    assert "fedavg,algorithm.local.lr=0.1: has the settings of fedavg, and is not made" in err
    assert "fedavg lr=0.2" in out
    assert "lr=0.1" not in out
    made = {path.name for path in Path("runs/both").iterdir()}
    assert made == {
        f"{name}-seed{seed}"
        for name in (
            *("fedavg", "fedavg,algorithm.local.lr=0.2"),
            *("flacc", "flacc,algorithm.local.lr=0.2"),
        )
        for seed in range(1)
    }
    umbel("compare", "both", "--seeds", "2", "--set", "rounds=2", *settings)
    assert (Path("runs/both") / "fedavg-seed1").is_dir()


def test_runs_of_equal_settings_under_two_names_are_one_row(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1", "--set", "rounds=2", "--control")
    for seed in (0, 1):  # as umbel made them before, and as anybody may who runs both
        settings = ["--set", "rounds=2", "--set", "name=again", "--seed", str(seed)]
        umbel("run", "both/fedavg.toml", *settings, "--runs-dir", "runs/both")
    names = dict(rows("runs/both"))
    assert names.pop("again") == 2
    assert {"flacc": 1}.items() <= names.items()
    assert "fedavg" not in names


def test_methods_are_chosen_by_name(umbel: Shell) -> None:
    umbel(*SWEEP, "--set", "algorithm.local.lr=0.1,0.2")
    out, _ = umbel("show", "runs/both", "--only", "fedavg*")
    assert "fedavg lr=0.1" in out
    assert "flacc" not in out
    out, _ = umbel("show", "runs/both", "--without", "flacc lr=0.2", "--without", "fedavg*")
    assert "lr=0.2" not in out
    out, _ = umbel("show", "runs/both", "--only", "flacc*", "--csv")
    assert len(out.splitlines()) == 1 + 2
    _, err = umbel("show", "runs/both", "--only", "flac lr=0.1", status=2)
    assert "--only: 'flac lr=0.1' is no method here; did you mean flacc lr=0.1?" in err
    _, err = umbel("show", "runs/both", "--without", "*", status=2)
    assert "nothing is left" in err
    _, err = umbel("show", "runs/both/flacc,algorithm.local.lr=0.1-seed0", "--only", "x", status=2)
    assert "a folder of several runs" in err


def test_a_report_is_about_the_chosen_methods(umbel: Shell) -> None:
    pytest.importorskip("vl_convert")
    umbel(*SWEEP, "--set", "algorithm.local.lr=0.1,0.2")
    umbel("report", "runs/both", "--without", "flacc*", "--out", "page.html")
    text = Path("page.html").read_text()
    assert "fedavg" in text
    assert "flacc" not in text
