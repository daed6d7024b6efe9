"""Conversion of pandas tables to arrays of numbers, if pandas is installed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import LARGEST, UsageError
from umbel.data.objects import numbers_of, refuse, refuse_row
from umbel.data.tables.kinds import Numbers
from umbel.data.tables.uses import doubtful, is_index, sentence

log = logging.getLogger(__name__)


def is_table(values: object) -> bool:
    """Whether this is a DataFrame or a Series."""
    return type(values).__module__.partition(".")[0] == "pandas" and hasattr(values, "iloc")


def numbers(table: Any, what: str, advice: str) -> NDArray[Any]:
    """The values (n, C) of a DataFrame of C columns, or (n,) of a Series.

    Integers stay integers if all columns are integers. Raises `UsageError` that names a column of
    another type, or the row of a missing or infinite value.
    """
    if table.ndim == 1:
        named = what if table.name is None else f"{what}, column {str(table.name)!r}"
        return _column(table, named, advice)
    names = column_names(table)
    if not names:
        raise UsageError(f"{what}: a table without columns")
    columns = [table.iloc[:, place] for place in range(len(names))]
    return np.column_stack(
        [
            _column(column, f"{what}, column {name!r}", advice)
            for column, name in zip(columns, names, strict=True)
        ]
    )


def column_names(table: Any) -> tuple[str, ...]:
    """The names of a DataFrame's columns; empty for anything else."""
    return tuple(map(str, table.columns)) if is_table(table) and table.ndim == 2 else ()


def check_columns(tables: Sequence[object], clients: Sequence[str]) -> None:
    """Raise `UsageError` unless all clients' tables have the same columns in the same order."""
    of_each = zip(map(column_names, tables), clients, strict=True)
    first, whose = next(((names, client) for names, client in of_each if names), ((), ""))
    for table, client in zip(tables, clients, strict=True):
        own = column_names(table)
        if own == first or not (own and first):
            continue
        lacking, more = [n for n in first if n not in own], [n for n in own if n not in first]
        parts = [f"lacks column {lacking[0]!r}"] if lacking else []
        parts += [f"has a column {more[0]!r}"] if more else []
        fault = " and ".join(parts) or "has its columns in another order"
        raise UsageError(
            f"client {client}: x {fault}, unlike x of client {whose}; give x[names], with "
            "the same list of names for all clients"
        )


def without_indexes(tables: Sequence[Any], clients: Sequence[str]) -> list[Any]:
    """Clients' tables without columns that are an index; doubtful columns are warned of.

    The tables, of all splits, have the same columns. Anything but tables is left as it is.
    """
    if not all(column_names(table) for table in tables):
        return list(tables)
    owners = np.repeat(np.unique(clients, return_inverse=True)[1], [len(t) for t in tables])
    names, kept, inputs = column_names(tables[0]), [], []
    for place, name in enumerate(names):
        series = [table.iloc[:, place] for table in tables]
        values = _whole_numbers(series)
        if values is not None and is_index(name, values, owners):
            what = "x: column %r is left out, as it numbers rows; to keep it, give it another name"
            log.warning(what, name)
            continue
        kept.append(place)
        if values is not None:
            inputs.append(Numbers(name, values, whole=True))
    for fault, found in doubtful(inputs, np.arange(len(owners)), owners).items():
        log.warning("x: %s; if it is no input, leave it out", sentence(fault, found))
    return list(tables) if len(kept) == len(names) else [t.iloc[:, kept] for t in tables]


def _whole_numbers(series: Sequence[Any]) -> NDArray[np.float64] | None:
    """The values of a column of whole numbers without gaps; None for any other column."""
    from pandas.api import types

    if not all(types.is_numeric_dtype(each.dtype) and not each.isna().any() for each in series):
        return None
    values = np.concatenate([np.asarray(each, dtype=np.float64) for each in series])
    finite = len(values) and bool(np.isfinite(values).all())
    return values if finite and bool((values % 1 == 0).all()) else None


def check_rows(x: Any, y: Any, client: str) -> None:
    """Raise `UsageError` if the indices of x and y show that their rows do not correspond.

    Indices without a common label prove nothing: one of them was probably renumbered.
    """
    if not (is_table(x) and is_table(y)) or len(x) != len(y) or x.index.equals(y.index):
        return
    shared = int(y.index.isin(x.index).sum())
    if shared == len(y) and x.index.is_unique and y.index.is_unique:
        raise UsageError(
            f"client {client}: y has the rows of x in another order; write y.loc[x.index]"
        )
    if shared:
        fault = f"{len(y) - shared} of {len(y)} rows of y are not rows of x"
        if shared == len(y):
            fault = "labels of rows repeat, and x and y differ in them"
        raise UsageError(
            f"client {client}: {fault}, by their index; give x and y the same rows, or, if each "
            "row of y is that of the same row of x, give x.reset_index(drop=True) and "
            "y.reset_index(drop=True)"
        )


def _column(series: Any, what: str, advice: str) -> NDArray[Any]:
    from pandas.api import types

    kind = series.dtype
    if str(kind) == "object":
        return numbers_of(np.asarray(series, dtype=object), what, advice)
    # pandas counts its own bools as numeric, but not those of Arrow.
    numeric = types.is_numeric_dtype(kind) or types.is_bool_dtype(kind)
    if str(kind) == "category" or not numeric:
        refuse(what, str(kind), advice)
    gaps = np.asarray(series.isna(), dtype=bool)
    if gaps.any():
        refuse_row(what, int(gaps.argmax()), "missing")
    if types.is_bool_dtype(kind):
        return np.asarray(series, dtype=bool)
    if types.is_integer_dtype(kind):
        if len(series) and int(series.max()) > LARGEST:
            refuse(what, f"{kind} beyond 2^63 - 1", advice)
        return np.asarray(series, dtype=np.int64)
    array = np.asarray(series, dtype=None if isinstance(kind, np.dtype) else np.float64)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        refuse_row(what, int((~np.isfinite(array)).argmax()), "infinite")
    return array
