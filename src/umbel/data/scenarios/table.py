"""Clients in tables: a CSV or Parquet file of all clients, or a folder with one file each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_least, check_memory
from umbel.data.federation import Federation
from umbel.data.scaling import Scale, federated, pooled
from umbel.data.scenarios.base import Planned, Scenario, check_unplanned
from umbel.data.sources import Sources
from umbel.data.split_names import SPLIT, check_no_splits
from umbel.data.splits import for_validation
from umbel.data.tables.clients import (
    Clients,
    clients_of,
    known_of,
    texts_of,
    warn_of_copies,
    warn_of_spellings,
)
from umbel.data.tables.encoding import Encoding, Target
from umbel.data.tables.features import Encoder, in_single
from umbel.data.tables.kinds import (
    ISO_DATE,
    ColumnWords,
    Kind,
    Numbers,
    are_codes,
    are_dates,
    column_of,
    kind_of,
)
from umbel.data.tables.missing import with_words
from umbel.data.tables.named import check_named
from umbel.data.tables.parts import (
    PARTS,
    Parts,
    Places,
    by_column,
    check_fractions,
    client_generator,
    divided,
    few,
    in_time,
)
from umbel.data.tables.reading import CsvFormat, TableRows, read_rows
from umbel.data.tables.statistics import Column, Source, columns_of
from umbel.data.tables.targets import Targets, Task, targets_of
from umbel.data.tables.tokens import Tokens, tokens_of
from umbel.data.tables.uses import Unused, doubtful, indexes, sentence
from umbel.data.tables.wording import listed, to_write
from umbel.files.reading import files_in
from umbel.settings import whole_path
from umbel.summary import MOST_LISTED, in_short

LEAVE_OUT = "name it in leave_out"

logger = logging.getLogger(__name__)

MISSING = (*("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL", "None"),)
"""Texts that mean a missing value in CSV files."""


@dataclass(frozen=True)
class _Read:
    """The rows of a table that clients have."""

    rows: TableRows
    targets: Targets
    clients: Clients
    owners: NDArray[np.int64]  # (n,) the client of each row
    unused: tuple[Unused, ...]

    __repr__ = in_short

    @property
    def num_classes(self) -> int | None:
        """The number of classes; None for regression."""
        return None if self.targets.classes is None else len(self.targets.classes)


@dataclass(frozen=True)
class _Learnt:
    """How rows become examples."""

    inputs: Encoder | Tokens
    labels: Callable[[Places], NDArray[Any]]
    encoding: Encoding

    __repr__ = in_short

    def pair(self, places: Places) -> tuple[NDArray[Any], NDArray[Any]]:
        """The inputs and labels in these rows."""
        return self.inputs(places), self.labels(places)


@dataclass(frozen=True, kw_only=True)
class Table(Scenario):
    """The rows of a table; each row belongs to a client, and no groups are planted.

    Numbers are standardised by mean and deviation over all training rows; missing ones become the
    mean, with an additional indicator feature. Dates become numbers of days. Each category, and a
    missing one, has an indicator. Texts become counts of hashed words. The statistics come from
    training rows only. With a `tokenizer`, examples are the token ids of one text column. Raises
    `UsageError` for settings that do not fit together.
    """

    path: str = "table.csv"  # a .csv or .parquet file, or a folder with one per client
    source: str | None = None  # instead of path: a file or folder in the data directory
    client: str | None = None  # column with the client of each row; folders: the file's name
    target: str = "target"  # the column to predict
    task: Task = "auto"  # auto: words, bools and whole numbers are classes
    columns: tuple[str, ...] = ()  # columns to predict from; (): all without another use
    leave_out: tuple[str, ...] = ()  # columns that are not used
    numbers: tuple[str, ...] = ()  # columns that are read as numbers
    categories: tuple[str, ...] = ()  # columns that are read as categories
    dates: tuple[str, ...] = ()  # columns that are read as dates
    texts: tuple[str, ...] = ()  # columns whose words are counted
    attributes: tuple[str, ...] = ()  # columns with one value per client, to compare clusters with
    # how rows are divided into training, validation and test
    split: Literal["random", "time", "column"] = "random"
    time: tuple[str, ...] = ()  # columns that define the order in time, the coarsest first
    split_column: str | None = None  # column with the values train, validation or test
    test_fraction: float = 0.15  # of each client's rows; in time, the last
    validation_fraction: float | None = None  # of what is not for the test; in time, its last
    train_rows: int = 0  # most training rows of a client, at random; 0: all
    validation_rows: int = 0  # most validation rows of a client, at random; 0: all
    test_rows: int = 0  # most test rows of a client, at random; 0: all
    least_rows: int = 0  # clients with fewer training rows are left out; 0: they are an error
    drop_unlabelled: bool = False  # whether rows without a target are left out
    statistics: Source = "pooled"  # federated: only from clients' counts, sums and lists
    least_clients: int = 1  # fewest clients with a category that has its own feature
    scale: bool = True  # whether numbers are scaled
    scale_target: bool = False  # whether the targets of a regression are scaled, too
    most_categories: int = 100  # columns with more are an error: they are texts or names
    text_features: int = 256  # number of buckets for the words of a text column
    # encoder whose tokenizer turns the only text column into token ids
    tokenizer: str | None = None
    # token ids per text, cut or padded; None: as many as the longest has
    text_tokens: int | None = None
    separator: str = ","  # separator of columns in CSV files
    missing: tuple[str, ...] = MISSING  # texts that mean a missing value in CSV files

    def __post_init__(self) -> None:
        check_fractions(self.validation_fraction, self.test_fraction)
        check_least(self, 0, "train_rows", "validation_rows", "test_rows", "least_rows")
        check_least(self, 1, "least_clients", "most_categories", "text_features")
        least = self.text_tokens is None or self.text_tokens >= 1
        check(least, "text_tokens", self.text_tokens, "1 or more")
        fine = len(self.separator) == 1 and self.separator.isascii()
        check(fine, "separator", self.separator, "one ASCII character")
        said = bool(self.time) == (self.split == "time")
        check(said or bool(self.time), "time", self.time, 'filled, as split = "time" needs')
        by, column = self.split == "column", self.split_column
        check(not by or column is not None, "split_column", column, "a column, as this split needs")
        kinds = (*self.numbers, *self.categories, *self.dates, *self.texts)
        check(self.target != self.client, "target", self.target, "another column than client")
        told = sorted({self.target, self.client or self.target} & {*self.columns})
        check(not told, "columns", told, "allowed: the target and the client are not inputs")
        text = self.target not in self.texts
        check(text, "texts", self.target, "allowed: it is the target; see categories")
        twice = sorted({name for name in kinds if kinds.count(name) > 1})
        check(not twice, "columns", twice, "limited to one kind each")
        both = sorted({*self.columns} & {*self.leave_out})
        check(not both, "leave_out", both, "allowed: columns names it, too")

    def build(self, seed: int, sources: Sources) -> Federation:
        read = self._read(sources)
        clients, parts = self._kept(read.clients, self._parts(read.rows, read.clients, seed))
        of_split = {kind: [getattr(part, kind) for part in parts] for kind in PARTS}
        learnt = self._learnt(read, clients, of_split["train"], of_split.values())
        train, validation, test = (list(map(learnt.pair, mine)) for mine in of_split.values())
        federation = Federation.from_arrays(
            train,
            test,
            validation=for_validation(validation, self.validation_fraction),
            attributes=known_of(read.rows, clients, self.attributes),
            names=clients.names,
            num_classes=read.num_classes,
        )
        return replace(federation, encoding=learnt.encoding)

    def over_time(
        self, seed: int, sources: Sources, steps: int | None, schedule: Planned
    ) -> Federation:
        """Build the federation with a step for each value of the first column of `time`.

        That column is no input. A client without rows in a step is absent in it. Clients keep at
        most `train_rows` of each step; those with no rows in all steps but the last, or with fewer
        than `least_rows`, are left out. Test and validation settings are not used. The encoding is
        learnt from the first step alone, which is all that is known when training begins:
        categories that come later have no feature of their own.
        """
        check(bool(self.time), "time", self.time, "filled: its first column gives the steps")
        check_unplanned(schedule, "the rows of the table give the steps")
        inputs = tuple(name for name in self.columns if name != self.time[0])
        if inputs != self.columns or self.split != "time":
            dated = replace(self, columns=inputs, split="time")
            return dated.over_time(seed, sources, steps, schedule)
        read = self._read(sources)
        times = self._times(read.rows)
        moments = np.unique(times[0].values[np.concatenate(read.clients.rows)])
        moments = moments[: None if steps is None else steps + 1]
        # (M, T) the rows of each client in each step.
        of_each = []
        for client, mine in enumerate(in_time(read.rows, read.clients.rows, times)):
            draw, when = client_generator(seed, client), times[0].values[mine]
            shards = [few(mine[when == each], self.train_rows, draw) for each in moments]
            of_each.append(shards)
        counts = [sum(map(len, mine[:-1])) for mine in of_each]
        kept = [n for n, count in enumerate(counts) if count >= max(self.least_rows, 1)]
        clients, of_each = read.clients.pick(kept), [of_each[n] for n in kept]
        present = [n for n, mine in enumerate(of_each) if len(mine[0])]
        expected = "low enough: no client with so many rows has any in the first step"
        check(bool(present), "least_rows", self.least_rows, expected)
        first = [of_each[n][0] for n in present]
        learnt = self._learnt(read, clients.pick(present), first, of_each)
        federation = Federation.over_time(
            (list(map(learnt.pair, batch)) for batch in zip(*of_each, strict=True)),
            attributes=known_of(read.rows, clients, self.attributes),
            names=clients.names,
            num_classes=read.num_classes,
        )
        return replace(federation, encoding=learnt.encoding)

    def _read(self, sources: Sources) -> _Read:
        """Read the rows that clients have, with targets and columns to predict from."""
        path = whole_path(self.path) if self.source is None else sources.path(self.source)
        wanted = partial(self._wanted, of_all=path.is_file())
        rows = read_rows(path, CsvFormat(self.separator, self.missing), wanted)
        if path.is_dir():  # a column that only some files have may be left out
            every, named = (*rows.columns, *rows.unread), {"leave_out": self.leave_out}
            check_named(rows.files[0], every, named, None, self.separator)
        check_no_splits([file.stem for file in rows.files])
        targets = targets_of(rows, self.target, self.task, self._kinds.get(self.target))
        _warn_of_classes(rows, self.target, targets.classes or ())
        clients = clients_of(rows, self.client, self._usable(rows, targets))
        _warn_of_single_rows(rows, clients, self.client)
        owners = clients.owners(len(rows))
        left_out = indexes(rows, self._features(tuple(rows.columns)), owners, self._named)
        unused = (*self._unused(rows), *left_out)
        rows = rows.without({each.name for each in left_out})
        others = listed(each.name for each in left_out)
        inputs = self._features(tuple(rows.columns))
        expected = "enough to predict from: besides there are only indexes and empty columns"
        check(bool(inputs), f"{rows.files[0]}: columns", others, expected)
        return _Read(rows, targets, clients, owners, unused)

    def _learnt(
        self,
        read: _Read,
        clients: Clients,
        train: Sequence[Places],  # the rows of each client to learn from
        every: Iterable[Sequence[Places]],  # all rows of examples
    ) -> _Learnt:
        """Learn how rows become examples."""
        rows, targets = read.rows, read.targets
        labels = None if targets.classes is None else targets.values
        encode = self._reader(rows, train, read.owners, labels)
        warn_of_copies(rows, clients, self.client)
        if isinstance(encode, Encoder):
            encode.warn_of_units(train, clients.names)
            _warn_of_splits(
                words
                for column, words in zip(encode.columns, encode.values, strict=True)
                if isinstance(words, ColumnWords) and column.kind == "category"
            )
        count = sum(len(places) for some in every for places in some)
        check_memory(8 * count * encode.width, "table: the features of all rows")
        scale = self._target_scale(targets, train)
        encoding = self._encoding(rows, encode, targets, scale, read.unused)
        return _Learnt(encode, _scaled(targets, scale, self.target, rows), encoding)

    def _wanted(self, file: Path, header: Sequence[str], of_all: bool) -> Sequence[str]:
        """The columns to read; `of_all`: from one file of all clients."""
        lists = ("columns", "numbers", "categories", "dates", "texts", "leave_out", "attributes")
        settings = ("client", "target", "time", "split_column", *lists)
        named = {setting: getattr(self, setting) for setting in settings}
        if not of_all:
            del named["leave_out"]
        unknown = "client" if of_all and self.client is None else None
        folder = [] if of_all else files_in(file.parent, ".csv")
        others = [each for each in folder if each != file]
        check_named(file, header, named, unknown, self.separator, others)
        features = self._features(header)
        check(bool(features), f"{file}: columns", list(header), "enough to predict from")
        return (*self._used(), *features)

    def _used(self) -> tuple[str, ...]:
        """Columns with another use in this split."""
        by = {"random": (), "time": self.time, "column": (str(self.split_column),)}
        client = () if self.client is None else (self.client,)
        return (*client, self.target, *by[self.split], *self.attributes)

    def _features(self, header: Sequence[str]) -> tuple[str, ...]:
        """The columns to predict from, in the order of the table unless they are named."""
        taken = {*self._used(), *self.leave_out, *self.time, self.split_column}
        return self.columns or tuple(name for name in header if name not in taken)

    @property
    def _named(self) -> frozenset[str]:
        """The columns that settings name as inputs."""
        return frozenset((*self.columns, *self._kinds))

    def _unused(self, rows: TableRows) -> list[Unused]:
        """The columns that settings put to another use, or to none."""
        uses = dict(rows.unread)
        uses |= dict.fromkeys(self.attributes, "attribute")
        uses |= {name: "time" for name in self.time if self.split == "time"}
        uses |= {str(self.split_column): "split"} if self.split == "column" else {}
        inputs = {*self._features(tuple(rows.columns)), self.target, self.client}
        return [Unused(name=name, use=use) for name, use in uses.items() if name not in inputs]

    def _usable(self, rows: TableRows, targets: Targets) -> NDArray[np.bool_]:
        if targets.missing.any() and not self.drop_unlabelled:
            where = rows.at(int(targets.missing.argmax()), self.target)
            what = "a number" if targets.classes is None else "a class"
            said = with_words(f"{where}: is missing", rows, self.target, what)
            count = f"{int(targets.missing.sum()):,} of {len(rows):,}"
            raise UsageError(f"{said}; drop_unlabelled = true leaves out {count} rows")
        return ~targets.missing

    def _parts(self, rows: TableRows, clients: Clients, seed: int) -> list[Parts]:
        """The rows of each client for training, validation and test."""
        fractions = self.validation_fraction or 0.0, self.test_fraction
        draws = [client_generator(seed, client) for client in range(len(clients.names))]
        if self.split == "column":
            said = texts_of(rows, str(self.split_column))
            parts = [by_column(rows, mine, said) for mine in clients.rows]
        elif self.split == "time":
            ordered = in_time(rows, clients.rows, self._times(rows))
            parts = [divided(mine, fractions) for mine in ordered]
        else:
            shards = zip(clients.rows, draws, strict=True)
            parts = [divided(mine, fractions, draw) for mine, draw in shards]
        most = self.train_rows, self.validation_rows, self.test_rows
        return [part.limited(most, draw) for part, draw in zip(parts, draws, strict=True)]

    def _times(self, rows: TableRows) -> list[Numbers]:
        """The columns of the time."""
        columns = [column_of(rows, name, self._kind(rows, name)) for name in self.time]
        times = [column for column in columns if isinstance(column, Numbers)]
        check(len(times) == len(columns), "time", self.time, "columns of numbers or dates")
        return times

    def _kept(self, clients: Clients, parts: list[Parts]) -> tuple[Clients, list[Parts]]:
        """The clients with enough training rows."""
        fine = [place for place, part in enumerate(parts) if len(part.train) >= self.least_rows]
        expected = "low enough: no client has so many rows"
        if 0 < self.train_rows < self.least_rows:
            expected = f"at most train_rows = {self.train_rows}, the most that clients keep"
        check(bool(fine), "least_rows", self.least_rows, expected)
        for place in fine:
            if not len(parts[place].train):
                advice = "least_rows = 1 leaves such clients out"
                raise UsageError(f"client {clients.names[place]}: has no training rows; {advice}")
        return clients.pick(fine), [parts[place] for place in fine]

    @property
    def _kinds(self) -> dict[str, Kind]:
        """The kinds of columns that are set."""
        said: tuple[tuple[Kind, tuple[str, ...]], ...] = (
            ("number", self.numbers),
            ("category", self.categories),
            ("date", self.dates),
            ("text", self.texts),
        )
        return {name: kind for kind, names in said for name in names}

    def _kind(self, rows: TableRows, name: str) -> Kind:
        return self._kinds.get(name) or kind_of(rows, name)

    def _reader(
        self,
        rows: TableRows,
        train: Sequence[Places],
        owners: NDArray[np.int64],
        labels: NDArray[Any] | None,
    ) -> Encoder | Tokens:
        """The function from rows to inputs."""
        if self.tokenizer is None:
            return self._encoder(rows, train, owners, labels)
        names = self._features(tuple(rows.columns))
        check(len(names) == 1, "columns", names, "one column of texts, as a tokenizer needs")
        return tokens_of(texts_of(rows, names[0]), self.tokenizer, self.text_tokens)

    def _encoder(
        self,
        rows: TableRows,
        train: Sequence[Places],
        owners: NDArray[np.int64],
        labels: NDArray[Any] | None,
    ) -> Encoder:
        """The function from rows to features, learnt from the training rows."""
        names = self._features(tuple(rows.columns))
        kinds = {name: self._kind(rows, name) for name in names}
        columns = [column_of(rows, name, kind) for name, kind in kinds.items()]
        numbers = [column for column in columns if isinstance(column, Numbers)]
        texts = [c for c in columns if isinstance(c, ColumnWords) and kinds[c.name] == "text"]
        categories = [
            c for c in columns if isinstance(c, ColumnWords) and kinds[c.name] == "category"
        ]
        for column in categories:
            count, most = len(column.words), self.most_categories
            dates = all(ISO_DATE.match(word) for word in column.words)
            kind = "dates" if dates else "texts"
            leave = to_write("leave_out", [*self.leave_out, column.name])
            expected = f"at most most_categories = {most}; {leave}, or name it in {kind}"
            where = f"{rows.files[0]}: column {column.name!r}"
            check(count <= most, where, f"{count:,} categories", expected)
            warn_of_spellings(rows, f"categories of {column.name!r} that", column.words)
        columns_read: tuple[Numbers | ColumnWords, ...] = (*numbers, *categories)
        inputs = [column for column in columns_read if column.name not in self._named]
        if codes := [c.name for c in inputs if isinstance(c, Numbers) and are_codes(rows, c)]:
            what = sentence("numbers with leading zeros, as codes have", codes)
            how = to_write("categories", [*self.categories, *codes])
            logger.warning("%s: %s; if they are codes, %s", rows.files[0], what, how)
        if days := [c.name for c in inputs if isinstance(c, Numbers) and are_dates(c)]:
            what = sentence("whole numbers that are dates such as 20130131", days)
            how = to_write("dates", [*self.dates, *days])
            logger.warning("%s: %s; to read them as dates, %s", rows.files[0], what, how)
        inputs = [column for column in inputs if column.name not in days]
        doubts = doubtful(inputs, np.concatenate(train), owners, labels)
        every = [name for found in doubts.values() for name in found]
        how = to_write("leave_out", [*self.leave_out, *every]) if len(every) <= MOST_LISTED else ""
        for fault, found in doubts.items():
            what = sentence(fault, found)
            logger.warning("%s: %s; to leave it out, %s", rows.files[0], what, how or LEAVE_OUT)
        known = columns_of(numbers, categories, train, self.statistics, self.least_clients)
        all_columns = (*known, *(Column(name=text.name, kind="text") for text in texts))
        read: tuple[Numbers | ColumnWords, ...] = (*numbers, *categories, *texts)
        return Encoder(rows, all_columns, read, self.scale, self.text_features)

    def _target_scale(self, targets: Targets, train: Sequence[Places]) -> Scale | None:
        """The scale of targets, from training rows, if they are scaled."""
        if targets.classes is not None or not self.scale_target:
            return None
        columns = [targets.values[rows, None] for rows in train]
        return (
            federated(columns)
            if self.statistics == "federated"
            else pooled(np.concatenate(columns))
        )

    def _encoding(
        self,
        rows: TableRows,
        encode: Encoder | Tokens,
        targets: Targets,
        scale: Scale | None,
        unused: tuple[Unused, ...],
    ) -> Encoding:
        """The encoding of newcomers' rows as examples."""
        target = Target(
            name=self.target,
            kind=targets.kind,
            classes=targets.classes,
            mean=0.0 if scale is None else float(scale.mean[0]),
            deviation=1.0 if scale is None else float(scale.deviation[0]),
            may_be_missing=self.drop_unlabelled,
        )
        form = CsvFormat(self.separator, self.missing)
        if isinstance(encode, Encoder):
            return Encoding(
                client=self.client,
                target=target,
                columns=encode.columns,
                scaled=self.scale,
                buckets=self.text_features,
                form=form,
                unused=unused,
            )
        return Encoding(
            client=self.client,
            target=target,
            columns=(Column(name=self._features(tuple(rows.columns))[0], kind="text"),),
            tokenizer=self.tokenizer,
            tokenizer_digest=encode.digest,
            tokens=encode.width,
            form=form,
            unused=unused,
        )


