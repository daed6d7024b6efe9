"""Tables of plain values, as programs read them."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from umbel.checks import UsageError
from umbel.result.table import Table

AWKWARD = Table.of(
    [
        {"name": 'a "quoted", name', "value": 0.1, "known": True},
        {"name": "two\nlines", "value": float("nan"), "list": [64, 32]},
    ],
    ["value"],
)


def test_all_rows_have_all_columns_those_asked_for_first() -> None:
    assert AWKWARD.columns == ("value", "name", "known", "list")
    assert AWKWARD.rows[0]["list"] is None
    assert AWKWARD.column("known") == [True, None]
    assert len(AWKWARD) == len(list(AWKWARD)) == 2
    with pytest.raises(UsageError, match="column: 'nam' is not one of value, name"):
        AWKWARD.column("nam")


def test_json_has_neither_nan_nor_infinity() -> None:
    infinite = Table.of([{"value": float("inf")}])
    assert json.loads(infinite.to_json(), parse_constant=pytest.fail) == [{"value": None}]
    assert json.loads(AWKWARD.to_json()) == list(AWKWARD.rows)
    assert json.loads(Table.of([]).to_json()) == []


def test_csv_is_read_back_by_the_csv_module() -> None:
    first, second = csv.DictReader(io.StringIO(AWKWARD.to_csv()))
    assert first == {"value": "0.1", "name": 'a "quoted", name', "known": "true", "list": ""}
    assert second == {"value": "", "name": "two\nlines", "known": "", "list": "[64, 32]"}


def test_pandas_reads_it_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    frame = AWKWARD.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(AWKWARD.columns)
    assert frame["value"].isna().tolist() == [False, True]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"to_pandas: needs an extra: pip install"):
        AWKWARD.to_pandas()
