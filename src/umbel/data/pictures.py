"""Decoding of images that Hugging Face `datasets` has read, to one array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_memory, first_line
from umbel.data.arrays import Arrays

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

GREYS_AND_COLOURS = {"1": "L", "P": "RGB", "PA": "RGBA"}
"""Target modes of images whose values are not brightness: binary or palette images."""

WIDE = ("I", "F")
"""Modes of images with values of 32 bits; modes with 16 bits begin with "I;"."""

OWNER = "writer_id"  # the column with the owner of an example


def decoded(dataset: Any) -> Arrays:
    """Find the image and the label column by their features, and decode all rows.

    A column `writer_id` has the owner of each example. Raises `UsageError` with the row, the first
    of which is row 1, of a picture, label or owner that is missing or invalid.
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
    classes = dataset.features[label].num_classes
    x, owners = [], []
    y: list[NDArray[np.int64]] = []
    modes: set[str] = set()
    for batch in rows.iter(batch_size=1000):
        first = 1 + sum(map(len, y))
        pictures = _pictures(batch[image], mode, modes, first)
        x.append(_stacked(list(map(_channels_first, pictures))))
        y.append(_labels(batch[label], classes, first))
        owners += [_owners(batch[column], first) for column in owned]
    check(len(modes) < 2, "source: images of modes", sorted(modes), "one mode: convert the images")
    check(bool(y), "source", columns, "a data set with rows")
    whose = np.concatenate(owners) if owners else None
    return Arrays(
        _stacked(x, np.concatenate),
        np.concatenate(y),
        classes,
        owners=whose,
        classes=tuple(dataset.features[label].names or ()),
    )


def _labels(values: Sequence[int | None], classes: int, first: int) -> NDArray[np.int64]:
    """(n,) the label of each example. Raises `UsageError` for an example without one."""
    labels = np.asarray(values, dtype=np.float64)
    for place in np.flatnonzero(~((labels >= 0) & (labels < classes)))[:1]:
        row, value = f"source: row {first + place}", values[place]
        if value in (None, -1):  # as test sets whose labels are kept secret have
            raise UsageError(f"{row}: the label is missing")
        check(False, f"{row}: label", value, f"in 0 to {classes - 1}")
    return labels.astype(np.int64)


def _owners(values: Sequence[object], first: int) -> NDArray[np.str_]:
    """(n,) the owner of each example. Raises `UsageError` for an example without one."""
    for row, value in enumerate(values, start=first):
        check(value not in (None, ""), f"source: row {row}: {OWNER}", value, "an owner")
    return np.asarray(values, dtype=np.str_)


def _pictures(
    encoded: Sequence[Mapping[str, Any] | None], mode: str | None, modes: set[str], first: int
) -> Iterator[NDArray[Any]]:
    """The pixels of images in the form that `datasets` keeps: encoded bytes, or a path.

    The modes of the pixels are added to `modes`: values of two modes may mean other colours.
    `first` is the row of the first image. The format of the previous image is tried first: trying
    all formats takes three times as long.
    """
    likely: list[str] | None = None
    for row, each in enumerate(encoded, start=first):
        picture = _opened(each, likely, f"source: row {row}")
        likely = None if picture.format is None else [picture.format]
        few = picture.mode not in WIDE and not picture.mode.startswith("I;")
        expected = "a mode with 8 bits per value: convert the images"
        # a conversion would clip values
        check(few, "source: images of mode", picture.mode, expected)
        as_said = mode or GREYS_AND_COLOURS.get(picture.mode, picture.mode)
        modes.add(as_said)
        pixels = np.asarray(picture if as_said == picture.mode else picture.convert(as_said))
        check(pixels.dtype == np.uint8, "source: images of type", str(pixels.dtype), expected)
        yield pixels


def _opened(encoded: Mapping[str, Any] | None, likely: list[str] | None, where: str) -> Picture:
    """An image whose pixels have been read, the right way up. Raises `UsageError`."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    there = encoded or {"bytes": None, "path": None}
    file = there["path"] if there["bytes"] is None else there["bytes"]
    if not file:
        raise UsageError(f"{where}: the picture is missing")
    file = BytesIO(file) if isinstance(file, bytes) else file
    try:
        try:
            picture: Picture = Image.open(file, formats=likely)
        except UnidentifiedImageError:
            picture = Image.open(file)
        ImageOps.exif_transpose(picture, in_place=True)
        picture.load()
    except UnidentifiedImageError:  # whose message may name an object in memory
        raise UsageError(f"{where}: the picture can't be decoded: no known format") from None
    except Exception as error:  # decoders raise any exception for damaged files
        raise UsageError(f"{where}: the picture can't be decoded: {first_line(error)}") from None
    return picture


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
