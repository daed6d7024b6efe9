"""Reading of CSV and Parquet tables: one file of all clients, or a folder with one file each."""

from __future__ import annotations

import csv as csv_
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_memory, closest, nearest
from umbel.data.tables.headers import misread
from umbel.data.tables.quotes import check_quotes
from umbel.files.reading import check_file, files_in
from umbel.summary import in_short

ENDINGS = (".csv", ".parquet")

OTHERS = (".tsv", ".tab", ".txt", ".xlsx", ".xls", ".ods", ".json", ".feather", ".gz", ".zip")
"""Endings of files that may hold tables, too, and are refused as such."""

INDEX = "__index_level_"
"""Prefix of pandas for the name of an unnamed index, in Parquet files."""

LARGEST_SIGNED = 2**63 - 1

GROWTH = 6
"""Largest memory of texts, as a multiple of the size of their CSV file."""

NOT_UTF_8 = "not text in UTF-8; save it again in that encoding, as 'CSV UTF-8' in a spreadsheet"


@dataclass(frozen=True)
class CsvFormat:
    """The separator of CSV files, and the texts that mean missing values."""

    separator: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class TableRows:
    """The rows of one or several files, in sequence."""

    columns: dict[str, Any]  # pandas Series (n,): texts from CSV files, or types of Parquet
    files: tuple[Path, ...]
    offsets: NDArray[np.int64]  # (files + 1,) file f has the rows offsets[f] to offsets[f + 1]
    typed: bool  # whether the files define the types of columns
    #: columns of any file that are not read -> why
    unread: Mapping[str, str] = field(default_factory=dict)
    #: columns that a Parquet file has as the index of its table
    index: frozenset[str] = frozenset()
    #: column -> text that means a missing value -> number of rows that have it
    gaps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # texts of CSV files that mean a missing value

    __repr__ = in_short

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def at(self, row: int, column: str | None = None) -> str:
        """The position of a row for messages; the first row below the header is row 1."""
        file = int(np.searchsorted(self.offsets, row, side="right")) - 1
        of = "" if column is None else f", column {column!r}"
        return f"{self.files[file]}: row {row - int(self.offsets[file]) + 1}{of}"

    def without(self, names: Collection[str]) -> TableRows:
        """The same without these columns."""
        left = {name: values for name, values in self.columns.items() if name not in names}
        return replace(self, columns=left)

    @property
    def owners(self) -> NDArray[np.int64]:
        """(n,) the number of each row's file."""
        return np.repeat(np.arange(len(self.files)), np.diff(self.offsets))


def read_rows(
    path: Path, form: CsvFormat, wanted: Callable[[Path, tuple[str, ...]], Sequence[str]]
) -> TableRows:
    """The wanted columns of a file, or of all files of a folder.

    `wanted` is called with a file and the names of its columns, and returns those to read. Raises
    `UsageError`, with file, row and column, for an invalid table.
    """
    files = _files(path)
    load = _parquet if files[0].suffix.lower() == ".parquet" else _csv
    loaded = [load(file, form, wanted) for file in files]
    tables = [each.table for each in loaded]
    names = tables[0].column_names
    _check_alike(files, [table.column_names for table in tables])
    counts = [table.num_rows for table in tables]
    for file, count in zip(files, counts, strict=True):
        check(count > 0, str(file), "a table without rows", "usable: it needs at least one row")
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = {name: _joined([table[name] for table in tables], files, name) for name in names}
    gaps: dict[str, Counter[str]] = {}
    for each in loaded:
        for name, words in each.gaps.items():
            gaps.setdefault(name, Counter()).update(words)
    return TableRows(
        columns,
        tuple(files),
        offsets,
        typed=load is _parquet,
        unread={name: use for each in reversed(loaded) for name, use in each.unread.items()},
        index=frozenset().union(*(each.index for each in loaded)),
        gaps=gaps,
        missing=form.missing,
    )


def _check_alike(files: Sequence[Path], headers: Sequence[Sequence[str]]) -> None:
    """Raise `UsageError` for the first file whose columns are not those of most files."""
    sets = [frozenset(header) for header in headers]
    usual = Counter(sets).most_common(1)[0][0]
    model = files[sets.index(usual)]
    for file, header, mine in zip(files, headers, sets, strict=True):
        lacking, more = sorted(usual - mine), [name for name in header if name not in usual]
        if lacking:
            near = closest(lacking[0], more)
            how = f"rename its {near!r}" if near else "add it, or name it in leave_out"
            raise UsageError(f"{file}: lacks the column {lacking[0]!r}, which {model} has; {how}")
        if more:
            said = f"has the column {more[0]!r}, which {model} lacks; name it in leave_out"
            raise UsageError(f"{file}: {said}")


@dataclass(frozen=True)
class Loaded:
    """The wanted columns of one file."""

    table: Any  # of Arrow
    unread: Mapping[str, str]
    index: frozenset[str]
    gaps: Mapping[str, Mapping[str, int]]


