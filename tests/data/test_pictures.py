"""Pictures of a data set, whatever their formats, are what the library that keeps them reads."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")

from PIL import Image  # noqa: E402

from umbel.checks import UsageError  # noqa: E402
from umbel.data.pictures import decoded  # noqa: E402


def encoded(pixels: np.ndarray, kind: str, **more: object) -> dict[str, object]:
    written = BytesIO()
    Image.fromarray(pixels).save(written, kind, **more)
    return {"bytes": written.getvalue(), "path": None}


def test_pictures_of_several_formats_are_read_as_datasets_reads_them() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 5, 3), dtype=np.uint8)
    turned = Image.Exif()
    turned[0x0112] = 6  # by a quarter, as cameras do
    kinds: list[tuple[str, dict[str, object]]] = [
        ("PNG", {}),
        ("PNG", {"exif": turned}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("JPEG", {"exif": turned}),
        ("PNG", {}),
    ]
    rows = {
        "image": [encoded(p, kind, **more) for p, (kind, more) in zip(pixels, kinds, strict=True)],
        "label": [0, 1, 2, 0, 1, 2],
    }
    labels = datasets.ClassLabel(names=["a", "b", "c"])
    for mode in (None, "L"):
        features = datasets.Features(image=datasets.Image(mode=mode), label=labels)
        dataset = datasets.Dataset.from_dict(rows, features)
        found = decoded(dataset)
        expected = [np.asarray(picture) for picture in dataset["image"]]
        expected = [p[None] if p.ndim == 2 else np.moveaxis(p, -1, 0) for p in expected]
        np.testing.assert_array_equal(found.x, np.stack(expected))
        assert found.y.tolist() == rows["label"]


def of_greys(mode: str, wanted: str | None = None) -> np.ndarray:
    """A dark picture and a bright one, written in a mode of Pillow, as they are read."""
    images: list[dict[str, bytes | None]] = []
    for brightness in (60, 200):
        picture = Image.fromarray(np.full((4, 4), brightness, dtype=np.uint8)).convert(mode)
        written = BytesIO()
        picture.save(written, "TIFF" if mode in "IF" else "PNG")
        images.append({"bytes": written.getvalue(), "path": None})
    labels = datasets.ClassLabel(names=["dark", "bright"])
    features = datasets.Features(image=datasets.Image(mode=wanted), label=labels)
    rows = {"image": images, "label": [0, 1]}
    return decoded(datasets.Dataset.from_dict(rows, features)).x


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("P", 3), ("LA", 2)])
def test_greys_are_as_bright_whatever_mode_they_are_written_in(mode: str, channels: int) -> None:
    pictures = of_greys(mode)
    assert pictures.shape == (2, channels, 4, 4)
    assert pictures[:, 0].reshape(2, -1).mean(1).tolist() == [60.0, 200.0]


def test_black_and_white_is_the_darkest_and_the_brightest() -> None:
    assert set(np.unique(of_greys("1"))) == {0, 255}


def test_pictures_of_several_colour_spaces_are_refused() -> None:
    colours = Image.fromarray(np.full((4, 4, 3), 200, dtype=np.uint8))
    images: list[dict[str, bytes | None]] = []
    for picture in (colours, colours.convert("LAB")):
        written = BytesIO()
        picture.save(written, "TIFF")
        images.append({"bytes": written.getvalue(), "path": None})
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["a"]))
    rows = datasets.Dataset.from_dict({"image": images, "label": [0, 0]}, features)
    with pytest.raises(UsageError, match=r"images of modes: \['LAB', 'RGB'\] is not one mode"):
        decoded(rows)
