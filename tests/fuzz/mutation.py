"""Contents of messages with something changed: fields, arrays, records, or settings of a work."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from tests.flower.attacks import ARRAYS

NUMBERS = [
    *(-1, 0, 1, 2, 7, 10**5 + 1, 10**6, 10**9, 2**31, 2**53, 2**62, -(2**63), 2**63 - 1),
    *(0.5, -1.5, 1e300, float("nan"), float("inf"), True, False),
]
TEXTS = [
    *("", "a", "0", "1" * 5000, "\x1b[2J", "a\nb", "\u202e", "os:system", "numpy.ndarray", ">f4"),
    *("object", "float64", "bool", "umbel.raw.little", "é" * 300, "local-training", "0" * 64),
]
BYTES = [
    b"",
    b"\0",
    b"PK\x03\x04" + bytes(60),
    b"\x93NUMPY\x01\x00v\x00{",
    bytes(10**4),
    b"\xff" * 64,
]
LISTS: list[list[Any]] = [[], [0], [-1], [2**62] * 3, ["a", "a"], ["1" * 5000], [""], [0] * 3000]

FIELDS = [*NUMBERS, *TEXTS, *BYTES, *LISTS]
NAMES = ["", "update", "theta", "models", "memory", "n" * 500, "\0", "a/b", "version", "refused"]


def mutated(content: RecordDict, drawn: random.Random) -> RecordDict:
    """The content with one thing changed, or a few."""
    records = dict(content)
    for _ in range(drawn.choice((1, 1, 1, 2, 4))):
        name = drawn.choice([*records, "index"])
        record = records.get(name)
        if drawn.random() < 0.05 or record is None:
            _replace_record(records, name, drawn)
        elif isinstance(record, ConfigRecord):
            records[name] = _other_fields(record, drawn)
        elif isinstance(record, ArrayRecord):
            records[name] = _other_arrays(record, drawn)
    return RecordDict(records)


def _replace_record(records: dict[str, Any], name: str, drawn: random.Random) -> None:
    match drawn.randrange(4):
        case 0:
            records.pop(name, None)
        case 1:
            records[name] = MetricRecord({"version": 2})
        case 2:
            records[name] = ConfigRecord({"version": 2})
        case 3:
            records[drawn.choice(NAMES)] = records.get(name, ArrayRecord())


def _other_fields(record: ConfigRecord, drawn: random.Random) -> ConfigRecord:
    fields: dict[str, Any] = dict(record)
    name = drawn.choice([*fields, drawn.choice(NAMES)])
    value = fields.get(name)
    way = drawn.random()
    if way < 0.1:
        fields.pop(name, None)
    elif name == "work" and way < 0.9:
        fields[name] = _other_work(str(value), drawn)
    elif isinstance(value, list) and value and way < 0.6:
        fields[name] = _other_list(value, drawn)
    else:
        fields[name] = drawn.choice(FIELDS)
    return ConfigRecord(fields)


def _other_list(items: list[Any], drawn: random.Random) -> list[Any]:
    kind = type(items[0])
    choices = [each for each in FIELDS if type(each) is kind]
    match drawn.randrange(4):
        case 0:
            return items * drawn.choice((2, 100))
        case 1:
            return items[1:]
        case 2:
            return [*items, items[0]]
    place = drawn.randrange(len(items))
    return [*items[:place], drawn.choice(choices or items), *items[place + 1 :]]


def _other_work(text: str, drawn: random.Random) -> str:
    """The settings of a work, with one of another value, or with broken text."""
    if drawn.random() < 0.2:
        place = drawn.randrange(len(text) + 1)
        broken = drawn.choice(["{", "[" * 2000, '"', "1" * 5000, "NaN", "\\ud800", "\0", ""])
        return text[:place] + broken + text[place + drawn.randrange(3) :]
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):  # it is broken already
        table = None
    if not isinstance(table, dict):
        return text
    at = table
    while any(isinstance(value, dict) for value in at.values()) and drawn.random() < 0.5:
        at = drawn.choice([value for value in at.values() if isinstance(value, dict)])
    plain = [value for value in FIELDS if not isinstance(value, bytes)]
    at[drawn.choice([*at, drawn.choice(NAMES)])] = drawn.choice([*plain, table.copy(), {}, None])
    return json.dumps(table)


def _other_arrays(record: ArrayRecord, drawn: random.Random) -> ArrayRecord:
    arrays = {name: (a.dtype, a.shape, a.stype, a.data) for name, a in record.items()}
    name = drawn.choice([*arrays, drawn.choice(NAMES)])
    dtype, shape, stype, data = arrays.get(name, ("float32", (1,), "umbel.raw.little", bytes(4)))
    match drawn.randrange(8):
        case 0:
            known = {"dtype": dtype, "shape": shape, "stype": stype, "data": data}
            known |= drawn.choice(list(ARRAYS.values()))
            dtype, shape, stype, data = known.values()  # type: ignore[assignment]
        case 1:
            dtype = drawn.choice(TEXTS)
        case 2:
            shape = tuple(n for n in drawn.choice([[*shape, 1], shape[1:], [0], [2**40], [-3]]))
        case 3:
            stype = drawn.choice(TEXTS)
        case 4:
            data = _other_bytes(data, drawn)
        case 5:
            arrays.pop(name, None)
            name = drawn.choice(NAMES)
        case 6:  # values that are numbers, and what they should not be
            value, size = drawn.choice([*BYTES[-1:], b"\x00\x00\x80\x7f", b"\x7f"]), len(data)
            data = (value * (size // len(value) + 1))[:size]
        case 7:
            arrays.clear()
    arrays[name] = (dtype, shape, stype, data)
    return ArrayRecord(array_dict={key: Array(*each) for key, each in arrays.items()})


def _other_bytes(data: bytes, drawn: random.Random) -> bytes:
    place = drawn.randrange(len(data) + 1)
    ways: list[Callable[[], bytes]] = [
        lambda: data[:place],
        lambda: data + data,
        lambda: data[:place] + bytes([drawn.randrange(256)]) + data[place + 1 :],
        lambda: drawn.choice(BYTES) + data,
        lambda: drawn.choice(BYTES),
    ]
    return drawn.choice(ways)()