def _warn_of_classes(rows: TableRows, target: str, classes: Sequence[str]) -> None:
    """Warn of classes that may be one, and of a single class."""
    warn_of_spellings(rows, f"classes of {target!r} that", classes)
    if len(classes) == 1:
        fault = f"target {target!r} has only one class, from which no model learns"
        logger.warning("%s: %s", rows.files[0], with_words(fault, rows, target, "a class"))


def _warn_of_single_rows(rows: TableRows, clients: Clients, column: str | None) -> None:
    """Warn if most clients have one row: the column may be that of something else."""
    alone = sum(len(mine) == 1 for mine in clients.rows)
    if column is not None and 2 * alone > len(clients.names) > MOST_LISTED:
        few_rows = "%s: %d of %d clients have a single row: is %r the column of the clients?"
        logger.warning(few_rows, rows.files[0], alone, len(clients.names), column)


def _warn_of_splits(columns: Iterable[ColumnWords]) -> None:
    """Warn of a column that seems to say which rows are for training and which for the test."""
    for column in columns:
        words = [word.lower() for word in column.words]
        if len(words) > 1 and all(map(SPLIT.fullmatch, words)):
            logger.warning(
                "column %r seems to divide the rows (%s), but they are divided anew, and it is an "
                'input: to keep its division, write split = "column" and split_column = "%s", '
                "with the words train, validation and test; otherwise name it in leave_out",
                *(column.name, listed(column.words), column.name),
            )


def _scaled(
    targets: Targets, scale: Scale | None, name: str, rows: TableRows
) -> Callable[[Places], NDArray[Any]]:
    """What gives rows their labels, or numbers in single precision, scaled if there is a scale."""

    def of(mine: Places) -> NDArray[Any]:
        if targets.classes is not None:
            return targets.values[mine]
        numbers = targets.values[mine, None]
        return in_single(scale(numbers) if scale else numbers, [name], mine, rows)[:, 0]

    return of
