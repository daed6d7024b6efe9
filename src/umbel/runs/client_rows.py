"""The rows of `clusters.csv`: what a finished run came to for each client."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.runs.scores import ClientScores

COLUMNS = ("client", "group", "cluster", "examples", "accuracy", "loss")


def write_rows(file: Path, federation: Federation, scores: ClientScores) -> None:
    """A row for each client of the federation."""
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(COLUMNS)
        writer.writerows(_rows(federation, scores))


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows by column. Raises `UsageError` if they are not what `write_rows` writes."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        whole = bool(rows) and all(map(_is_whole, rows))
    except (UnicodeDecodeError, csv.Error):
        whole = False
    if not whole:
        raise UsageError(f"{file}: damaged: not a row {','.join(COLUMNS)} for each client")
    return rows


def _rows(federation: Federation, scores: ClientScores) -> Iterator[list[object]]:
    for client, name in enumerate(federation.names):
        yield [
            name,
            "" if federation.groups is None else federation.groups[client],
            scores.clusters[client],
            federation.train.sizes[client],
            "" if np.isnan(scores.accuracy[client]) else float(scores.accuracy[client]),
            "" if np.isnan(scores.loss[client]) else float(scores.loss[client]),
        ]


def _is_whole(row: Mapping[str, str]) -> bool:
    """Whether a row has all columns and no more, with numbers where they belong."""
    if set(row) != set(COLUMNS) or None in row.values():
        return False
    whole, real = (row["cluster"], row["examples"]), (row["accuracy"], row["loss"])
    return all(map(str.isdecimal, whole)) and all(_is_number(text or "0") for text in real)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
