"""An index is no input, doubtful columns are warned of, and what each column became is told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umbel
from tests.shell import Shell
from umbel.data.tables.described import MOST_LINES, WIDTH, described
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.uses import is_index

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

ROWS = 60


def frame(**more: Any) -> Any:
    """A random outcome, sorted, so that a model may learn it by the row number."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"site": np.resize(["a", "b", "c"], ROWS), "age": rng.normal(40, 9, ROWS)})
    return table.assign(**more, outcome=np.repeat(["home", "stay"], ROWS // 2))


def told(table: Any, folder: Path, **settings: Any) -> str:
    """What each column of a table became."""
    table.to_csv(folder / "t.csv", index=False)
    settings = {"client": "site", "target": "outcome", **settings}
    federation = umbel.scenario("table", path=str(folder / "t.csv"), **settings)
    assert isinstance(federation.encoding, Encoding)
    return described(federation.encoding)


@pytest.mark.parametrize(("name", "first"), [("Unnamed: 0", 0), ("rownames", 1)])
def test_row_numbers_are_left_out_and_this_is_told(tmp_path: Path, name: str, first: int) -> None:
    table = frame(**{name: np.arange(first, ROWS + first)})
    assert f"{name}: left out (row numbers)" in told(table, tmp_path)
    assert f"{name}: left out" not in told(table, tmp_path, columns=["age", name])
    assert f"{name}: left out" not in told(table, tmp_path, numbers=[name])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("x", range(ROWS)),
        ("X", [n // 2 for n in range(ROWS)]),
        ("X", [n + 0.5 for n in range(ROWS)]),
        ("row", [n % 7 for n in range(ROWS)]),
        ("index", [100 + n % 30 for n in range(ROWS)]),
    ],
)
def test_other_columns_of_such_names_are_inputs(tmp_path: Path, name: str, values: Any) -> None:
    assert f"{name}: left out" not in told(frame(**{name: values}), tmp_path)


def test_an_index_may_lack_rows_or_begin_anew_for_each_table() -> None:
    owners = np.repeat([0, 1], 15)
    numbers = np.arange(30.0)
    assert is_index("X", numbers * 3, owners)
    assert not is_index("X", numbers[::-1] * 3, owners)
    assert is_index("index", numbers[::-1] * 3, owners)
    assert is_index("X", numbers % 15, owners)
    assert is_index("Unnamed: 0", np.random.default_rng(0).permutation(numbers % 15), owners)
    assert not is_index("age", numbers, owners)


def test_doubtful_columns_are_named_once_with_one_line_to_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = frame(
        visit=np.arange(ROWS)[::-1], one=1, patientId=np.arange(ROWS) ** 3, note=["x"] * ROWS
    )
    table["cost"] = np.arange(ROWS) ** 4  # different, and no more than that
    with caplog.at_level(logging.WARNING):
        told(table, tmp_path)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "columns 'visit', 'patientId' have another whole number in every row" in lines[0]
    assert "columns 'one', 'note' have only one value in training rows" in lines[1]
    right = 'leave_out = ["visit", "patientId", "one", "note"]'
    assert all(right in line for line in lines)
    caplog.clear()
    told(table, tmp_path, leave_out=["visit", "patientId", "one", "note"])
    told(table, tmp_path, columns=["visit", "patientId", "one", "note"])
    assert not caplog.records


def test_all_columns_are_told_in_few_lines(tmp_path: Path) -> None:
    table = frame(ward=np.resize(["A", "B"], ROWS), day="2024-01-01", region="r", index=range(ROWS))
    table.loc[3, "age"] = np.nan
    expected = """\
columns: site: client; age: number, with gaps; ward: 2 categories
  outcome: target, 2 classes; day: left out; region: attribute
  index: left out (row numbers)"""
    assert told(table, tmp_path, attributes=["region"], leave_out=["day"]) == expected
    wide = frame().join(pd.DataFrame(np.ones((ROWS, 64)), columns=[f"p{n}" for n in range(64)]))
    assert "  age, p0..p63: 65 numbers" in told(wide, tmp_path).replace("client; ", "client\n  ")
    many = {
        f"{'word' * 9}{chr(97 + n % 26)}{n}": np.resize(list(map(str, range(n))), ROWS)
        for n in range(2, 60)
    }
    lines = told(frame(**many), tmp_path, categories=list(many)).splitlines()
    assert len(lines) == MOST_LINES + 1
    assert max(map(len, lines)) <= WIDTH + 10


def test_a_data_frame_has_no_index_among_its_columns(caplog: pytest.LogCaptureFixture) -> None:
    table = frame(**{"Unnamed: 0": range(ROWS), "id": np.arange(ROWS)[::-1]})
    label = (table["outcome"] == "stay").astype(int)
    rows = table.groupby("site").indices
    columns = ["Unnamed: 0", "age", "id"]
    with caplog.at_level(logging.WARNING):
        federation = umbel.Federation.from_arrays(
            {site: (table[columns].iloc[mine], label.iloc[mine]) for site, mine in rows.items()}
        )
    assert federation.input_shape == (2,)
    assert "x: column 'Unnamed: 0' is left out, as it numbers rows" in caplog.text
    assert "x: column 'id' has another whole number in every row" in caplog.text


RUN = """
rounds = 1
[scenario]
name = "table"
path = "t.csv"
client = "site"
target = "outcome"
[model]
name = "linear"
[algorithm]
name = "fedavg"
"""


def test_commands_tell_columns_and_newcomers_lack_the_same(umbel: Shell) -> None:
    frame(ward=np.resize(["A", "B"], ROWS)).to_csv(umbel.folder / "t.csv")
    (umbel.folder / "mine.toml").write_text(RUN)
    columns = "columns: site: client; age: number; ward: 2 categories"
    printed, _ = umbel("run", "mine.toml")
    assert columns in printed
    assert "column 1: left out (no name in the header)" in printed
    frame(ward="A").to_csv(umbel.folder / "new.csv")
    for name in ("new.csv", "t.csv"):
        printed, errors = umbel("assign", "runs/mine-seed0", name)
        assert "left out" not in printed + errors


def test_first_errors_name_the_columns_and_the_line_to_write(umbel: Shell) -> None:
    frame().rename(columns={"site": "my site"}).to_csv(umbel.folder / "t.csv", index=False)
    said = umbel.refused("advise", "t.csv")
    assert "columns: 'my site', 'age', 'outcome'" in said
    assert said.endswith("write --set scenario.client=COLUMN --set scenario.target=COLUMN")
    client = ("--set", "scenario.client=mysite")
    said = umbel.refused("advise", "t.csv", *client)
    assert "lacks the column 'mysite', did you mean 'my site'?" in said
    assert said.endswith("write --set 'scenario.client=my site' --set scenario.target=COLUMN")


def test_a_table_in_another_kind_of_file_is_refused_as_a_table(umbel: Shell) -> None:
    frame().to_csv(umbel.folder / "t.tsv", sep="\t")
    said = umbel.refused("advise", "t.tsv", "--set", "scenario.client=site")
    assert "'.tsv' is not the ending .csv or .parquet: save it as one of these" in said
