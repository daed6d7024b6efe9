"""Windows of long recordings, which are split in time before they are cut into windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_memory
from umbel.data.tables.parts import PARTS, divided

Labelling = Literal["most", "last"]

Windows: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
"""Windows (n, channels, length) in the recordings' own type, and the target of each (n,)."""


@dataclass(frozen=True)
class Cut:
    """The settings for cutting recordings into windows."""

    length: int  # number of steps of a window
    stride: int  # number of steps from one window's start to the next
    # target of a window: the most common label (or the mean) of its steps, or the last
    label: Labelling
    # (validation, as a share of the steps that are not for the test; test)
    fractions: tuple[float, float]

    def __call__(
        self, x: NDArray[Any], y: NDArray[Any], recording: NDArray[Any], what: str
    ) -> dict[str, Windows]:
        """The windows for training, validation and test of a client with steps x (T, channels).

        y are targets (T,), or one number; steps with the same value of recording (T,) belong
        together. The last part of each recording is for the test, the part before it for
        validation.
        """
        steps = x[:, None] if x.ndim == 1 else x
        check(steps.ndim == 2 and len(steps) > 0, f"{what}: x", x.shape, "steps (T, channels)")
        targets = np.broadcast_to(y.reshape(-1), len(steps)) if y.size == 1 else y
        expected = f"one number, or one for each of {len(steps):,} steps"
        check(targets.shape == (len(steps),), f"{what}: y", y.shape, expected)
        check(recording.shape == (len(steps),), f"{what}: recording", recording.shape, expected)
        count = len(steps) // self.stride + 1
        check_memory(8 * count * self.length * steps.shape[1], f"{what}: its windows")
        found: dict[str, list[Windows]] = {part: [] for part in PARTS}
        for number in np.unique(recording):
            parts = divided(np.flatnonzero(recording == number), self.fractions)
            for part in PARTS:
                places = getattr(parts, part)
                found[part].append(self._windows(steps[places], targets[places]))
        return {part: _together(windows) for part, windows in found.items()}

    def _windows(self, steps: NDArray[Any], targets: NDArray[Any]) -> Windows:
        starts = np.arange(0, len(steps) - self.length + 1, self.stride)
        places = starts[:, None] + np.arange(self.length)
        return np.moveaxis(steps[places], -1, 1), self._label(targets[places])

    def _label(self, targets: NDArray[Any]) -> NDArray[Any]:
        """(n,) the targets of windows (n, length)."""
        found = [_one(window, self.label) for window in targets]
        return np.array(found, dtype=targets.dtype)


def _one(targets: NDArray[Any], label: Labelling) -> Any:
    """The target of a window (length,); among equally common labels, the smallest."""
    if label == "last":
        return targets[-1]
    if targets.dtype.kind == "f":
        return targets.mean()
    values, counts = np.unique(targets, return_counts=True)
    return values[counts.argmax()]


def _together(parts: Sequence[Windows]) -> Windows:
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
