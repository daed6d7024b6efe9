"""Requests and replies as Flower records: names, validated settings and plain arrays, no pickle.

Everything that comes in is checked here before it is used, on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.work import Work
from umbel.flower.arrays import RefusedError, arrays, tensors
from umbel.runs.config import plain, structured
from umbel.summary import in_short

VERSION = 1
LONGEST_REASON = 500


class ForgottenError(RefusedError):
    """A node does not keep what its clients should remember: it is to be sent."""


@dataclass(frozen=True)
class Asked:
    """What one node is asked: this work, for these of its clients."""

    work: Work
    clients: Sequence[str]  # their names
    seeds: Sequence[int]  # one a client
    shared: Mapping[str, Tensor]
    tables: Mapping[str, Tensor]  # (rows, ...)
    index: Mapping[str, Sequence[int]]  # which row of each table is a client's
    remembered: Sequence[str] = ()  # a digest a client: of what the node keeps for it

    __repr__ = in_short


def ask(asked: Asked) -> RecordDict:
    """As the content of a message."""
    config: dict[str, Any] = {
        "version": VERSION,
        "work": json.dumps(plain(asked.work)),
        "clients": list(asked.clients),
        "seeds": list(asked.seeds),
        "remembered": list(asked.remembered),
    }
    index: dict[str, Any] = {name: list(rows) for name, rows in asked.index.items()}
    return RecordDict(
        {
            "asked": ConfigRecord(config),
            "index": ConfigRecord(index),
            "shared": arrays(asked.shared),
            "tables": arrays(asked.tables),
        }
    )


def asked_in(content: RecordDict, max_bytes: int, own_works: Collection[str] = ()) -> Asked:
    """What a message asks. Raises `RefusedError` if it is not of the form that `ask` makes.

    `own_works` are works outside the package that may be asked for, as "module:Name".
    """
    config = _config(content, "asked")
    _check_version(config)
    clients, seeds = _list(config, "clients", str), _list(config, "seeds", int)
    remembered = _list(config, "remembered", str)
    if len(seeds) != len(clients) or len(remembered) not in (0, len(clients)):
        raise RefusedError(f"{len(clients)} clients, {len(seeds)} seeds")
    shared = tensors(content, "shared", max_bytes)
    tables = tensors(content, "tables", max_bytes)
    rows = _config(content, "index")
    index = {name: _list(rows, name, int) for name in rows}
    if set(index) != set(tables) or any(len(each) != len(clients) for each in index.values()):
        raise RefusedError("rows that do not fit the clients")
    for name, each in index.items():
        if any(not 0 <= row < len(tables[name]) for row in each):
            raise RefusedError(f"{name}: a row outside its table of {len(tables[name])}")
    work = work_in(_text(config, "work"), own_works)
    return Asked(work, clients, seeds, shared, tables, index, remembered)


def work_in(text: str, own_works: Collection[str] = ()) -> Work:
    """The work of this name with these settings. Nothing is imported that is not allowed."""
    try:
        table = json.loads(text)
        for name in _names(table):
            if ":" in name and name not in own_works:
                raise RefusedError(f"work: {name!r} is not allowed here")
        work: Work = structured({"work": table}, _Envelope).work
    except (UsageError, json.JSONDecodeError, RecursionError) as error:
        raise RefusedError(f"work: {error}") from None
    return work


@dataclass(frozen=True)
class _Envelope:
    work: Work


def answer(clients: Sequence[str], columns: Mapping[str, Tensor]) -> RecordDict:
    """The rows of clients, in this order, as the content of a reply."""
    config = ConfigRecord({"version": VERSION, "clients": list(clients)})
    return RecordDict({"answer": config, "columns": arrays(columns)})


def refusal(error: Exception) -> RecordDict:
    """Why a node can't do what it was asked."""
    expected = isinstance(error, RefusedError)
    reason = str(error) if expected else f"{type(error).__name__}: {error}"
    forgotten = isinstance(error, ForgottenError)
    config: dict[str, Any] = {"version": VERSION, "forgotten": forgotten}
    config["refused"] = reason[:LONGEST_REASON]
    return RecordDict({"answer": ConfigRecord(config)})


