"""Exercises recorded by watches; a client is one wrist of a person."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_least
from umbel.data.federation import Federation
from umbel.data.npz import client_files, read_arrays
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.windows import Windows, check_numbers, federation_of
from umbel.data.sources import Sources
from umbel.data.tables.parts import PARTS, check_fractions, client_generator, divided

EXERCISES = 7
"""The labels."""


@dataclass(frozen=True, kw_only=True)
class Watch(Scenario):
    """Two-second windows of an accelerometer and a gyroscope; a client is one wrist of a person.

    The first half of each recording is for training, the second for the test; validation takes the
    last windows of the first half. The attributes `person` and `wrist` are known of each client.
    No groups are planted. Every input has mean 0 and deviation 1 over all training windows.
    """

    source: str = "natural/watch"  # folder in the data directory
    # inputs: 33 numbers per window, or all (6, 100)
    features: Literal["summary", "raw"] = "summary"
    windows_per_class: int = 0  # for training, per client, at random; 0: all
    validation_fraction: float | None = None  # of what is not for the test
    validation_per_class: int = 0  # most for validation, per client, at random; 0: all

    def __post_init__(self) -> None:
        check_fractions(self.validation_fraction, 0.0)
        check_least(self, 0, "windows_per_class", "validation_per_class")

    def build(self, seed: int, sources: Sources) -> Federation:
        files = client_files(sources.path(self.source))
        names = [file.stem for file in files]
        for file, name in zip(files, names, strict=True):
            check(name.count("-") == 1, str(file), name, "of the form PERSON-WRIST")
        clients = [self._client(file, seed, place) for place, file in enumerate(files)]
        persons, wrists = zip(*(name.split("-") for name in names), strict=True)
        return federation_of(
            {part: [client[part] for client in clients] for part in PARTS},
            names,
            scale=True,
            num_classes=EXERCISES,
            attributes={"person": persons, "wrist": wrists},
            validation_fraction=self.validation_fraction,
        )

    def _client(self, file: Path, seed: int, client: int) -> dict[str, Windows]:
        arrays = read_arrays(file, ("x", "y", "recording", "x_test", "y_test"))
        lacking = sorted({"x", "y", "recording", "x_test", "y_test"} - set(arrays))
        if lacking:
            raise UsageError(f"{file}: lacks {', '.join(lacking)}")
        for name in ("x", "x_test"):
            x, y = arrays[name], arrays[name.replace("x", "y")]
            fine = x.ndim == 3 and x.shape[2] == 6 and x.shape[1] > 1 and y.shape == x.shape[:1]
            check(fine, f"{file}: {name}", x.shape, "windows (n, steps, 6) with a label each")
            check_numbers(x, f"{file}: {name}")
            check_numbers(y, f"{file}: {name.replace('x', 'y')}")
        y, recording, rng = arrays["y"], arrays["recording"], client_generator(seed, client)
        expected = f"a number for each of {len(y)} windows"
        check(recording.shape == y.shape, f"{file}: recording", recording.shape, expected)
        train, validation = [], []
        fractions = self.validation_fraction or 0.0, 0.0
        for number in dict.fromkeys(recording.tolist()):
            parts = divided(np.flatnonzero(recording == number), fractions)
            train.append(parts.train)
            validation.append(parts.validation)
        chosen = _few(np.concatenate(train), y, self.windows_per_class, rng)
        held = _few(np.concatenate(validation), y, self.validation_per_class, rng)
        return {
            "train": (self._inputs(arrays["x"][chosen]), y[chosen]),
            "validation": (self._inputs(arrays["x"][held]), y[held]),
            "test": (self._inputs(arrays["x_test"]), arrays["y_test"]),
        }

    def _inputs(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return summary(x) if self.features == "summary" else np.moveaxis(x, -1, 1)


def summary(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Summary features (n, 3 C + C (C - 1) / 2) of windows (n, steps, C).

    They are each channel's mean, deviation and mean absolute step, then the correlations of all
    pairs of channels. Correlations with a constant channel are 0.
    """
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1)
    steps = np.abs(np.diff(x, axis=1)).mean(axis=1)
    products = np.einsum("nsa,nsb->nab", centred, centred) / x.shape[1]
    scales = deviation[:, :, None] * deviation[:, None, :]
    correlations = np.divide(products, scales, out=np.zeros_like(products), where=scales > 0)
    above = np.triu_indices(x.shape[2], k=1)
    parts = [x.mean(axis=1), deviation, steps, correlations[:, above[0], above[1]]]
    return np.concatenate(parts, axis=1)


def _few(
    rows: NDArray[np.int64], y: NDArray[Any], most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """At most `most` rows of each label; 0: all."""
    if not most:
        return rows
    drawn = rng.permutation(rows)
    kept = [drawn[y[drawn] == label][:most] for label in np.unique(y[drawn])]
    return np.sort(np.concatenate(kept)) if kept else rows
