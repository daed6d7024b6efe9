"""FEMNIST by writer: from the hub's file or LEAF's, and who is chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from umbel.checks import UsageError
from umbel.data.scenarios.natural import Natural
from umbel.data.sources import Sources

SIZES = {"f0000_14": 12, "f0001_41": 30, "f0002_01": 7, "f0003_42": 20, "f0004_11": 25}

SMALL = Natural(clients=2, examples=(10, 25), test_fraction=0.2)


def pictures(writer: str) -> tuple[np.ndarray, np.ndarray]:
    """What a writer wrote: the first pixels say who, the labels which."""
    number = list(SIZES).index(writer)
    x = np.random.default_rng(number).integers(0, 256, (SIZES[writer], 28, 28), dtype=np.uint8)
    x[:, 0, 0] = number
    return x, (np.arange(SIZES[writer]) + number) % 62


def write_parquet(folder: Path) -> Sources:
    datasets = pytest.importorskip("datasets", reason="the extra umbel[data] is not installed")
    from PIL import Image

    features = datasets.Features(
        {
            "image": datasets.Image(),
            "writer_id": datasets.Value("string"),
            "hsf_id": datasets.Value("int64"),
            "character": datasets.ClassLabel(num_classes=62),
        }
    )
    rows = [
        {"image": Image.fromarray(image), "writer_id": writer, "hsf_id": 0, "character": int(label)}
        for writer in SIZES
        for image, label in zip(*pictures(writer), strict=True)
    ]
    rows = rows[::2] + rows[1::2]  # a writer's need not stand together
    (folder / "femnist").mkdir()
    table = datasets.Dataset.from_list(rows, features=features)
    table.to_parquet(folder / "femnist" / "train.parquet")
    return Sources(folder, folder / "cache")


def write_leaf(
    folder: Path, change: Callable[[dict[str, object]], object] | None = None
) -> Sources:
    (folder / "femnist").mkdir(exist_ok=True)
    for part, writers in enumerate((list(SIZES)[:3], list(SIZES)[3:])):
        data = {}
        for writer in writers:
            x, y = pictures(writer)
            data[writer] = {"x": (x.reshape(len(x), -1) / 255).tolist(), "y": y.tolist()}
        sizes = [SIZES[writer] for writer in writers]
        content: dict[str, object] = {"users": writers, "num_samples": sizes, "user_data": data}
        if change and part:
            change(content)
        (folder / "femnist" / f"all_data_{part}.json").write_text(json.dumps(content))
    return Sources(folder, folder / "cache")


@pytest.mark.parametrize("write", [write_parquet, write_leaf])
def test_a_client_is_a_writer_with_what_it_wrote(
    write: Callable[[Path], Sources], tmp_path: Path
) -> None:
    sources = write(tmp_path)
    scenario = replace(SMALL, clients=3)
    federation = scenario.build(0, sources)
    assert set(federation.names) == {"f0000_14", "f0003_42", "f0004_11"}
    assert federation.groups is None
    assert federation.num_classes == 62
    for client, name in enumerate(federation.names):
        (x, y), (x_test, y_test) = federation.train.of(client), federation.test.of(client)
        assert len(x_test) == round(0.2 * SIZES[name])
        images, labels = pictures(name)
        expected = {i.tobytes(): int(label) for i, label in zip(images, labels, strict=True)}
        found = torch.cat([x, x_test]).mul(255).round().to(torch.uint8).numpy()[:, 0]
        both = torch.cat([y, y_test]).tolist()
        assert {i.tobytes(): label for i, label in zip(found, both, strict=True)} == expected
    again = scenario.build(0, Sources(tmp_path, tmp_path / "cache"))  # from the cache
    assert again.names == federation.names
    assert torch.equal(again.train.x, federation.train.x)


def test_writers_with_a_fitting_number_are_drawn_by_the_seed(tmp_path: Path) -> None:
    sources = write_leaf(tmp_path)
    drawn = {SMALL.build(seed, sources).names for seed in range(8)}
    assert len(drawn) > 2
    assert {name for names in drawn for name in names} == {"f0000_14", "f0003_42", "f0004_11"}
    everyone = replace(SMALL, clients=5, examples=()).build(0, sources)
    assert set(everyone.names) == set(SIZES)
    with pytest.raises(UsageError, match="4 is not at most 3, the clients that have 10 to 25 ex"):
        replace(SMALL, clients=4).build(0, sources)


def test_without_the_data_or_without_writers_the_error_says_so(
    tmp_path: Path, sources: Sources
) -> None:
    expected = r"'femnist' is not in the .* no file .*train\.parquet, and no \.json files of LEAF"
    with pytest.raises(UsageError, match=expected):
        SMALL.build(0, Sources(tmp_path, tmp_path))
    with pytest.raises(UsageError, match="source: 'digits' is not a data set with an owner"):
        replace(SMALL, source="digits").build(0, sources)
