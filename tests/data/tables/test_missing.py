"""Messages about missing values name the words that were read as such, and how to keep them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umbel
from umbel.checks import UsageError
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.newcomers import read_newcomers

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

ROWS = 60


def frame(**more: Any) -> Any:
    rng = np.random.default_rng(0)
    table = {
        "site": np.resize(["NL", "BE", "DE"], ROWS),
        "age": rng.normal(40, 9, ROWS).round(1),
        "outcome": rng.choice(["mild", "severe"], ROWS),
    }
    return pd.DataFrame(table | more)


def read(table: Any, folder: Path, **settings: Any) -> umbel.Federation:
    table.to_csv(folder / "t.csv", index=False)
    named = {"client": "site", "target": "outcome", **settings}
    return umbel.scenario("table", path=str(folder / "t.csv"), **named)


def refused(table: Any, folder: Path, **settings: Any) -> str:
    with pytest.raises(UsageError) as refusal:
        read(table, folder, **settings)
    return str(refusal.value).removeprefix(f"{folder / 't.csv'}: ")


OUTCOMES = np.resize(["None", "mild", "severe"], ROWS)
SITES = np.resize(["NA", "BE", "DE"], ROWS)


def test_a_class_is_kept_by_the_line_that_the_message_gives(tmp_path: Path) -> None:
    said = refused(frame(outcome=OUTCOMES), tmp_path)
    assert said == (
        "row 1, column 'outcome': is missing: 'None' in 20 rows is read as missing; if it is a "
        'class, write missing = [""] (--set \'scenario.missing=[""]\'); drop_unlabelled = true '
        "leaves out 20 of 60 rows"
    )
    assert read(frame(outcome=OUTCOMES), tmp_path, missing=[""]).num_classes == 3


def test_a_single_class_is_warned_of_with_what_was_read_as_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = frame(outcome=np.resize(["None", "mild"], ROWS))
    assert read(table, tmp_path, drop_unlabelled=True).num_classes == 1
    said = "t.csv: target 'outcome' has only one class, from which no model learns: 'None' in 30"
    assert said in caplog.text
    caplog.clear()
    assert read(table, tmp_path, missing=[""]).num_classes == 2
    assert not caplog.text
    read(frame(outcome="mild"), tmp_path)
    assert caplog.messages[0].endswith("has only one class, from which no model learns")


def test_a_site_is_kept_by_the_line_that_the_message_gives(tmp_path: Path) -> None:
    said = refused(frame(site=SITES), tmp_path)
    assert said.startswith("row 1, column 'site': names no client: 'NA' in 20 rows is read as mis")
    assert 'if it is a client\'s name, write missing = [""]' in said
    assert read(frame(site=SITES), tmp_path, missing=[""]).names == ("BE", "DE", "NA")


def test_an_attribute_that_is_read_as_missing_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = frame(continent=np.resize(["NA", "EU", "EU"], ROWS))
    with caplog.at_level(logging.WARNING):
        assert read(table, tmp_path, attributes=["continent"]).attributes["continent"][2] == ""
    assert "attribute 'continent': 'NA' in 20 rows is read as missing; if it" in caplog.text
    kept = read(table, tmp_path, attributes=["continent"], missing=[""])
    assert kept.attributes["continent"] == ("EU", "EU", "NA")


def test_a_part_and_a_time_that_are_missing_are_named(tmp_path: Path) -> None:
    part = np.resize(["train", "test", "NA"], ROWS)
    said = refused(frame(part=part), tmp_path, split="column", split_column="part")
    assert said == (
        "row 3, column 'part': is not train, validation or test, as each row needs ('NA' in 20 "
        "rows is read as missing)"
    )
    day = np.resize(["2024-01-01", "NA"], ROWS)
    said = refused(frame(day=day), tmp_path, split="time", time=["day"])
    assert said.startswith("row 2, column 'day': the time is missing ('NA' in 30 rows is read as m")


def test_a_newcomer_of_a_class_that_is_read_as_missing_is_refused_with_it(tmp_path: Path) -> None:
    federation = read(frame(), tmp_path)
    assert isinstance(federation.encoding, Encoding)
    frame(outcome=OUTCOMES).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(UsageError, match="is missing: 'None' in 20 rows is read as missing"):
        read_newcomers(tmp_path / "new.csv", federation.encoding, labelled=True)
