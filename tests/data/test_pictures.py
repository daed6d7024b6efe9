"""Pictures of a data set, whatever their formats, are what the library that keeps them reads."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")

from PIL import Image  # noqa: E402

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
