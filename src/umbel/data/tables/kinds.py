"""Kinds of columns, recognised by their values: numbers, dates, categories and texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data.tables.reading import TableRows
from umbel.data.tables.wording import to_write
from umbel.summary import in_short

Kind = Literal["number", "date", "category", "text"]

MOST_OF_A_KIND = 0.5
"""Share of values of one kind from which a column is probably of that kind."""

DAY = 86_400.0
"""Seconds of a day: dates become numbers of days."""

ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
"""The start of a correctly written date."""

YEAR = r"\d{4}"
"""The start of anything that is read as a date."""

SPACES = " '\u2019\u00a0\u202f"
"""Characters that separate thousands in some countries."""

NUMBER = re.compile(
    r"[+-]?(\d+,\d+"
    r"|\d{1,3}(,\d{2,3})*,\d{3}(\.\d+)?"  # 1,250.50 and 12,50,000
    r"|\d{1,3}(\.\d{3})+(,\d+)?"  # 1.250,50
    rf"|\d{{1,3}}([{SPACES}]\d{{3}})+([.,]\d+)?)"  # 1 250
)
"""A number with a comma in place of the point, or with separated thousands."""

PLAIN = re.compile(r"[+-]?\d+(\.\d+)?")

NO_LIST = re.compile(
    r"[+-]\d+,\d+|0,\d+|[+-]?\d{1,3}(,\d{2,3})+\.\d+|[+-]?\d{1,3}(\.\d{3})+,\d+"
    rf"|[+-]?\d{{1,3}}([{SPACES}]\d{{3}})+([.,]\d+)?"
)
"""A number with a comma that can't be a list of choices, such as 1,3: plain ones are then alike."""

SIGNED = re.compile(
    r"[+-]?[$€£¥] ?[+-]?\d[\d.,]*|[+-]?\d[\d.,]* ?[%$€£¥]|\(\d[\d.,]*\)|\u2212\d[\d.,]*"
)
"""A number with a sign of money or per cent, in brackets, or behind a typographic minus."""

UNIT = re.compile(r"[+-]?\d[\d.,]* ?([^\d\s.,]{1,8})")

MANY = 20
"""Different texts of numbers with one unit from which they are no categories."""

FEWEST_DATES = 10
"""Fewest different numbers such as 20130131 that are taken for dates."""

MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"

ELSEWHERE = (
    (NUMBER, "numbers such as 0,5 or 1,250", "as 0.5 and 1250"),
    (SIGNED, "numbers with signs such as 5%, $5 or (5)", "as 5 or -5"),
    (
        re.compile(
            r"(\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"
            rf"|\d{{1,2}}\.?[ -]{MONTH}[ -]\d{{2,4}}|{MONTH} \d{{1,2}}, ?\d{{4}})"
            r"([ T,]+\d{1,2}:\d{2}.*)?",
            re.IGNORECASE,
        ),
        "dates such as 31.1.2013",
        "as 2013-01-31",
    ),
    (
        re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]\.?m\.?)?", re.IGNORECASE),
        "times such as 12:30",
        "as 12.5",
    ),
)
"""Numbers, dates and times in other formats, which would become categories."""

GAPS = frozenset(
    {"?", "-", "--", "*", ".", "..", "n.a.", "na", "none", "nil", "missing", "unknown", "\\n"}
    | {"#n/a", "n/a", "null", "nan", "<na>", "nat", "(null)", "#value!", "#div/0!", "#ref!"}
)
"""Texts, in small letters, that often stand for a missing value."""

EXACT = 2**53
"""A smaller integer is the only one that a 64-bit float of its value can stand for."""


@dataclass(frozen=True)
class Numbers:
    """A column of numbers; dates are days since 1970, with fractions."""

    name: str
    values: NDArray[np.float64]  # (n,) NaN if missing
    whole: bool  # whether all were written as integers
    dates: bool = False  # whether the values are days

    __repr__ = in_short


@dataclass(frozen=True)
class ColumnWords:
    """A column of texts, which stores each different text once."""

    name: str
    codes: NDArray[np.int64]  # (n,) index into the words; -1 if missing
    words: tuple[str, ...]

    __repr__ = in_short

    def word(self, row: int) -> str | None:
        """The text of a row."""
        return None if self.codes[row] < 0 else self.words[self.codes[row]]


def column_of(rows: TableRows, name: str, kind: Kind | None = None) -> Numbers | ColumnWords:
    """A column as the given kind, or as the kind of its values.

    Raises `UsageError`, with the row, for a value of another kind, and for infinite numbers.
    """
    if kind in ("category", "text"):
        return _words(rows, name)
    found = kind or kind_of(rows, name)
    if found == "number":
        return _numbers(rows, name)
    return _dates(rows, name) if found == "date" else _words(rows, name)


