"""Windows of long recordings: a folder with one file of steps per client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_least, check_memory
from umbel.data.attributes import read_attributes
from umbel.data.channel_scale import ChannelScale
from umbel.data.federation import Federation
from umbel.data.npz import client_files, read_arrays
from umbel.data.scaling import pooled
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.data.splits import for_validation
from umbel.data.tables.parts import PARTS, check_fractions, divided
from umbel.settings import whole_path
from umbel.summary import counted

Windows: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
"""Windows (n, channels, length) in the recordings' own type, and the target of each (n,)."""


@dataclass(frozen=True, kw_only=True)
class RecordedWindows(Scenario):
    """Windows of recordings, one `.npz` file per client: x (T, channels), y (T,) or one label.

    If a client has several recordings, an array `recording` (T,) has the number of the recording of
    each step. Each recording is split in time first: its last steps are for the test, and no window
    contains steps of two parts. Inputs are (channels, length), as `cnn-1d` takes them.
    """

    path: str = "recordings"  # folder with a .npz file for each client
    source: str | None = None  # instead of path: a folder in the data directory
    length: int = 128  # number of steps of a window
    # steps from one window to the next; windows overlap if it is less than length
    stride: int = 128
    # target of a window: the most common label (or the mean), or the last
    label: Literal["most", "last"] = "most"
    test_fraction: float = 0.25  # of each recording, the last
    validation_fraction: float | None = None  # of what is not for the test, the last
    scale: bool = True  # each channel to mean 0 and deviation 1 over all training windows
    num_classes: int | None = None  # default: the largest label plus one

    def __post_init__(self) -> None:
        check_least(self, 1, "length", "stride")
        check_fractions(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:  # noqa: ARG002
        path = whole_path(self.path) if self.source is None else sources.path(self.source)
        files = client_files(path)
        clients = [self.cut(file) for file in files]
        for file, client in zip(files, clients, strict=True):
            expected = f"enough: are recordings as long as windows of {self.length} steps?"
            windows = len(client["train"][0])
            check(windows > 0, str(file), f"{windows} training windows", expected)
        _check_channels(files, [client["train"][0].shape[1] for client in clients])
        parts = {part: [client[part] for client in clients] for part in PARTS}
        names = [file.stem for file in files]
        return federation_of(
            parts,
            names,
            scale=self.scale,
            num_classes=self.num_classes,
            attributes=read_attributes(path, tuple(names)),
            validation_fraction=self.validation_fraction,
        )

    def cut(self, file: Path) -> dict[str, Windows]:
        """Return the windows for training, validation and test of a client's recordings.

        The last part of each recording is for the test, the part before it for validation.
        """
        x, y, recording = _recordings(file)
        fractions = self.validation_fraction or 0.0, self.test_fraction
        steps = x[:, None] if x.ndim == 1 else x
        check(steps.ndim == 2 and len(steps) > 0, f"{file}: x", x.shape, "steps (T, channels)")
        targets = np.broadcast_to(y.reshape(-1), len(steps)) if y.size == 1 else y
        expected = f"one number, or one for each of {len(steps):,} steps"
        check(targets.shape == (len(steps),), f"{file}: y", y.shape, expected)
        check(recording.shape == (len(steps),), f"{file}: recording", recording.shape, expected)
        count = len(steps) // self.stride + 1
        check_memory(8 * count * self.length * steps.shape[1], f"{file}: its windows")
        found: dict[str, list[Windows]] = {part: [] for part in PARTS}
        for number in np.unique(recording):
            parts = divided(np.flatnonzero(recording == number), fractions)
            for part in PARTS:
                places = getattr(parts, part)
                found[part].append(self._windows(steps[places], targets[places]))
        return {
            part: (np.concatenate([x for x, _ in each]), np.concatenate([y for _, y in each]))
            for part, each in found.items()
        }

    def _windows(self, steps: NDArray[Any], targets: NDArray[Any]) -> Windows:
        starts = np.arange(0, len(steps) - self.length + 1, self.stride)
        places = starts[:, None] + np.arange(self.length)
        return np.moveaxis(steps[places], -1, 1), self._labels(targets[places])

    def _labels(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Return (n,) the targets of windows (n, length); of equally common labels the smallest."""
        if self.label == "last":
            return targets[:, -1]
        if targets.dtype.kind == "f":
            return np.array([window.mean() for window in targets], dtype=targets.dtype)
        counts = (np.unique(window, return_counts=True) for window in targets)
        return np.array([values[n.argmax()] for values, n in counts], dtype=targets.dtype)


def federation_of(
    parts: dict[str, list[Windows]],
    names: list[str],
    *,
    scale: bool,
    num_classes: int | None,
    attributes: dict[str, tuple[str, ...]],
    validation_fraction: float | None = None,
) -> Federation:
    """The federation of these clients; with `scale` channels have mean 0 and deviation 1.

    Raises `UsageError` if the `validation_fraction` has given no client any validation windows.
    """
    by = None
    if scale:
        about = pooled(np.concatenate([_columns(x) for x, _ in parts["train"]]))
        by = ChannelScale(tuple(about.mean.tolist()), tuple(about.deviation.tolist()))
    # Single precision comes after the scale: before it, offsets may be far larger than the signal.
    parts = {part: [(_single(x, by), y) for x, y in clients] for part, clients in parts.items()}
    federation = Federation.from_arrays(
        parts["train"],
        parts["test"],
        validation=for_validation(parts["validation"], validation_fraction),
        names=names,
        num_classes=num_classes,
        attributes=attributes,
    )
    return replace(federation, encoding=by)


def check_numbers(values: NDArray[Any], what: str) -> None:
    """Raise `UsageError` unless these are finite numbers."""
    check(values.dtype.kind in "biuf", what, str(values.dtype), "a type of numbers")
    fine = values.dtype.kind != "f" or bool(np.isfinite(values).all())
    check(fine, what, "NaN or infinite", "finite")


def _check_channels(files: Sequence[Path], channels: Sequence[int]) -> None:
    """Raise `UsageError` unless all recordings have the channels of the first."""
    for file, found in zip(files, channels, strict=True):
        expected = f"{counted(channels[0], 'channel')}, as {files[0].name} has"
        check(found == channels[0], f"{file}: x", counted(found, "channel"), expected)


def _columns(x: NDArray[Any]) -> NDArray[np.float64]:
    """The values with one column for each channel, or feature."""
    return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]).astype(np.float64)


def _single(x: NDArray[Any], scale: ChannelScale | None) -> NDArray[np.float32]:
    if scale is None:
        return np.ascontiguousarray(x, dtype=np.float32)
    return np.asarray(scale(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))))


def _recordings(file: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    found = read_arrays(file, ("x", "y", "recording"))
    for name in ("x", "y"):
        if name not in found:
            raise UsageError(f"{file}: lacks {name}: arrays x and y are needed")
        check_numbers(found[name], f"{file}: {name}")
    steps = len(found["x"]) if found["x"].ndim else 0
    recording = found.get("recording", np.zeros(steps, dtype=np.int64))
    known = recording.dtype.kind != "f" or bool(np.isfinite(recording).all())
    check(known, f"{file}: recording", "NaN or infinite", "finite")
    return found["x"], found["y"], recording
