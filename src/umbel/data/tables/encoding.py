"""The encoding of table rows as examples, learnt from training rows, saved for newcomers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from umbel.data.tables.features import Encoder
from umbel.data.tables.kinds import Kind, column_of
from umbel.data.tables.reading import CsvFormat, TableRows
from umbel.data.tables.statistics import Column
from umbel.data.tables.uses import Unused
from umbel.settings import argument
from umbel.summary import in_short

CLOSE_SHARE = 1e-6
"""Largest difference of means and deviations of the same rows between machines.

Differences are relative to the value, or to the deviation if that is larger.
"""

TOKENS = "tokens-"
"""Prefix of the meaning of a table whose tokenizer is known by its content."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The column that is predicted."""

    name: str
    kind: Kind
    classes: tuple[str, ...] | None = None  # names of the labels; None: regression
    mean: float = 0.0  # for regression: subtracted from targets
    deviation: float = 1.0  # for regression: then targets are divided by it
    may_be_missing: bool = False  # whether rows without a target are left out


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """All settings and statistics that turn rows of a table into examples of a run."""

    path_settings: ClassVar[frozenset[str]] = frozenset({"tokenizer"})

    client: str | None  # the column with the client of a row; None: one file per client
    target: Target
    columns: tuple[Column, ...]  # numbers and dates first, then categories, then texts
    scaled: bool = True  # whether numbers are scaled
    buckets: int = 0  # number of features of a text
    tokenizer: str | None = None  # turns the only column of texts into token ids
    tokenizer_digest: str | None = None  # of its content; None: no tokenizer, or not known
    tokens: int = 0  # number of token ids of a text
    form: CsvFormat  # format of CSV files
    unused: tuple[Unused, ...] = ()  # all other columns of the table: they are no inputs

    __repr__ = in_short

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of an example, in order."""
        if self.tokenizer is not None:
            return tuple(f"{self.columns[0].name}: token {n}" for n in range(self.tokens))
        numbers = [c for c in self.columns if c.kind in ("number", "date")]
        found = [c.name for c in numbers]
        found += [f"{c.name} is missing" for c in numbers if c.gaps]
        for column in self._of("category"):
            found += [f"{column.name} is {'missing' if k is None else k}" for k in column.known]
            found += [f"{column.name} is another"] if column.others else []
        for column in self._of("text"):
            found += [f"{column.name}: words of bucket {n}" for n in range(self.buckets)]
        return tuple(found)

    @property
    def meaning(self) -> str:
        """A digest that is equal for encodings with the same features and labels.

        It depends on whether numbers are scaled, but not on the scale; and on what a tokenizer
        holds, but not on its place.
        """
        target = self.target.name, self.target.kind, self.target.classes
        kinds = [(column.name, column.kind) for column in self.columns]
        tokenizer = self.tokenizer_digest or self.tokenizer
        said = json.dumps([self.features, kinds, self.scaled, tokenizer, target])
        prefix = TOKENS if self.tokenizer_digest else ""
        return prefix + hashlib.sha256(said.encode()).hexdigest()

    def encoder(self, rows: TableRows) -> Encoder:
        """The function from rows of another table to features."""
        read = [column_of(rows, column.name, column.kind) for column in self.columns]
        return Encoder(rows, self.columns, read, self.scaled, self.buckets)

    def is_like(self, other: Encoding) -> bool:
        """Whether both make the same examples from the same rows, up to rounding."""
        if not self.has_tokenizer_of(other) or self._bare() != other._bare():
            return False
        here, there = self._scales(), other._scales()
        off = np.abs(here - there) > CLOSE_SHARE * np.maximum(np.abs(here), here[:, [1]])
        return not bool(off.any())

    def has_tokenizer_of(self, other: Encoding) -> bool:
        """Whether both have the same tokenizer, or none; by its place if one is not known."""
        digests = self.tokenizer_digest, other.tokenizer_digest
        return digests[0] == digests[1] if all(digests) else self.tokenizer == other.tokenizer

    def plain(self) -> dict[str, Any]:
        """The encoding in a form for JSON, with descriptions of the features."""
        return {**asdict(self), "features": self.features}

    @classmethod
    def from_plain(cls, table: Mapping[str, Any]) -> Encoding:
        """The encoding that `plain` wrote. Raises `ValueError` or `LookupError` for others."""
        besides = ("features", "run", "model")  # which say what the file is about
        given = {name: value for name, value in table.items() if name not in besides}
        form, target = dict(given["form"]), dict(given["target"])
        classes = target["classes"]
        target |= {"classes": None if classes is None else _texts(classes)}
        known = [{**each, "known": _texts(each["known"], str | None)} for each in given["columns"]]
        parts = {
            "form": _checked(CsvFormat, {**form, "missing": _texts(form["missing"])}),
            "target": _checked(Target, target),
            "columns": tuple(_checked(Column, each) for each in known),
            "unused": tuple(_checked(Unused, each) for each in given.get("unused", ())),
        }
        found = _checked(cls, {**given, **parts})
        fine = found.columns and len(found.form.separator) == 1 and found._scales()[:, 1].min() > 0
        if not fine or min(found.buckets, found.tokens) < 0:
            raise ValueError("a value is out of range")
        return found

    def _of(self, kind: Kind) -> list[Column]:
        return [column for column in self.columns if column.kind == kind]

    def _scales(self) -> NDArray[np.float64]:
        """The mean and the deviation of each column and of the target."""
        of_columns = [(column.mean, column.deviation) for column in self.columns]
        return np.array([*of_columns, (self.target.mean, self.target.deviation)])

    def _bare(self) -> Encoding:
        """The same without scales, tokenizer and unused columns."""
        columns = tuple(replace(column, mean=0.0, deviation=1.0) for column in self.columns)
        target = replace(self.target, mean=0.0, deviation=1.0)
        bare = replace(self, columns=columns, target=target, unused=())
        return replace(bare, tokenizer=None, tokenizer_digest=None)


def meaning_of(encoding: object) -> str:
    """The meaning of an encoding of a table, "" for anything else."""
    return encoding.meaning if isinstance(encoding, Encoding) else ""


def _texts(values: Sequence[Any], kind: Any = str) -> tuple[Any, ...]:
    """A list of texts of any length."""
    if not isinstance(values, list):
        raise TypeError("not a list of texts")
    return tuple(argument("text", value, kind) for value in values)


def _checked(kind: type[T], table: Mapping[str, Any]) -> T:
    """A dataclass with these values, whose simple fields have the annotated types."""
    hints = get_type_hints(kind)
    single = (str, int, float, bool, list, dict, NoneType)
    return kind(
        **{
            name: argument(name, value, hints[name]) if isinstance(value, single) else value
            for name, value in table.items()
        }
    )