def whole_numbers(rows: TableRows, name: str) -> NDArray[Any]:
    """The integers in a column of integers, row by row without missing ones, all exact.

    Raises `UsageError`, with the row, if one was read as a float that may stand for other integers,
    too.
    """
    from pandas.api import types

    series = rows.columns[name]
    numbers = _as_numbers(series[series.notna()])
    if not types.is_float_dtype(numbers.dtype):
        kind = np.uint64 if types.is_unsigned_integer_dtype(numbers.dtype) else np.int64
        return np.asarray(numbers.to_numpy(dtype=kind))
    fault = "is too large to be exact; give classes as words, or as 64-bit integers"
    _refuse(rows, name, numbers.abs() >= EXACT, fault)
    return np.asarray(numbers.to_numpy(dtype=np.float64)).astype(np.int64)


def kind_of(rows: TableRows, name: str, is_target: bool = False) -> Kind:
    """The kind of a column by its type, or by all its values. Raises as `column_of` does."""
    from pandas.api import types

    settings = "categories" if is_target else "categories or leave_out"

    series = rows.columns[name]
    kind = series.dtype
    if str(kind) == "category":
        return "category"
    if types.is_numeric_dtype(kind):  # bools, too
        return "number"
    if types.is_datetime64_any_dtype(kind):
        return "date"
    values = series.dropna()
    if not len(values):
        return "number"
    first = values.iloc[0]
    if rows.typed:
        return _kind_of_objects(rows, name, first)
    if _most(rows, name, "numbers", _as_numbers(values).notna(), is_target):
        return "number"
    if _most(rows, name, "dates", _as_dates(values).notna(), is_target):
        return "date"
    for form, what, right in ELSEWHERE:
        alike = _matching(values, form)
        sure = NO_LIST if form is NUMBER else SIGNED if form is SIGNED else None
        if sure is not None and _matching(values, sure).any():
            alike |= _matching(values, PLAIN)
        if alike.mean() > MOST_OF_A_KIND:
            said = f"column {name!r} seems to hold {what}: write them {right}"
            raise UsageError(f"{rows.files[0]}: {said}, or name it in {settings}")
    if unit := _unit(values):
        said = f"column {name!r} seems to hold numbers of {unit!r}: write them without the unit"
        raise UsageError(f"{rows.files[0]}: {said}, or name it in {settings}")
    return "category"


def are_codes(rows: TableRows, column: Numbers) -> bool:
    """Whether a CSV file writes numbers with leading zeros, as codes of places have them."""
    if rows.typed or column.dates or not column.whole:
        return False
    return bool(rows.columns[column.name].str.match(r"0\d", na=False).any())


def are_dates(column: Numbers) -> bool:
    """Whether all numbers are dates such as 20130131."""
    values = column.values[~np.isnan(column.values)]
    fine = (values >= 19_000_101) & (values <= 21_001_231) & (values % 1 == 0)
    month, day = values // 100 % 100, values % 100
    fine &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return len(np.unique(values)) >= FEWEST_DATES and bool(fine.all())


def _unit(values: Any) -> str:
    """The unit that most of many different numbers have; "" for other texts."""
    words = [UNIT.fullmatch(word) for word in values.unique()]
    units = Counter(found[1] for found in words if found)
    unit, times = units.most_common(1)[0] if units else ("", 0)
    return unit if times > max(MANY, MOST_OF_A_KIND * len(words)) else ""


def _matching(values: Any, form: re.Pattern[str]) -> Any:
    """Which values, of a series, the form matches as a whole."""
    return values.map(lambda text: form.fullmatch(text) is not None)


def _kind_of_objects(rows: TableRows, name: str, first: Any) -> Kind:
    """The kind of a column of Python objects, for Parquet types without a numeric pandas type."""
    import datetime

    if isinstance(first, str):
        return "category"
    if isinstance(first, bool | int | float):
        return "number"
    if isinstance(first, datetime.date):
        return "date"
    what = type(first).__name__
    said = f"column {name!r} holds values of type {what}, not numbers, dates or texts"
    raise UsageError(f"{rows.files[0]}: {said}; name it in leave_out")


