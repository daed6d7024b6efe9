"""Decoding of images that Hugging Face `datasets` has read, to one array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_memory
from umbel.data.arrays import Arrays

GREYS_AND_COLOURS = {"1": "L", "P": "RGB", "PA": "RGBA"}
"""Target modes of images whose values are not brightness: binary or palette images."""

WIDE = ("I", "F")
"""Modes of images with values of 32 bits; modes with 16 bits begin with "I;"."""

OWNER = "writer_id"  # the column with the owner of an example


def decoded(dataset: Any) -> Arrays:
    """Find the image and the label column by their features, and decode all rows.

    A column `writer_id` has the owner of each example.
    """
    import datasets

    kinds = {name: type(feature) for name, feature in dataset.features.items()}
    image = next((n for n, kind in kinds.items() if kind is datasets.Image), None)
    label = next((n for n, kind in kinds.items() if kind is datasets.ClassLabel), None)
    columns = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
    check(None not in (image, label), "source", columns, "an Image and a ClassLabel column")
    owned = [OWNER] if OWNER in kinds else []
    rows = dataset.select_columns([image, label, *owned])
    mode = dataset.features[image].mode
    rows = rows.cast_column(image, datasets.Image(decode=False))
    x, y, owners = [], [], []
    modes: set[str] = set()
    for batch in rows.iter(batch_size=1000):
        x.append(_stacked(list(map(_channels_first, _pictures(batch[image], mode, modes)))))
        y.append(np.asarray(batch[label], dtype=np.float64))
        owners += [_owners(batch[column]) for column in owned]
    check(len(modes) < 2, "source: images of modes", sorted(modes), "one mode: convert the images")
    check(bool(y), "source", columns, "a data set with rows")
    labels, classes = np.concatenate(y), dataset.features[label].num_classes
    other = labels[~((labels >= 0) & (labels < classes))]
    check(not len(other), "source", other[:1].tolist(), f"labels in 0 to {classes - 1}")
    whose = np.concatenate(owners) if owners else None
    return Arrays(
        _stacked(x, np.concatenate),
        labels.astype(np.int64),
        classes,
        owners=whose,
        classes=tuple(dataset.features[label].names or ()),
    )


def _owners(values: Sequence[object]) -> NDArray[np.str_]:
    """(n,) the owner of each example. Raises `UsageError` for an example without one."""
    for value in values:
        check(value not in (None, ""), f"source: {OWNER}", value, "the owner of each example")
    return np.asarray(values, dtype=np.str_)


def _pictures(
    encoded: Sequence[Mapping[str, Any]], mode: str | None, modes: set[str]
) -> Iterator[NDArray[Any]]:
    """The pixels of images in the form that `datasets` keeps: encoded bytes, or a path.

    The modes of the pixels are added to `modes`: values of two modes may mean other colours.
    The format of the previous image is tried first: trying all formats takes three times as long.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    likely: list[str] | None = None
    for each in encoded:
        file = each["path"] if each["bytes"] is None else BytesIO(each["bytes"])
        try:
            picture = Image.open(file, formats=likely)
        except UnidentifiedImageError:
            picture = Image.open(file)
        likely = None if picture.format is None else [picture.format]
        ImageOps.exif_transpose(picture, in_place=True)
        few = picture.mode not in WIDE and not picture.mode.startswith("I;")
        expected = "a mode with 8 bits per value: convert the images"
        # a conversion would clip values
        check(few, "source: images of mode", picture.mode, expected)
        as_said = mode or GREYS_AND_COLOURS.get(picture.mode, picture.mode)
        modes.add(as_said)
        pixels = np.asarray(picture if as_said == picture.mode else picture.convert(as_said))
        check(pixels.dtype == np.uint8, "source: images of type", str(pixels.dtype), expected)
        yield pixels


def _stacked(
    pictures: Sequence[NDArray[Any]], join: Callable[..., NDArray[Any]] = np.stack
) -> NDArray[np.uint8]:
    """Arrays stacked to one; all must have the same shape."""
    check_memory(sum(picture.nbytes for picture in pictures), "source: its images")
    try:
        return join(pictures)
    except ValueError:
        shapes = sorted({picture.shape[-3:] for picture in pictures})
        raise UsageError(
            f"source: images have shapes {shapes[:3]}, but all must have the same"
        ) from None


def _channels_first(picture: NDArray[Any]) -> NDArray[np.uint8]:
    return picture[None] if picture.ndim == 2 else np.moveaxis(picture, -1, 0)
