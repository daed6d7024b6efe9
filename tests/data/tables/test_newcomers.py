"""Rows of newcomers become what they would have become among the clients of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from umbel.checks import UsageError
from umbel.data.scenarios.table import Table
from umbel.data.sources import Sources
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.newcomers import read_newcomers

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

ROWS = 90


def frame() -> Any:
    """Three sites; ages have gaps, one ward is of one site only, the last rows are for the test."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "site": np.repeat(["north", "south", "west"], ROWS // 3),
            "age": rng.integers(20, 80, ROWS).astype(float),
            "day": pd.date_range("2013-01-01", periods=ROWS).strftime("%Y-%m-%d"),
            "ward": rng.choice(["A", "B", "C"], ROWS),
            "note": rng.choice(["fell at home", "short of breath", "cut a hand"], ROWS),
            "cost": rng.gamma(2, 300, ROWS),
            "outcome": rng.choice(["home", "stay"], ROWS),
            "part": np.tile(["train"] * 20 + ["test"] * 10, 3),
        }
    )
    table.loc[3, "age"] = np.nan
    table.loc[5, "ward"] = None
    table.loc[table["site"] == "west", "ward"] = "W"
    return table


def scenario(file: Path, **settings: Any) -> Table:
    named: dict[str, Any] = {"client": "site", "target": "outcome", "leave_out": ("cost",)}
    named |= {"split": "column", "split_column": "part", "texts": ("note",), "text_features": 8}
    return Table(path=str(file), **{**named, **settings})


def written(file: Path, table: Any) -> Path:
    table.to_csv(file, index=False) if file.suffix == ".csv" else table.to_parquet(file)
    return file


def learnt(scenario: Table) -> tuple[umbel.Federation, Encoding]:
    """A federation, and its encoding as a file brings it back."""
    federation = scenario.build(0, Sources(None, Path("nowhere")))
    assert federation.encoding is not None
    return federation, Encoding.from_plain(json.loads(json.dumps(federation.encoding.plain())))


OF_COST = {"target": "cost", "leave_out": ("outcome",)}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scale": False, "statistics": "federated", "least_clients": 2},
        {**OF_COST, "scale_target": True},
        {**OF_COST, "missing": ("", "NA", "A")},
    ],
)
def test_the_rows_of_the_run_become_what_they_were(
    tmp_path: Path, ending: str, settings: dict[str, Any]
) -> None:
    file = written(
        tmp_path / f"visits{ending}", frame().assign(day=lambda t: pd.to_datetime(t.day))
    )
    federation, encoding = learnt(scenario(file, **settings))
    found = read_newcomers(file, encoding, labelled=True)
    assert found.names == federation.names
    for client in range(3):
        parts = [split.of(client) for split in (federation.train, federation.test)]
        for place, values in enumerate(found.train.of(client)):
            torch.testing.assert_close(values, torch.cat([part[place] for part in parts]))
    assert len(encoding.features) == federation.input_shape[0]
    assert encoding.is_like(encoding)
    assert encoding == federation.encoding


def test_a_newcomer_is_encoded_alone_as_it_is_among_others(tmp_path: Path) -> None:
    _, encoding = learnt(scenario(written(tmp_path / "visits.csv", frame())))
    new = frame().assign(age=lambda t: t["age"] + 100 * (t["site"] == "west"), outcome="stay")
    together = read_newcomers(written(tmp_path / "new.csv", new), encoding, labelled=True)
    west = new[new["site"] == "west"].drop(columns=["part", "cost"])
    alone = read_newcomers(written(tmp_path / "west.csv", west), encoding, labelled=True)
    assert torch.equal(alone.train.x, together.train.of(2)[0])
    assert float(alone.train.x[:, 0].mean()) > 3  # older than the run's clients, by their scale
    assert alone.train.y.tolist() == [1] * 30
    assert alone.num_classes == 2


def test_an_unknown_category_has_no_feature_and_labels_may_be_lacking(tmp_path: Path) -> None:
    _, encoding = learnt(scenario(written(tmp_path / "visits.csv", frame())))
    new = frame().assign(ward="other").drop(columns=["outcome", "part", "cost"])
    found = read_newcomers(written(tmp_path / "new.csv", new), encoding, labelled=False)
    wards = [n for n, name in enumerate(encoding.features) if name.startswith("ward is ")]
    assert not found.train.x[:, wards].any()
    assert not found.train.y.any()


def test_tables_that_do_not_fit_are_refused_by_column_and_row(tmp_path: Path) -> None:
    _, encoding = learnt(scenario(written(tmp_path / "visits.csv", frame())))

    def refused(table: Any) -> str:
        file = written(tmp_path / "new.csv", table)
        with pytest.raises(UsageError) as refusal:
            read_newcomers(file, encoding, labelled=True)
        return str(refusal.value).removeprefix(f"{file}: ")

    lacking = refused(frame().drop(columns=["age", "note", "site"]))
    assert lacking == "lacks the columns 'age', 'note', 'site', which the run's own table has"
    strange = frame()
    strange.loc[7, "outcome"] = "secret"
    message = "row 8, column 'outcome': is none of the 2 classes of the run"
    assert refused(strange) == message
    strange.loc[7, "outcome"] = None
    assert refused(strange) == "row 8, column 'outcome': is missing"
    assert refused(frame().assign(age="old")) == "row 1, column 'age': is not a number"
    assert refused(frame().assign(age=1e300)).startswith("row 1, column 'age': is too large for")


def test_encodings_differ_by_what_they_were_learnt_from(tmp_path: Path) -> None:
    file = written(tmp_path / "visits.csv", frame())
    _, encoding = learnt(scenario(file))
    _, pooled_otherwise = learnt(scenario(file, statistics="federated"))
    assert encoding.is_like(pooled_otherwise)
    _, fewer = learnt(scenario(written(tmp_path / "fewer.csv", frame()[:60])))
    assert not encoding.is_like(fewer)
    older = written(tmp_path / "older.csv", frame().assign(age=frame()["age"] + 1))
    assert not encoding.is_like(learnt(scenario(older))[1])