def holds_tables(path: Path) -> bool:
    """Whether this is a table, or a folder that holds tables and no arrays."""
    if not path.is_dir():
        return path.suffix.lower() in (*ENDINGS, *OTHERS)
    return bool(files_in(path, *ENDINGS)) and not files_in(path, ".npz")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        check_file(path)
        expected = "the ending .csv or .parquet: save it as one of these, a text with separators"
        fine = path.suffix.lower() in ENDINGS
        check(fine, str(path), path.suffix, f"{expected} as .csv with the setting separator")
        return [path]
    files = files_in(path, *ENDINGS)
    if not files:
        raise UsageError(f"{path}: holds no .csv or .parquet files; it needs one for each client")
    endings = {file.suffix.lower() for file in files}
    check(len(endings) == 1, str(path), sorted(endings), "one ending: files must be of one kind")
    return files


def _csv(file: Path, form: CsvFormat, wanted: Callable[..., Sequence[str]]) -> Loaded:
    """A table of texts."""
    pyarrow = _pyarrow()
    from pyarrow import csv

    check_file(file)
    size = file.stat().st_size
    check(size > 0, str(file), "an empty file", "a table: it needs a header and rows")
    check_memory(GROWTH * size, f"{file}: its rows")

    faults: list[Any] = []

    def refuse(row: Any) -> str:
        faults.append(row)
        return "skip"

    read = csv.ReadOptions(use_threads=False)  # only this mode counts the rows
    parse = csv.ParseOptions(
        delimiter=form.separator, newlines_in_values=True, invalid_row_handler=refuse
    )
    try:
        check_quotes(file, form.separator)
        header = _header(file, form.separator)
        names = _chosen(file, header, wanted)
        kinds = dict.fromkeys(names, pyarrow.string())
        convert = csv.ConvertOptions(column_types=kinds, include_columns=names)
        table = csv.read_csv(file, read, parse, convert)
    except UnicodeDecodeError:  # near the header; for values, Arrow raises its own error
        raise UsageError(f"{file}: {NOT_UTF_8}") from None
    except csv_.Error as error:
        raise UsageError(f"{file}: not a CSV file: {error}") from None
    except pyarrow.ArrowException as error:
        coded = "invalid UTF8" not in str(error)
        said = f"not a CSV file: {_without_values(error)}" if coded else NOT_UTF_8
        raise UsageError(f"{file}: {said}") from None
    if faults:
        raise UsageError(_uneven(file, form.separator, faults, alone=not table.num_rows))
    table, gaps = _with_gaps(table, form.missing)
    return Loaded(table, _unread(header, names), frozenset(), gaps)


def _with_gaps(table: Any, missing: Sequence[str]) -> tuple[Any, dict[str, dict[str, int]]]:
    """The table with gaps in place of texts that mean a missing value, and their number."""
    from pyarrow import array, compute, scalar, string

    words, gaps = array(missing, string()), {}
    for place, name in enumerate(table.column_names):
        column = table[name]
        is_gap = compute.is_in(column, value_set=words)
        counts = compute.value_counts(column.filter(is_gap)).to_pylist()
        if counts:
            gaps[name] = {each["values"]: each["counts"] for each in counts}
            column = compute.if_else(is_gap, scalar(None, string()), column)
            table = table.set_column(place, name, column)
    return table, gaps


def _uneven(file: Path, separator: str, faults: Sequence[Any], alone: bool) -> str:
    """The message about rows whose number of values is not that of the header; `alone`: all."""
    first = faults[0]
    said = f"{first.actual_columns} values, unlike the header with {first.expected_columns}"
    one_more = all(row.actual_columns == row.expected_columns + 1 for row in faults)
    if first.text.lstrip().startswith("#"):
        how = "it seems to be a comment: remove it"
    elif one_more and alone and all(row.text.rstrip().endswith(separator) for row in faults):
        how = f"all rows end in {separator!r}: end the header in it, too"
    elif one_more and alone:
        how = "all rows have one more, as names of rows: begin the header with a name for them"
    else:
        in_marks = f"put a value with {separator!r} in quotation marks"
        how = misread(file, separator) or f"correct the row, or {in_marks}"
    return f"{file}: row {first.number - 1} has {said}; {how}"


