"""Numbers that mean the same to everybody: groups, classes, dates, owners and pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from umbel.checks import UsageError
from umbel.data.groups import read_groups

LETTERS = "abcdefghijkl"


def one_each(groups: Any) -> umbel.Federation:
    """A client for each group, with a few examples."""
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(4, 2)).astype(np.float32), np.arange(4) % 2) for _ in groups]
    names = list(LETTERS[: len(groups)])
    return umbel.Federation.from_arrays(pairs, names=names, groups=groups, test_fraction=0.25)


@pytest.mark.parametrize("groups", [list(range(12)), [3, 7, 3], [-1, 0, -2]])
def test_numbers_of_groups_stay_what_they_are(groups: list[int], tmp_path: Path) -> None:
    federation = one_each(groups)
    federation.save(tmp_path)
    again = umbel.scenario("folder", path=str(tmp_path))
    assert again.groups is not None
    assert again.groups.tolist() == groups
    again.save(tmp_path)  # it is there already


def test_sites_agree_on_what_a_word_means(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("a,cold\nb,warm\n")
    (tmp_path / "south.csv").write_text("c,hot\nd,cold\n")
    north = read_groups(tmp_path / "north.csv", ["a", "b"], alone=True)
    south = read_groups(tmp_path / "south.csv", ["c", "d"], alone=True)
    assert north is not None
    assert south is not None
    assert north[0] == south[1]
    assert len({*north, *south}) == 3
    assert read_groups(tmp_path / "north.csv", ["a", "b"]) == ["cold", "warm"]


def test_an_interrupted_save_is_not_read_as_fewer_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = np.savez
    written: list[Any] = []

    def once(file: Any, **arrays: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(file)
        plain(file, **arrays)

    federation = one_each([0, 1, 0])
    monkeypatch.setattr(np, "savez", once)
    with pytest.raises(KeyboardInterrupt):
        federation.save(tmp_path / "some")
    with pytest.raises(UsageError, match=r"some"):
        umbel.scenario("folder", path=str(tmp_path / "some"))
    monkeypatch.setattr(np, "savez", plain)
    federation.save(tmp_path / "some")
    assert umbel.scenario("folder", path=str(tmp_path / "some")).num_clients == 3


def test_what_a_killed_save_left_is_not_read_as_fewer_clients(tmp_path: Path) -> None:
    federation = one_each([0, 1, 0])
    federation.save(tmp_path)
    max(tmp_path.glob("*.npz")).rename(tmp_path / "2.partial")
    for read in (lambda: umbel.scenario("folder", path=str(tmp_path)),
                 lambda: federation.save(tmp_path)):  # fmt: skip
        with pytest.raises(UsageError, match=r"holds 2\.partial of a save that did not end; empty"):
            read()
    for file in tmp_path.glob("*.npz"):
        file.unlink()
    federation.pick([0, 1]).save(tmp_path)
    assert umbel.scenario("folder", path=str(tmp_path)).num_clients == 2


@pytest.mark.parametrize("offset", [0.0, 5.4e6, 1.7e9])
def test_a_signal_survives_a_large_offset(offset: float, tmp_path: Path) -> None:
    steps = np.random.default_rng(0).normal(0, 0.14, (400, 1)) + offset
    np.savez(tmp_path / "a.npz", x=steps, y=np.arange(400) // 20 % 2)
    made = umbel.scenario("windows", path=str(tmp_path), length=20, stride=20)
    assert made.train.x.dtype == torch.float32
    assert float(made.train.x.std()) == pytest.approx(1, abs=0.01)
    assert len(np.unique(made.train.x.numpy())) > 290


def test_corners_of_turned_images_are_black_however_pixels_are_scaled() -> None:
    shift = {"name": "rotate", "angles": [45]}
    plain = umbel.scenario("shifted", clients=1, shift=shift)
    scaled = umbel.scenario("shifted", clients=1, shift=shift, normalise=[0.3, 0.5])
    torch.testing.assert_close(scaled.train.x, (plain.train.x - 0.3) / 0.5)
    assert float(plain.train.x[:, 0, 0, 0].abs().max()) == 0


datasets = pytest.importorskip("datasets", reason="the extra umbel[data] is not installed")


def pictures(
    folder: Path, split: str, names: list[str], owners: list[Any] | None = None, side: int = 8
) -> None:
    """Images of one shade each, whose classes have these names."""
    from PIL import Image

    labels = np.arange(12) % len(names)
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    columns: dict[str, Any] = {
        "image": [Image.fromarray(np.full((side, side), 20 * n, np.uint8)) for n in labels],
        "label": labels.tolist(),
    }
    if owners is not None:
        kinds["writer_id"], columns["writer_id"] = datasets.Value("string"), owners
    folder.mkdir(exist_ok=True)
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    made.to_parquet(str(folder / f"{split}.parquet"))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["dog", "cat", "ship"], "test_split: 'test' has other classes: 0 is 'cat' in the first"),
        (["dog", "ship"], "test_split: 'test' is not of 3 classes, as the first split: it has 2"),
    ],
)
def test_labels_of_the_test_mean_what_they_mean_in_training(
    names: list[str], said: str, tmp_path: Path
) -> None:
    pictures(tmp_path / "pets", "train", ["cat", "dog", "ship"])
    pictures(tmp_path / "pets", "test", names)
    settings: dict[str, Any] = {
        "source": "pets", "clients": 1, "shift": {"name": "rotate", "angles": [0]},
        "data_dir": tmp_path,
    }  # fmt: skip
    with pytest.raises(UsageError, match=said):
        umbel.scenario("shifted", test_split="test", **settings)
    if len(names) == 3:
        with pytest.raises(UsageError, match=r"split: 'train\+test' has other classes"):
            umbel.scenario("shifted", split="train+test", **settings)


@pytest.mark.parametrize("nobody", [None, ""])
def test_an_example_without_an_owner_is_refused(nobody: Any, tmp_path: Path) -> None:
    pictures(tmp_path / "own", "train", ["a", "b"], [nobody, "x", "y"] * 4)
    with pytest.raises(UsageError, match=r"source: row 1: writer_id: .* is not an owner"):
        umbel.scenario("femnist", source="own", clients=2, examples=(), data_dir=tmp_path)
