"""Options that don't count beside others are refused, and results are printed before files."""

from __future__ import annotations

from pathlib import Path

import pytest

import umbel as package
from tests.shell import Shell


@pytest.fixture
def flacc(umbel: Shell) -> Path:
    umbel("run", "both/flacc.toml", "--set", "rounds=2")
    return Path("runs") / "flacc-seed0"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--at", "2", "--reach", "accuracy=0.1", "--json"), "--at, --reach: give only one"),
        (("--config", "--json"), "--config: prints only the settings"),
        (("--rows", "clients"), "--rows clients: says what --json and"),
        (("--judge", "nonsense"), "--judge: compares methods, and"),
        (("--judge", "loss", "--at", "1"), "--judge: leave it out with --at and --reach"),
    ],
)
def test_options_of_show_that_would_not_count_are_refused(
    options: tuple[str, ...], said: str, umbel: Shell, flacc: Path
) -> None:
    assert said in umbel.refused("show", str(flacc), *options)


def test_compare_takes_seeds_by_their_own_options(umbel: Shell) -> None:
    said = umbel.refused("compare", "both", "--set", "seed=7")
    assert "--set: 'seed=7' is not allowed: choose seeds by --seeds and --first-seed" in said


def test_without_a_command_the_help_is_printed_as_it_is(umbel: Shell) -> None:
    alone, asked = umbel()[0], umbel("--help")[0]
    assert alone.split() == asked.split()
    assert alone.count("\n") == asked.count("\n")


def test_no_file_of_a_run_is_written_over(umbel: Shell, flacc: Path) -> None:
    own = "checkpoint.safetensors"
    before = (umbel.folder / flacc / own).read_bytes()
    out = str(flacc / own)
    words = ("export", str(flacc), "--to", "safetensors", "--cluster", "0", "--out", out)
    for command in (words, ("report", str(flacc), "--out", out)):
        assert "belongs to the run itself; choose another place" in umbel.refused(*command)
    assert (umbel.folder / flacc / own).read_bytes() == before


def test_one_setting_may_be_given_as_a_text() -> None:
    file = package.find_experiment("flacc-digits")
    assert package.read(file, "rounds=3").rounds == 3