def _most(rows: TableRows, name: str, kind: str, fits: Any, is_target: bool) -> bool:
    """Whether all values are of a kind. Raises `UsageError` if only most of them are."""
    if bool(fits.all()):
        return True
    if fits.mean() <= MOST_OF_A_KIND:
        return False
    row = int(fits.index[int(np.argmin(fits.to_numpy()))])
    text = str(rows.columns[name][row]).strip()
    if text.lower() in GAPS or not text:
        how = (
            f"if {text!r} stands for a missing value, {to_write('missing', [*rows.missing, text])}"
        )
    elif NUMBER.fullmatch(text):
        how = "is it a number with a comma, as 1,250 is: write it without the comma"
    else:
        how = "write it as one of these, as other rows have it" if is_target else "correct it"
    if is_target:
        how += "; if it is a class of its own, name the column in categories"
    else:
        how += ", or name the column in categories or leave_out"
    where = rows.at(row, name)
    raise UsageError(f"{where}: is a text, but most of this column are {kind}; {how}")


def _numbers(rows: TableRows, name: str) -> Numbers:
    from pandas.api import types

    series = rows.columns[name]
    there = series.notna()
    numbers = _as_numbers(series[there])
    _refuse(rows, name, numbers.isna(), "is not a number")
    values = _spread(there, numbers.to_numpy(dtype=np.float64))
    infinite = np.isinf(values)
    if infinite.any():
        how = "correct it, or name the column in leave_out"
        raise UsageError(f"{rows.at(int(infinite.argmax()), name)}: is infinite; {how}")
    written = types.is_integer_dtype(numbers.dtype) or types.is_bool_dtype(numbers.dtype)
    return Numbers(name, values, whole=bool(written))


def _dates(rows: TableRows, name: str) -> Numbers:
    series = rows.columns[name]
    there = series.notna()
    dates = _as_dates(series[there])
    _refuse(rows, name, dates.isna(), "is not a date such as 2013-01-31 or 2013-01-31T12:30")
    values = _spread(there, dates.astype("datetime64[us, UTC]").astype("int64") / (1e6 * DAY))
    return Numbers(name, values, whole=False, dates=True)


def _spread(there: Any, values: Any) -> NDArray[np.float64]:
    """Values in the rows that have a value, and NaN in the others."""
    found = np.full(len(there), np.nan)
    found[there.to_numpy()] = values
    return found


def _words(rows: TableRows, name: str) -> ColumnWords:
    from pandas.api import types

    series = rows.columns[name]
    if types.is_float_dtype(series.dtype):
        there = series[series.notna()]
        unsure = (there.abs() >= EXACT) & (there % 1 == 0)
        _refuse(rows, name, unsure, "is too large to be exact; give all files integers or texts")
    codes, values = series.astype("object").factorize()
    words = [_written(value) for value in values]
    there = set(words)
    like = {_bare(word): word for word in reversed(words)}  # among equal ones, the first
    spelled = [bare if (bare := _bare(word)) in there else like[bare] for word in words]
    place = {word: number for number, word in enumerate(dict.fromkeys(spelled))}
    numbers = np.array([*(place[word] for word in spelled), -1])  # missing values have the code -1
    return ColumnWords(name, numbers[np.asarray(codes, dtype=np.int64)], tuple(place))


def as_known(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """Each word in the spelling of the known words, if it differs only in how it is written."""
    spelling = {_bare(word): word for word in known} | {word: word for word in known}
    return [spelling.get(word) or spelling.get(_bare(word), word) for word in words]


def _written(value: object) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)  # type: ignore[call-overload]


def _bare(word: str) -> str:
    """A code without the float or bool spelling that integers get in columns with gaps."""
    whole, _, rest = word.partition(".")
    if whole.lstrip("-").isdigit() and not rest.strip("0"):
        return whole
    return word.capitalize() if word.lower() in ("true", "false") else word


def _as_numbers(values: Any) -> Any:
    """The values as numbers, NaN if they are not; a text column of bools becomes 0 and 1."""
    import pandas as pd
    from pandas.api import types

    if not types.is_numeric_dtype(values.dtype):
        bare = values.astype(str).str.lower()
        if bare.isin(("true", "false")).all():
            return bare == "true"
    return pd.to_numeric(values, errors="coerce")


def _as_dates(values: Any) -> Any:
    import pandas as pd
    from pandas.api import types

    if not types.is_datetime64_any_dtype(values.dtype):
        # pandas takes "now" and "today" for the moment in which they are read.
        texts = values.astype(str)
        values = (texts if types.is_integer_dtype(values.dtype) else values).where(
            texts.str.strip().str.match(YEAR)
        )
    return pd.to_datetime(values, errors="coerce", format="ISO8601", utc=True)


def _refuse(rows: TableRows, name: str, unfit: Any, fault: str) -> None:
    if bool(unfit.any()):
        row = int(unfit.index[int(np.argmax(unfit.to_numpy()))])
        raise UsageError(f"{rows.at(row, name)}: {fault}")
