"""Requests and replies as Flower records: names, validated settings and plain arrays, no pickle.

Both sides check everything that they receive here before they use it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from umbel.client.work import DURING, Work
from umbel.experiment.toml_file import plain, structured
from umbel.flower import fields
from umbel.flower.arrays import arrays, tensors
from umbel.flower.errors import (
    ForgottenError,
    RefusedError,
    abbreviated,
    plain_beginning,
    refusing,
    told,
)
from umbel.flower.fields import VERSION, numbers, text, texts, versioned
from umbel.summary import in_short

T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """Work that one node is asked to do for some of its clients."""

    work: Work
    clients: Sequence[str]  # their names
    seeds: Sequence[int]  # one a client
    shared: Mapping[str, Tensor]
    tables: Mapping[str, Tensor]  # (rows, ...)
    index: Mapping[str, Sequence[int]]  # which row of each table is a client's
    # for each client, the digest of the memory that the node keeps for it
    remembered: Sequence[str] = ()
    frozen: str = ""  # digest of the network's frozen values, which no model holds

    __repr__ = in_short

    @property
    def step(self) -> int:
        """The last step of time whose examples the work is to see; 0 without time."""
        shares = self.tables.get(DURING)
        seen = [0] if shares is None or shares.dim() != 2 else shares.nonzero()[:, 1].tolist()
        return max(seen, default=0)

    def pick(self, positions: Sequence[int]) -> Asked:
        """Return the part of the message for the clients at these positions."""

        def at(values: Sequence[T]) -> list[T]:
            return [values[n] for n in positions]

        return replace(
            self,
            clients=at(self.clients),
            seeds=at(self.seeds),
            index={name: at(rows) for name, rows in self.index.items()},
            remembered=at(self.remembered) if self.remembered else (),
        )


SEEDS = -(2**63), 2**63 - 1


def ask(asked: Asked) -> RecordDict:
    """Write the content of a message."""
    config: dict[str, Any] = {
        "version": VERSION,
        "work": json.dumps(plain(asked.work)),
        "clients": list(asked.clients),
        "seeds": list(asked.seeds),
        "remembered": list(asked.remembered),
    }
    config |= {"frozen": asked.frozen} if asked.frozen else {}
    index: dict[str, Any] = {name: list(rows) for name, rows in asked.index.items()}
    return RecordDict(
        {
            "asked": ConfigRecord(config),
            "index": ConfigRecord(index),
            "shared": arrays(asked.shared),
            "tables": arrays(asked.tables),
        }
    )


@refusing
def asked_in(content: RecordDict, max_bytes: int, own_works: Collection[str] = ()) -> Asked:
    """Read a message that `ask` made. Raises `RefusedError` for any other.

    `own_works` are works and metrics outside the package that may be asked for, as "module:Name".
    """
    config = versioned(content, "asked")
    clients, seeds = texts(config, "clients"), numbers(config, "seeds", *SEEDS)
    remembered = texts(config, "remembered")
    if len(seeds) != len(clients) or len(remembered) not in (0, len(clients)):
        raise RefusedError(f"{len(clients)} clients, but {len(seeds)} seeds")
    work = work_in(text(config, "work"), own_works)
    shared = tensors(content, "shared", None, max_bytes)
    tables = tensors(content, "tables", None, max_bytes - sum(t.nbytes for t in shared.values()))
    # Copies are aligned, as results depend on it, and may be written to.
    shared, tables = ({name: t.clone() for name, t in each.items()} for each in (shared, tables))
    # A NaN in a model would make every answer of this node useless, without an error.
    for name, tensor in {**shared, **tables}.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise RefusedError(f"{name}: not finite everywhere")
    rows = fields.config(content, "index")
    if (
        set(rows) != set(tables)
        or set(shared) & set(tables)
        or not all(table.dim() for table in tables.values())
    ):
        raise RefusedError("rows do not match their tables")
    index = {name: numbers(rows, name, 0, len(table) - 1) for name, table in tables.items()}
    if any(len(each) != len(clients) for each in index.values()):
        raise RefusedError("rows do not match the clients")
    frozen = text(config, "frozen") if "frozen" in config else ""
    return Asked(work, clients, seeds, shared, tables, index, remembered, frozen)


@refusing
def work_in(text: str, own_works: Collection[str] = ()) -> Work:
    """Read a work with its settings. Only modules in `own_works` are imported."""
    try:
        table = json.loads(text)
        strangers = [n for n in _names(table) if ":" in n and n not in own_works]
        if not strangers:
            work: Work = structured({"work": table}, _Envelope).work
            return work
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"work: {plain_beginning(str(error))}") from None
    raise RefusedError(f"work: {abbreviated(strangers[0])} is not allowed here")


@dataclass(frozen=True)
class _Envelope:
    work: Work


def answer(
    clients: Sequence[str],
    columns: Mapping[str, Tensor],
    refused: Mapping[str, str] | None = None,
    facts: Sequence[str] = (),
) -> RecordDict:
    """Write the content of a reply: the rows of clients, and the reasons of those that refuse.

    `facts` are texts that change with the clients' examples, as in a greeting.
    """
    config: dict[str, Any] = {"version": VERSION, "clients": list(clients)}
    config |= {"facts": list(facts)} if facts else {}
    if refused:
        reasons = [plain_beginning(why)[: fields.MAX_NAME] for why in refused.values()]
        config |= {"refusing": list(refused), "reasons": reasons}
    return RecordDict({"answer": ConfigRecord(config), "columns": arrays(columns)})


def refusal(error: Exception, private: bool = True) -> RecordDict:
    """Write the reason why a node can't do its work, without private details."""
    forgotten, why = isinstance(error, ForgottenError), told(error, private)
    config: dict[str, Any] = {"version": VERSION, "forgotten": forgotten, "refused": why}
    return RecordDict({"answer": ConfigRecord(config)})


