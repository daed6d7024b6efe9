"""A model of a table that serves elsewhere: new rows go in as the run's own did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import umbel
from umbel import UsageError

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

NEW = {"age": [25.0, 75.0, np.nan], "ward": ["B", "A", "C"]}


def served(folder: Path, target: str) -> tuple[umbel.Result, umbel.RowEncoder, Path]:
    """A finished run of a table, and what `export` wrote of it."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"site": rng.choice(["north", "south"], 200)})
    rows["age"] = np.where(rng.random(200) < 0.1, np.nan, rng.integers(20, 80, 200))
    rows["ward"] = rng.choice(["A", "B"], 200)
    stays = rows["age"].fillna(50) + 20 * (rows["ward"] == "A")
    rows["outcome"] = np.where(stays > 60, "stay", "home") if target == "word" else 1000 + stays
    rows.to_csv(folder / "visits.csv", index=False)
    scenario = umbel.Experiment(
        scenario=umbel.read(_toml(folder)).scenario,
        model=umbel.read(_toml(folder)).model,
        algorithm=umbel.FedAvg(umbel.LocalTraining(epochs=2)),
    )
    result = scenario.open(umbel.Sources.default()).save(folder / "run", 8)
    result.export("torch", cluster=0, out=folder / "served" / "model.pt2")
    file = folder / "served" / "model-encoding.json"
    return result, umbel.RowEncoder(file), folder / "served" / "model.pt2"


def _toml(folder: Path) -> Path:
    scaled = "scale_target = true\n" if "number" in str(folder) else ""
    (folder / "visits.toml").write_text(
        f'[scenario]\nname = "table"\npath = "{folder / "visits.csv"}"\nclient = "site"\n'
        f'target = "outcome"\n{scaled}[model]\nname = "linear"\n[algorithm]\nname = "fedavg"\n'
    )
    return folder / "visits.toml"


def test_rows_become_inputs_and_outputs_become_names_of_classes(tmp_path: Path) -> None:
    _, rows, file = served(tmp_path, "word")
    inputs = rows.encode(pd.DataFrame(NEW))
    assert inputs.shape == (3, len(rows.features))
    assert inputs.dtype == np.float32
    outputs = torch.export.load(file).module()(torch.from_numpy(inputs))
    answers = rows.answers(outputs.detach())
    assert rows.classes == ("home", "stay")
    assert answers[:2] == ["home", "stay"]
    assert rows.answers([[-1.0], [1.0]]) == ["home", "stay"]  # of a network with one output
    pd.DataFrame(NEW).to_csv(tmp_path / "new.csv", index=False)
    assert np.array_equal(rows.encode(tmp_path / "new.csv"), inputs)


def test_numbers_are_answered_in_their_own_units(tmp_path: Path) -> None:
    folder = tmp_path / "number"
    folder.mkdir()
    _, rows, file = served(folder, "number")
    outputs = torch.export.load(file).module()(torch.from_numpy(rows.encode(pd.DataFrame(NEW))))
    low, high, _ = rows.answers(outputs.detach())
    assert rows.classes is None
    assert abs(float(low) - 1025) < 10
    assert abs(float(high) - 1095) < 10


def test_what_lacks_a_column_or_is_no_encoding_is_refused(tmp_path: Path) -> None:
    _, rows, _ = served(tmp_path, "word")
    with pytest.raises(UsageError, match="lacks the column 'ward', which the run's own table has"):
        rows.encode(pd.DataFrame({"age": [25.0]}))
    with pytest.raises(UsageError, match="is not a file, or a pandas table"):
        rows.encode([[25.0, 1.0]])
    with pytest.raises(UsageError, match="a file that `umbel export` wrote"):
        umbel.RowEncoder(tmp_path / "none.json")