def _unread(header: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """The columns that are not read; one without a name by its place."""
    unnamed = {
        f"column {place}": "left out (no name in the header)"
        for place, name in enumerate(header, 1)
        if not name.strip()
    }
    others = [name for name in header if name.strip() and not name.startswith(INDEX)]
    return unnamed | {name: "left out" for name in others if name not in names}


def _header(file: Path, separator: str) -> list[str]:
    """The names in the first line that is not empty.

    It does not use Arrow, which continues to read in a thread: that can crash the process at exit.
    """
    with file.open(encoding="utf-8-sig", newline="") as opened:
        lines = csv_.reader(opened, delimiter=separator)
        return next((line for line in lines if line), [])


def _parquet(file: Path, form: CsvFormat, wanted: Callable[..., Sequence[str]]) -> Loaded:  # noqa: ARG001
    """A table with the types that the file defines."""
    pyarrow = _pyarrow()
    from pyarrow import parquet

    check_file(file)
    try:
        with parquet.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            names = _chosen(file, schema.names, wanted)
            described = schema.pandas_metadata or {}  # a range of numbers is a mapping
            index = frozenset(
                each for each in described.get("index_columns", ()) if isinstance(each, str)
            )
            about = opened.metadata
            groups = [about.row_group(number) for number in range(about.num_row_groups)]
            needed = sum(group.total_byte_size for group in groups)
            check_memory(max(needed, 8 * about.num_rows * len(names)), f"{file}: its rows")
            read = _categorical(opened.read(columns=list(names)), described)
            return Loaded(read, _unread(schema.names, names), index, {})
    except UsageError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{file}: not a Parquet file: {_without_values(error)}") from None


def _categorical(table: Any, described: Mapping[str, Any]) -> Any:
    """The table with the columns as categories that were such in pandas, whatever their values."""
    for column in described.get("columns", ()):
        name = column.get("field_name")
        if column.get("pandas_type") == "categorical" and name in table.column_names:
            place = table.column_names.index(name)
            table = table.set_column(place, name, table[name].dictionary_encode())
    return table


def _chosen(
    file: Path, header: Sequence[str], wanted: Callable[..., Sequence[str]]
) -> tuple[str, ...]:
    """The wanted columns, of those that have a name; pandas writes an index without one."""
    named = tuple(name for name in header if name.strip() and not name.startswith(INDEX))
    twice = [name for name, times in Counter(named).items() if times > 1]
    if twice:
        raise UsageError(f"{file}: two columns have the name {twice[0]!r}; rename one of them")
    chosen = wanted(file, named)
    for name in chosen:
        if name not in named:
            raise UsageError(f"{file}: lacks the column {name!r}; {nearest(name, named)}")
    return tuple(dict.fromkeys(chosen))


def _joined(columns: Sequence[Any], files: Sequence[Path], name: str) -> Any:
    """A column of all files as a Series."""
    import pandas as pd

    kinds = zip(map(_type, columns), files, strict=True)
    known = [(kind, file) for kind, file in kinds if kind != "nothing"]
    for kind, file in known[1:]:
        first, where = known[0]
        if kind != first:
            said = f"of {kind}, unlike in {where}, where it is of {first}"
            raise UsageError(f"{file}: column {name!r} is {said}")
    series = _signed_alike([_series(column) for column in columns])
    if len(series) == 1:
        return series[0]
    if any(str(each.dtype) == "category" for each in series):  # each with its own list of them
        joined = pd.concat([each.astype("object") for each in series], ignore_index=True)
        return joined.astype("category")
    return pd.concat(series, ignore_index=True)


def _signed_alike(series: list[Any]) -> list[Any]:
    """Signed integers in place of unsigned ones, as far as pandas would join both as floats."""
    from pandas.api.types import is_integer_dtype

    kinds = {each.dtype.kind for each in series}
    if not {"i", "u"} <= kinds or not all(is_integer_dtype(each.dtype) for each in series):
        return series
    if any(each.max() > LARGEST_SIGNED for each in series if each.notna().any()):
        return series  # the reader of the column refuses what is not exact
    return [each.astype("Int64" if each.hasnans else "int64") for each in series]


def _series(column: Any) -> Any:
    """The column as a pandas Series; integers and bools with gaps keep their type."""
    import pandas as pd
    from pyarrow import float64, types

    if types.is_decimal(column.type):
        column = column.cast(float64())
    kept = {
        types.is_unsigned_integer: pd.UInt64Dtype(),
        types.is_integer: pd.Int64Dtype(),
        types.is_boolean: pd.BooleanDtype(),
    }
    gaps = bool(column.null_count)
    kind = next((kept[fits] for fits in kept if gaps and fits(column.type)), None)
    return column.to_pandas(types_mapper=lambda _: kind)


def _type(column: Any) -> str:
    from pyarrow import types

    kind = column.type
    if types.is_null(kind):
        return "nothing"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numbers"
    if types.is_dictionary(kind):
        kind = kind.value_type
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    if any(is_text(kind) for is_text in texts):
        return "texts"
    return "dates" if types.is_temporal(kind) else str(kind)


def _pyarrow() -> Any:
    try:
        import pandas  # noqa: F401
        import pyarrow  # an optional extra
    except ImportError as error:
        raise UsageError(
            f"table: reading tables needs the package {error.name!r}; "
            "install the extra with: pip install 'umbel[data]'"
        ) from error
    return pyarrow


def _without_values(error: Exception) -> str:
    """A reader's message up to the first colon: after it there may be values of a row."""
    return " ".join(str(error).split(":")[0].split())[:160]
