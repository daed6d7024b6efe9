"""A table of plain values, as rows or columns, JSON, CSV or a pandas DataFrame."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

from umbel.checks import UsageError, printable
from umbel.files.spreadsheet_cells import csv_text
from umbel.notebooks import cut
from umbel.summary import counted, few

ACTING = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that terminals act on although JSON may contain them unescaped."""

Value = Any
"""A value of JSON: text, a number, true or false, a list, or None if unknown."""


@dataclass(frozen=True)
class Table:
    """Rows of plain values, all with the same columns; None for unknown values."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Value], ...]

    def __repr__(self) -> str:
        of = f" of {few(list(self.columns))}" if self.columns else ", no columns"
        return f"Table: {counted(len(self.rows), 'row')}{of}"

    def _repr_html_(self) -> str:
        shown = [["" if value is None else str(value) for value in row.values()] for row in self]
        return cut(self.columns, shown, repr(self))._repr_html_()

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Value]], columns: Iterable[str] = ()) -> Table:
        """Make a table of rows that may lack columns: first these, then the others."""
        rows = list(rows)
        names = tuple(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
        whole = ({name: _plain(row.get(name)) for name in names} for row in rows)
        return cls(names, tuple(whole))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return iter(self.rows)

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> dict[str, Value]: ...

    @overload
    def __getitem__(self, key: slice, /) -> Table: ...

    def __getitem__(self, key: SupportsIndex | slice, /) -> dict[str, Value] | Table:
        """The row of a number, or a table of the rows of a slice."""
        if isinstance(key, slice):
            return Table(self.columns, self.rows[key])
        return self.rows[key]

    def column(self, name: str) -> list[Value]:
        """The values of one column, row by row. Raises `UsageError` for a name that is none."""
        if name not in self.columns:
            raise UsageError(f"column: {name!r} is not one of {', '.join(self.columns)}")
        return [row[name] for row in self.rows]

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. Raises `UsageError` if pandas is not installed."""
        try:
            import pandas as pd
        except ImportError:
            raise UsageError('to_pandas: needs an extra: pip install "umbel[data]"') from None
        return pd.DataFrame(list(self.rows), columns=list(self.columns))

    def to_json(self, ascii_only: bool = False) -> str:
        """A list of objects, one a row."""
        text = json.dumps(list(self.rows), indent=1, allow_nan=False, ensure_ascii=ascii_only)
        return ACTING.sub(lambda found: json.dumps(found[0])[1:-1], text)

    def to_csv(self) -> str:
        """A line of names and a line a row; nothing between two commas is a value not known."""
        rows = ([_cell(row[name]) for name in self.columns] for row in self.rows)
        return csv_text([map(_cell, self.columns), *rows], "\n")


def _plain(value: Value) -> Value:
    """JSON knows neither NaN nor infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Value) -> Value:
    """Lists, tables and truth values as JSON writes them; texts without control characters."""
    if isinstance(value, str):
        return printable(value, "\n")
    return json.dumps(value) if isinstance(value, (list, tuple, dict, bool)) else value