def raise_refusal(config: Mapping[str, Any]) -> None:
    """Raise the error that `refusal` was given, if this message is a refusal."""
    if "refused" in config:
        kind = ForgottenError if config.get("forgotten") is True else RefusedError
        raise kind(plain_beginning(text(config, "refused")))


@dataclass(frozen=True)
class Answer:
    """What a node answers for its clients."""

    clients: list[str]
    columns: dict[str, Tensor]  # (len(clients), ...)
    refused: dict[str, str]  # why other clients refuse
    facts: dict[str, str]  # what tells the examples of each client from others, if it is told

    __repr__ = in_short


@refusing
def answer_in(content: RecordDict, columns: Collection[str], max_bytes: int) -> Answer:
    """Read an answer with these columns. Raises `RefusedError` for anything else."""
    config = fields.config(content, "answer")
    raise_refusal(config)
    versioned(content, "answer")
    clients = texts(config, "clients")
    found = tensors(content, "columns", columns, max_bytes)
    for name, column in found.items():
        if column.dim() == 0 or len(column) != len(clients):
            raise RefusedError(f"{name}: {tuple(column.shape)} for {len(clients)} clients")
    unwilling = texts(config, "refusing") if "refusing" in config else []
    reasons = texts(config, "reasons") if unwilling else []
    if len(set(unwilling)) != len(unwilling) or len(reasons) != len(unwilling):
        raise RefusedError(f"{len(unwilling)} clients refuse, but with {len(reasons)} reasons")
    facts = texts(config, "facts") if "facts" in config else []
    if len(facts) not in (0, len(clients)):
        raise RefusedError(f"{len(clients)} clients, but {len(facts)} facts")
    refused = dict(zip(unwilling, reasons, strict=True))
    return Answer(clients, found, refused, dict(zip(clients, facts, strict=bool(facts))))


def _names(table: Any) -> Iterable[str]:
    """All values of keys "name" and "metrics", at any depth of a table."""
    if isinstance(table, Mapping):
        if isinstance(table.get("name"), str):
            yield table["name"]
        if isinstance(table.get("metrics"), list):
            yield from map(str, table["metrics"])
        for value in table.values():
            yield from _names(value)
    elif isinstance(table, list):
        for value in table:
            yield from _names(value)
