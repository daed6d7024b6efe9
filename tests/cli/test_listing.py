"""`umbel list`: what there is, on a screen."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.shell import Shell
from umbel.cli.catalogue import KINDS, entries


def test_alone_it_prints_an_overview_that_fits_a_screen(umbel: Shell) -> None:
    printed, _ = umbel("list")
    lines = printed.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for word in ("flacc", "rotated-mnist", "cnn", "rotated-digits", "flacc-fig4"):
        assert word in printed
    assert f"{len(entries('methods'))} methods" in lines
    assert "in 24 comparisons" in printed


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_listed_a_sentence_a_name(kind: str, umbel: Shell) -> None:
    printed = " ".join(umbel("list", kind)[0].split())
    for name, text in entries(kind).items():
        assert f"{name} {text}" in printed


def test_a_pattern_is_part_of_a_name_or_fits_it(umbel: Shell) -> None:
    assert umbel("list", "methods", "fed")[0].split()[:3] == ["one", "model", "fedavg"]
    found = json.loads(umbel("list", "scenarios", "*-mnist", "--json")[0])
    names = ["rotated-mnist", "mixture-mnist", "lin-mnist", "lin-fashion-mnist", "drifting-mnist"]
    assert [row["name"] for row in found] == names
    printed, _ = umbel("list", "experiments", "linear-regressions")
    assert "umbel compare linear-regressions" in printed
    assert "cfl-gp-linear" in printed
    assert "digits" not in printed
    assert "minutes" in umbel("list", "papers", "lin-fig4")[0]


def test_what_is_in_no_name_is_refused(umbel: Shell) -> None:
    message = umbel.refused("list", "methods", "flac?c")
    assert "'flac?c' is in no name of methods; did you mean flacc?" in message
    assert "`umbel list models` shows all" in umbel.refused("list", "models", "zzz")
    assert "kind: 'method' is not known; did you mean methods?" in umbel.refused("list", "method")


def test_programs_get_rows(umbel: Shell) -> None:
    rows = json.loads(umbel("list", "--json")[0])
    assert {row["kind"] for row in rows} == set(KINDS)
    (row,) = csv.DictReader(io.StringIO(umbel("list", "experiments", "flacc-digits", "--csv")[0]))
    assert row["name"] == "flacc-digits"
    assert row["comparison"] == "rotated-digits"


def test_methods_are_in_groups(umbel: Shell) -> None:
    lines = umbel("list", "methods")[0].splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == ["one model", "clustered", "soft", "personal"]
    assert lines.index("clustered") < lines.index("soft") < lines.index("personal")
    soft = [line.split()[0] for line in lines[lines.index("soft") + 1 : lines.index("personal")]]
    assert {"fedem", "fedrc"} <= set(soft)
    rows = json.loads(umbel("list", "methods", "--json")[0])
    assert {row["name"] for row in rows if row["group"] == "soft"} == set(soft)
    (row,) = csv.DictReader(io.StringIO(umbel("list", "methods", "ifca", "--csv")[0]))
    assert row["group"] == "clustered"


def test_a_method_comes_with_its_settings(umbel: Shell) -> None:
    printed = " ".join(umbel("list", "methods", "flacc")[0].split())
    assert "n_merge = 2 largest number of merges in a round; a whole number; 1 or more" in printed
    assert "num_clusters" not in printed
    assert "[model] of mlp" in umbel("list", "models", "mlp")[0]


def test_a_preset_comes_with_its_own_values(umbel: Shell) -> None:
    printed = umbel("list", "methods", "ditto")[0]
    assert "local = LocalTraining(scheme=PersonalModel)" in printed
    assert "[algorithm.local.scheme] of ditto\n  pull = 1.0" in printed
    printed = umbel("list", "methods", "fedrep")[0]
    assert "kept = ('@head',)" in printed
    assert "weights = 'equal'" in printed
    assert "head_epochs = 10" in printed
    printed = umbel("list", "methods", "fedavgm")[0]
    assert "[algorithm.averaging.rule] of fedavgm" in printed
    assert "fedadam" not in printed.partition("\n\n")[2]


def test_every_setting_is_listed_by_its_path(umbel: Shell) -> None:
    rows = json.loads(umbel("list", "settings", "--json")[0])
    paths = {row["path"] for row in rows}
    assert {"rounds", "algorithm.local.lr", "scenario.clients", "engine.device"} <= paths
    assert all(row["meaning"] for row in rows)
    (row,) = [row for row in rows if row["path"] == "algorithm.local.lr"]
    assert row["default"] == "0.1"
    assert row["range"] == "a number; more than 0, and finite"


def test_settings_are_found_by_words_of_others(umbel: Shell) -> None:
    printed, _ = umbel("list", "settings", "learning_rate")
    assert printed.split()[0] == "[algorithm.local]"
    assert "more than 0, and finite" in printed
    assert "is in no path of a setting" in umbel.refused("list", "settings", "zzz")
