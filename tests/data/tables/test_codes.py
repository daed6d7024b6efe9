"""Categories that are numbers or bools stay the same however a file writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umbel.data.scenarios.table import Table
from umbel.data.sources import Sources
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.newcomers import read_newcomers

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

CODES = [1, 2, 3, 1, 2, 3, 1, 2]


def table(codes: list[Any]) -> Any:
    return pd.DataFrame({"code": codes, "answer": ["no", "yes"] * (len(codes) // 2)})


def written(file: Path, codes: list[Any]) -> Path:
    file.parent.mkdir(exist_ok=True)
    one = table(codes)
    one.to_csv(file, index=False) if file.suffix == ".csv" else one.to_parquet(file)
    return file


def learnt(folder: Path) -> Encoding:
    scenario = Table(path=str(folder), target="answer", categories=("code",))
    encoding = scenario.build(0, Sources(None, Path("nowhere"))).encoding
    assert isinstance(encoding, Encoding)
    return encoding


def features(file: Path, encoding: Encoding) -> list[list[float]]:
    return read_newcomers(file, encoding, labelled=False).train.x.tolist()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_gap_in_one_file_makes_no_other_codes(tmp_path: Path, ending: str) -> None:
    written(tmp_path / f"all/a{ending}", CODES)
    written(tmp_path / f"all/b{ending}", [np.nan, *CODES[1:]])
    found = learnt(tmp_path / "all")
    assert found.features == ("code is 1", "code is 2", "code is 3", "code is missing")


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("kind", [int, float, str])
def test_newcomers_codes_are_the_runs_of_whatever_type(
    tmp_path: Path, ending: str, kind: type
) -> None:
    for name in ("a", "b"):
        written(tmp_path / f"all/{name}{ending}", CODES)
    encoding = learnt(tmp_path / "all")
    found = features(written(tmp_path / f"new{ending}", [kind(code) for code in CODES]), encoding)
    assert found == [[float(code == known) for known in (1, 2, 3)] for code in CODES]


def test_texts_that_are_no_numbers_stay_as_they_are(tmp_path: Path) -> None:
    versions = ["1.0", "1.10", "1.1", "v1.0"]
    for name in ("a", "b"):
        written(tmp_path / f"all/{name}.csv", versions)
    encoding = learnt(tmp_path / "all")
    assert set(encoding.features) == {f"code is {version}" for version in versions}
    newcomers = features(written(tmp_path / "new.csv", versions), encoding)
    assert np.sum(newcomers, axis=1).tolist() == [1.0] * 4


def test_it_is_said_where_a_run_knows_no_category_of_a_column(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        written(tmp_path / f"all/{name}.csv", [True, False, False, True])
    encoding = learnt(tmp_path / "all")
    assert not np.any(features(written(tmp_path / "new.csv", [0, 1]), encoding))
    said = "column 'code': none of its categories, such as '0', is one of the run's, such as"
    assert f"{said} 'False', 'True'" in caplog.text
