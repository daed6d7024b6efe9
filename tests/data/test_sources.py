from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from umbel.checks import UsageError
from umbel.data.sources import DATA_DIR_VARIABLE, HUB, Sources

datasets = pytest.importorskip("datasets", reason="the extra umbel[data] is not installed")


def write_parquet(
    folder: Path, pictures: np.ndarray, labels: list[int], split: str = "train"
) -> None:
    """A data set as the hub keeps them: an image and a class label column, and one more."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    features = datasets.Features(
        {
            "writer": datasets.Value("string"),
            "img": datasets.Image(),
            "fine_label": datasets.ClassLabel(names=["a", "b", "c"]),
        }
    )
    rows = {
        "writer": ["w"] * len(labels),
        "img": [Image.fromarray(picture) for picture in pictures],
        "fine_label": labels,
    }
    datasets.Dataset.from_dict(rows, features=features).to_parquet(folder / f"{split}.parquet")


def test_digits_need_neither_disk_nor_net(tmp_path: Path) -> None:
    arrays = Sources(None, tmp_path / "nothing").load("digits")
    assert arrays.x.shape == (1797, 1, 8, 8)
    assert arrays.num_classes == 10
    images = arrays.images(np.array([0, 5]))
    assert images.min() == 0.0
    assert images.max() == 1.0
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3)])
def test_a_parquet_file_is_decoded_exactly_and_once(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    write_parquet(tmp_path / "data" / "mine", pictures, [2, 0, 1, 1])
    sources = Sources(tmp_path / "data", tmp_path / "cache")
    arrays = sources.load("mine")
    expected = pictures[:, None] if len(shape) == 2 else np.moveaxis(pictures, -1, 1)
    assert np.array_equal(arrays.x, expected)
    assert arrays.y.tolist() == [2, 0, 1, 1]
    assert arrays.num_classes == 3
    assert arrays.images(np.array([1])).max() <= 1.0
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.npy")}
    assert np.array_equal(sources.load("mine").x, expected)
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.npy")}
    assert before == after
    leftovers = [f for f in (tmp_path / "cache").iterdir() if f.is_dir()]
    assert len(leftovers) == 1


def test_splits_are_put_together_with_a_plus(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (5, 4, 4), dtype=np.uint8)
    write_parquet(tmp_path / "mine", pictures[:3], [2, 0, 1], "train")
    write_parquet(tmp_path / "mine", pictures[3:], [1, 1], "test")
    write_parquet(tmp_path / "mine", pictures[:1, :2], [0], "small")
    sources = Sources(tmp_path, tmp_path / "cache")
    both = sources.load("mine", "train+test")
    assert np.array_equal(both.x[:, 0], pictures)
    assert both.y.tolist() == [2, 0, 1, 1, 1]
    assert both.num_classes == 3
    with pytest.raises(UsageError, match=r"split: 'test\+test' is not made of different splits"):
        sources.load("mine", "test+test")
    with pytest.raises(UsageError, match=r"'train\+small' is not of images of shape \(1, 4, 4\)"):
        sources.load("mine", "train+small")
    with pytest.raises(
        UsageError, match="split: 'test' is not \"train\", the only split of digits"
    ):
        sources.load("digits", "train+test")


def test_a_file_that_changed_is_decoded_again(tmp_path: Path) -> None:
    pictures = np.zeros((2, 3, 3), dtype=np.uint8)
    write_parquet(tmp_path / "mine", pictures, [0, 0])
    sources = Sources(tmp_path, tmp_path / "cache")
    sources.load("mine")
    (tmp_path / "mine" / "train.parquet").unlink()
    (tmp_path / "mine").rmdir()
    write_parquet(tmp_path / "mine", pictures + 9, [1, 1])
    assert sources.load("mine").x.max() == 9


def test_the_data_directory_is_an_argument_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    assert Sources.default().data_dir is None
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path))
    assert Sources.default().data_dir == tmp_path
    with pytest.raises(UsageError, match=r"--data-dir: .*gone' is not an existing directory"):
        Sources.default(tmp_path / "gone")
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "away"))
    with pytest.raises(UsageError, match=f"{DATA_DIR_VARIABLE}: .*away' is not an existing"):
        Sources.default()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    sources = Sources(tmp_path, tmp_path / "cache")
    with pytest.raises(UsageError, match=r"'mnist' is not in the .* no file .*train\.parquet"):
        sources.load("mnist")
    with pytest.raises(UsageError, match=f"'mine' is not any of .* set {DATA_DIR_VARIABLE}"):
        Sources(None, tmp_path).load("mine")


def test_a_file_without_images_or_labels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    table = datasets.Dataset.from_dict({"x": [1, 2]})
    table.to_parquet(tmp_path / "mine" / "train.parquet")
    with pytest.raises(UsageError, match=r"x \(Value\).* is not an Image and a ClassLabel column"):
        Sources(tmp_path, tmp_path / "cache").load("mine")


@pytest.mark.parametrize(
    ("picture", "label", "said"),
    [
        (None, 0, "the picture is missing"),
        ("half", 0, "the picture can't be decoded: .*truncated"),
        ("whole", None, "the label is missing"),
    ],
)
def test_a_picture_or_label_that_is_missing_or_damaged_is_named_with_its_row(
    picture: bytes | str | None, label: int | None, said: str, tmp_path: Path
) -> None:
    written = BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32), np.uint8)).save(
        written, "PNG"
    )
    whole = written.getvalue()
    kinds: dict[Any, bytes] = {"half": whole[: len(whole) // 2], "whole": whole}
    bad = None if picture is None else {"bytes": kinds.get(picture, picture), "path": None}
    good = {"bytes": whole, "path": None}
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["a"]))
    rows = {"image": [good] * 1200 + [bad], "label": [0] * 1200 + [label]}
    (tmp_path / "mine").mkdir()
    made = datasets.Dataset.from_dict(rows, features=features)
    made.to_parquet(tmp_path / "mine" / "train.parquet")
    with pytest.raises(UsageError, match=rf"train\.parquet: source: row 1201: {said}"):
        Sources(tmp_path, tmp_path / "cache").load("mine")


def test_a_hub_out_of_reach_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    with pytest.raises(UsageError, match=r"'ylecun/mnist' can't be read from the Hugging Face hub"):
        Sources(None, tmp_path).load("mnist")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "shape", "num_classes"),
    [
        ("mnist", (1, 28, 28), 10),
        ("fashion_mnist", (1, 28, 28), 10),
        ("cifar10", (3, 32, 32), 10),
        ("emnist", (1, 28, 28), 62),
    ],
)
def test_the_real_data_sets_have_their_known_shapes(
    real_data: Sources, name: str, shape: tuple[int, ...], num_classes: int
) -> None:
    assert name in HUB
    arrays = real_data.load(name, "test")
    assert arrays.x.shape == (10_000, *shape)
    assert arrays.x.dtype == np.uint8
    assert arrays.num_classes == num_classes
    assert set(arrays.y.tolist()) == set(range(num_classes))
