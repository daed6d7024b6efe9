"""Newcomers of a table are encoded as the run was, by what its folder keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import umbel
from umbel.checks import UsageError
from umbel.cli import app
from umbel.data.tables.encoding import Encoding
from umbel.folder import encoding_file

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

SITES = 14


def visits() -> Any:
    """Odd sites lie elsewhere, and call stay what the others call home."""
    rng = np.random.default_rng(0)
    tables = []
    for site in range(SITES):
        x = rng.normal(np.array([6 * (site % 2), 0]), size=(60, 2))
        stays = (x[:, 1] > 0) ^ bool(site % 2)
        columns = {"site": f"s{site:02}", "a": x[:, 0], "b": x[:, 1]}
        tables.append(pd.DataFrame({**columns, "out": np.where(stays, "stay", "home")}))
    return pd.concat(tables)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of the first 12 sites, and a file of the last, which is an odd one."""
    folder = tmp_path_factory.mktemp("visits")
    table = visits()
    table[table["site"] < "s12"].to_csv(folder / "old.csv", index=False)
    table[table["site"] == "s13"].to_csv(folder / "new.csv", index=False)
    (folder / "visits.toml").write_text(
        f'rounds = 5\n[scenario]\nname = "table"\npath = "{folder / "old.csv"}"\n'
        'client = "site"\ntarget = "out"\n[model]\nname = "linear"\n'
        f'[algorithm]\nname = "fixed-clusters"\nclusters = [{", ".join(["0, 1"] * 6)}]\n'
    )
    call("run", folder / "visits.toml", "--runs-dir", folder)
    return folder / "visits-seed0", folder / "new.csv"


def call(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def damaged(run: Path, folder: Path, text: str | None) -> umbel.Result:
    """A copy of the run, in which the file is another or none."""
    for file in run.rglob("*.*"):
        place = folder / file.relative_to(run)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file():
            place.write_bytes(file.read_bytes())
    (folder / encoding_file.FILE).unlink()
    if text is not None:
        (folder / encoding_file.FILE).write_text(text)
    return umbel.load(folder)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_newcomer_alone_in_a_file_joins_the_sites_that_are_like_it(
    made: tuple[Path, Path], tmp_path: Path, ending: str
) -> None:
    run, new = made
    file = tmp_path / f"new.{ending}"
    table = pd.read_csv(new)
    table.to_csv(file, index=False) if ending == "csv" else table.to_parquet(file)
    assert json.loads(call("assign", run, file, "--json"))[0]["cluster"] == 1
    unlabelled = table.drop(columns="out")
    unlabelled.to_csv(file, index=False) if ending == "csv" else unlabelled.to_parquet(file)
    assert json.loads(call("assign", run, file, "--json", "--unlabelled"))[0]["cluster"] == 1
    with pytest.raises(UsageError, match="lacks the column 'out', which the run's own table has"):
        umbel.load(run).assign(file)


def test_a_federation_that_was_scaled_by_itself_is_refused(made: tuple[Path, Path]) -> None:
    run, new = made
    result = umbel.load(run)
    by_itself = umbel.scenario("table", path=str(new), client="site", target="out")
    with pytest.raises(UsageError, match="was scaled, and its classes numbered, by its own rows"):
        result.assign(by_itself)
    of_the_run = umbel.scenario(
        "table", path=str(new.with_name("old.csv")), client="site", target="out"
    )
    assert result.assign(of_the_run.pick([1, 2])).clusters == {"s01": 1, "s02": 0}
    assert result.assign(new).clusters == {"s13": 1}


def test_arrays_are_taken_as_they_are(made: tuple[Path, Path], tmp_path: Path) -> None:
    run, new = made
    table = pd.read_csv(new)
    encoding = encoding_file.read(run)
    assert isinstance(encoding, Encoding)
    x = [(table[c.name] - c.mean) / c.deviation for c in encoding.columns]
    np.savez(tmp_path / "s13.npz", x=np.stack(x, 1), y=(table["out"] == "stay").astype(int))
    found = umbel.load(run).assign(tmp_path / "s13.npz")
    expected = umbel.load(run).assign(new).scores
    assert found.scores.flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-3)


def test_what_is_lost_or_damaged_says_how_it_is_made_again(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    run, new = made
    with pytest.raises(UsageError, match=r"lacks encoding.json: the run is not of a table"):
        damaged(run, tmp_path / "older", None).assign(new)
    text = (run / encoding_file.FILE).read_text()
    for changed in (text.replace("home", "hole"), "{}"):
        result = damaged(run, tmp_path / "damaged", changed)
        with pytest.raises(UsageError, match=r"encoding.json: damaged: .* writes them again"):
            result.assign(new)
    (result.folder.file(encoding_file.FILE)).unlink()
    (result.folder.file("clusters.csv")).unlink()
    call("resume", result.folder.path)
    assert umbel.load(result.folder.path).assign(new).clusters == {"s13": 1}


def test_an_exported_model_has_its_encoding_beside_it(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    run, _ = made
    done = umbel.load(run).export("safetensors", cluster=1, out=tmp_path / "odd.safetensors")
    assert done.encoding == tmp_path / "odd-encoding.json"
    table = json.loads(done.encoding.read_text())
    assert table["features"] == ["a", "b"]
    assert table["target"]["classes"] == ["home", "stay"]
    rows = umbel.RowEncoder(done.encoding)
    assert (rows.features, rows.classes) == (("a", "b"), ("home", "stay"))
