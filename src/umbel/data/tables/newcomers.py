"""Newcomers in a table, with the encoding of a finished run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check_memory, shown
from umbel.data.federation import Federation
from umbel.data.tables.clients import clients_of, texts_of
from umbel.data.tables.encoding import Encoding
from umbel.data.tables.features import Encoder, in_single
from umbel.data.tables.kinds import ColumnWords, as_known
from umbel.data.tables.missing import with_words
from umbel.data.tables.reading import TableRows, read_rows
from umbel.data.tables.targets import targets_of
from umbel.data.tables.tokens import Tokens, tokens_of

logger = logging.getLogger(__name__)


def read_newcomers(path: Path, encoding: Encoding, labelled: bool) -> Federation:
    """The clients of a table, with all rows for training; labels are zeros if there are none.

    Raises `UsageError` if the table lacks a column of the run's table, with the row for a class
    that the run does not know, and if the run's tokenizer has changed.
    """
    target = encoding.target
    further = [target.name] if labelled else []
    further += [] if encoding.client is None else [encoding.client]
    rows = _rows(path, encoding, further)
    values = _targets(rows, encoding) if labelled else _none(len(rows), encoding)
    missing = np.isnan(values) if target.classes is None else values < 0
    if missing.any() and not target.may_be_missing:
        where = rows.at(int(missing.argmax()), target.name)
        raise UsageError(with_words(f"{where}: is missing", rows, target.name, "a class"))
    clients = clients_of(rows, encoding.client, ~missing)
    encode = _reader(rows, encoding)
    check_memory(8 * len(rows) * encode.width, "table: the features of all rows")
    pairs = [(encode(mine), values[mine]) for mine in clients.rows]
    federation = Federation.from_arrays(
        pairs,
        [(x[:0], y[:0]) for x, y in pairs],
        names=clients.names,
        num_classes=None if target.classes is None else len(target.classes),
    )
    return replace(federation, encoding=encoding)


def encoded(path: Path, encoding: Encoding) -> NDArray[Any]:
    """The inputs of all rows of a table, in order. Raises `UsageError` as `read_newcomers`."""
    rows = _rows(path, encoding, [])
    encode = _reader(rows, encoding)
    check_memory(8 * len(rows) * encode.width, "table: the features of all rows")
    inputs: NDArray[Any] = encode(np.arange(len(rows)))
    return inputs


def _rows(path: Path, encoding: Encoding, further: Sequence[str]) -> TableRows:
    """The rows of a table, with the columns that inputs come from, and these further ones."""

    def wanted(file: Path, header: Sequence[str]) -> Sequence[str]:
        needed = [*(column.name for column in encoding.columns), *further]
        lacking = [name for name in needed if name not in header]
        if lacking:
            which = f"the column{'' if len(lacking) == 1 else 's'} {', '.join(map(repr, lacking))}"
            raise UsageError(f"{file}: lacks {which}, which the run's own table has")
        return needed

    return read_rows(path, encoding.form, wanted)


def _reader(rows: TableRows, encoding: Encoding) -> Encoder | Tokens:
    if encoding.tokenizer is None:
        encoder = encoding.encoder(rows)
        _warn_of_unknown(rows, encoder)
        return encoder
    texts = texts_of(rows, encoding.columns[0].name)
    tokens = tokens_of(texts, encoding.tokenizer, encoding.tokens)
    if encoding.tokenizer_digest not in (None, tokens.digest):
        raise UsageError(
            f"the tokenizer {encoding.tokenizer!r} is not the run's: its tokenizer.json, or the "
            "pad_token_id in its config.json, has changed since; bring the run's back"
        )
    cut = int(tokens.cut[tokens.codes].sum())
    if cut:
        what = "%s: column %r: %d of %d texts are cut to the run's %d tokens"
        logger.warning(what, rows.files[0], texts.name, cut, len(rows), encoding.tokens)
    return tokens


def _warn_of_unknown(rows: TableRows, encoder: Encoder) -> None:
    """Warn of columns without any category that the run knows: spelling may differ."""
    for about, column in zip(encoder.columns, encoder.values, strict=True):
        if not isinstance(column, ColumnWords) or about.kind != "category":
            continue
        known = [word for word in about.known if word]
        if column.words and not set(as_known(column.words, known)) & set(known):
            logger.warning(
                "%s: column %r: none of its categories, such as %s, is one of the run's, such as "
                "%s: a model sees them as unknown",
                rows.files[0],
                column.name,
                shown(column.words[0]),
                ", ".join(map(shown, known[:3])) or "none",
            )


def _none(count: int, encoding: Encoding) -> NDArray[Any]:
    kind = np.float32 if encoding.target.classes is None else np.int64
    return np.zeros(count, dtype=kind)


def _targets(rows: TableRows, encoding: Encoding) -> NDArray[Any]:
    """Labels by the run's classes, or numbers by its scale; -1 or NaN for missing ones."""
    target = encoding.target
    if target.classes is None:
        numbers = targets_of(rows, target.name, "regression", target.kind).values
        with np.errstate(over="ignore"):  # what is infinite afterwards is refused, too
            scaled = (numbers - target.mean) / target.deviation
        return in_single(scaled[:, None], [target.name], np.arange(len(rows)), rows)[:, 0]
    found = targets_of(rows, target.name, "classification", target.kind)
    assert found.classes is not None
    place = {name: label for label, name in enumerate(target.classes)}
    names = as_known(found.classes, target.classes)
    label_of = np.array([place.get(name, len(place)) for name in names] + [-1])
    labels = label_of[found.values]  # missing values have the label -1, the last one
    if (labels == len(place)).any():
        where = rows.at(int((labels == len(place)).argmax()), target.name)
        raise UsageError(f"{where}: is none of the {len(place)} classes of the run")
    return np.asarray(labels, dtype=np.int64)
