"""Rows of a table for a model that serves elsewhere: inputs before it, answers after it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.newcomers import encoded
from umbel.folder.encoding_file import read_beside


class RowEncoder:
    """Turns rows of a table into inputs of an exported model, and its outputs into answers.

    `RowEncoder("cluster-0-encoding.json")` reads the file beside a model that `umbel export` wrote
    from a run of a table; nothing else of the run is needed. Raises `UsageError` where the file is
    missing, damaged, or not of a table.
    """

    def __init__(self, file: Path | str) -> None:
        file = Path(file)
        encoding, _ = read_beside(file, "export the model again")
        check(encoding is not None, "file", str(file), "a file that `umbel export` wrote")
        if not isinstance(encoding, Encoding):
            raise UsageError(f"{file}: is of recordings, not of a table")
        self._encoding = encoding

    @property
    def features(self) -> tuple[str, ...]:
        """The name of each number of an input, in order."""
        return self._encoding.features

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the labels, in the order of the model's outputs; None for a regression."""
        return self._encoding.target.classes

    def encode(self, rows: Any) -> NDArray[Any]:
        """Return the inputs (n, features) of rows: a CSV or Parquet file, or a pandas table.

        Only the columns that the model predicts from are needed; others don't matter. Raises
        `UsageError`, with row and column, for values that can't be read.
        """
        if isinstance(rows, str | Path):
            return encoded(Path(rows), self._encoding)
        check(hasattr(rows, "to_parquet"), "rows", rows, "a file, or a pandas table")
        with TemporaryDirectory() as folder:
            file = Path(folder) / "rows.parquet"
            rows.to_parquet(file, index=False)
            return encoded(file, self._encoding)

    def answers(self, outputs: Any) -> list[str] | list[float]:
        """Return what a model's outputs (n, ...) predict: names of classes, or numbers in the
        target's own units.
        """
        values, target = np.asarray(outputs, dtype=np.float64), self._encoding.target
        values = values.reshape(len(values), -1)
        if target.classes is None:
            return [float(each) for each in values[:, 0] * target.deviation + target.mean]
        binary = values.shape[1] == 1
        places = (values[:, 0] > 0).astype(int) if binary else values.argmax(1)
        return [target.classes[place] for place in places]