def _raise_refusal(config: Mapping[str, Any]) -> None:
    """Raise what `refusal` was given, if this is one."""
    if "refused" in config:
        kind = ForgottenError if config.get("forgotten") is True else RefusedError
        raise kind(_text(config, "refused")[:LONGEST_REASON])


def answer_in(content: RecordDict, max_bytes: int) -> tuple[list[str], dict[str, Tensor]]:
    """Names and columns (len(names), ...). Raises `RefusedError` for anything else."""
    config = _config(content, "answer")
    _check_version(config)
    _raise_refusal(config)
    clients = _list(config, "clients", str)
    columns = tensors(content, "columns", max_bytes)
    for name, column in columns.items():
        if column.dim() == 0 or len(column) != len(clients):
            raise RefusedError(f"{name}: {tuple(column.shape)} for {len(clients)} clients")
    return clients, columns


@dataclass(frozen=True)
class Form:
    """What must be alike at all sites."""

    input_shape: tuple[int, ...]
    num_outputs: int
    num_classes: int | None  # None: regression
    model: str  # a name for the layout of its tensors


@dataclass(frozen=True)
class Site:
    """What a node says about itself: no example, only their number and form."""

    clients: Sequence[str]
    train: Sequence[int]  # examples of each client
    test: Sequence[int]
    groups: Sequence[int] | None  # planted, where they are known
    form: Form


def introduce(site: Site) -> RecordDict:
    """As the content of a reply."""
    form = site.form
    config: dict[str, Any] = {
        "version": VERSION,
        "clients": list(site.clients),
        "train": list(site.train),
        "test": list(site.test),
        "input_shape": list(form.input_shape),
        "num_outputs": form.num_outputs,
        "model": form.model,
    }
    config |= {} if form.num_classes is None else {"num_classes": form.num_classes}
    config |= {} if site.groups is None else {"groups": list(site.groups)}
    return RecordDict({"site": ConfigRecord(config)})


def site_in(content: RecordDict) -> Site:
    """The inverse. Raises `RefusedError` for anything else."""
    if "answer" in content.config_records:
        _raise_refusal(_config(content, "answer"))
    config = _config(content, "site")
    _check_version(config)
    clients = _list(config, "clients", str)
    groups = _list(config, "groups", int) if "groups" in config else None
    train, test = _list(config, "train", int), _list(config, "test", int)
    lists = [train, test, groups or [0] * len(clients)]
    if len(set(clients)) != len(clients) or any(len(each) != len(clients) for each in lists):
        raise RefusedError("clients that do not fit their examples")
    if min([*train, *test, 0]) < 0:
        raise RefusedError("a negative number of examples")
    form = Form(
        tuple(_list(config, "input_shape", int)),
        _number(config, "num_outputs"),
        _number(config, "num_classes") if "num_classes" in config else None,
        _text(config, "model"),
    )
    return Site(clients, train, test, groups, form)


def _config(content: RecordDict, name: str) -> Mapping[str, Any]:
    if name not in content.config_records:
        raise RefusedError(f"{name}: missing")
    config: Mapping[str, Any] = content.config_records[name]
    return config


def _check_version(config: Mapping[str, Any]) -> None:
    if config.get("version") != VERSION:
        found = config.get("version")
        raise RefusedError(f"version {found!r} of the messages, and this umbel speaks {VERSION}")


def _text(config: Mapping[str, Any], name: str) -> str:
    value = config.get(name)
    if not isinstance(value, str):
        raise RefusedError(f"{name}: {value!r} is not a string")
    return value


def _number(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 0:
        raise RefusedError(f"{name}: {value!r} is not a number, 0 or more")
    return value


def _list(config: Mapping[str, Any], name: str, kind: type[Any]) -> list[Any]:
    value = config.get(name)
    if not isinstance(value, list) or any(type(item) is not kind for item in value):
        raise RefusedError(f"{name}: {str(value)[:100]} is not a list of {kind.__name__}")
    return value


def _names(table: Any) -> Iterable[str]:
    """What is called a name anywhere in a table."""
    if isinstance(table, Mapping):
        if isinstance(table.get("name"), str):
            yield table["name"]
        for value in table.values():
            yield from _names(value)
    elif isinstance(table, list):
        for value in table:
            yield from _names(value)
