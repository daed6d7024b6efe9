"""The corpus: messages that broke something once, or might; each is made of a valid one."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from umbel.flower.fields import VERSION

Attack: TypeAlias = Callable[[RecordDict], RecordDict]


def npy(values: np.ndarray[Any, Any], **header: Any) -> bytes:
    """An array in NumPy's format, with parts of its header replaced."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {**np.lib.format.header_data_from_array_1_0(values), **header}
    )
    return buffer.getvalue() + values.tobytes()


SIX = np.arange(6, dtype=np.float32)

ARRAYS: Mapping[str, Mapping[str, Any]] = {
    "a zip archive": {"data": b"PK\x03\x04" + bytes(60)},
    "a broken header": {"data": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', (((" + bytes(99)},
    "foreign byte order": {"dtype": ">f4"},
    "NumPy's format": {"data": npy(SIX), "stype": "numpy.ndarray"},
    "an overflowing shape": {"shape": (2**62, 2**62)},
    "a shape of zeros": {"shape": (0, 2**39, 2**39, 2**39), "data": b""},
    "many dimensions": {"shape": (1,) * 5000},
    "too many values": {"shape": (10**6,), "data": bytes(4 * 10**6)},
    "nothing": {"data": b""},
    "objects": {"dtype": "object"},
    "a pickle": {"stype": "pickle", "data": b"\x80\x04N."},
    "not a number": {"dtype": "float32", "shape": (1,), "data": b"\x00\x00\xc0\x7f"},
}
"""What is changed of an array."""


def with_array(content: RecordDict, record: str, name: str | None, **changes: Any) -> RecordDict:
    """The content with one array of a record changed, or all."""
    arrays: dict[str, Array] = {}
    for key, array in content.array_records[record].items():
        known = {part: getattr(array, part) for part in ("dtype", "shape", "stype", "data")}
        arrays[key] = Array(**({**known, **changes} if name in (None, key) else known))
    return RecordDict({**content, record: ArrayRecord(array_dict=arrays)})


def with_config(content: RecordDict, record: str, **changes: Any) -> RecordDict:
    """The content with fields of a record changed; None takes one away."""
    fields = {**content.config_records[record], **changes}
    kept = {name: value for name, value in fields.items() if value is not None}
    return RecordDict({**content, record: ConfigRecord(kept)})


def _array(changes: Mapping[str, Any]) -> Attack:
    return lambda content: with_array(content, "columns", "update", **changes)


def _answer(**changes: Any) -> Attack:
    return lambda content: with_config(content, "answer", **changes)


def _columns(names: list[str]) -> Attack:
    one = Array(np.zeros(1, dtype=np.float32))
    record = ArrayRecord(array_dict=dict.fromkeys(names, one))
    return lambda content: RecordDict({**content, "columns": record})


def _counts(value: int) -> Attack:
    def attack(content: RecordDict) -> RecordDict:
        number = len(content.config_records["answer"]["clients"])  # type: ignore[arg-type]
        data = np.full(number, value, dtype=np.int64).tobytes()
        return with_array(content, "columns", "num_examples", data=data)

    return attack


FORGETFUL: Attack = _answer(refused="it is not here", forgotten=True)

REPLIES: Mapping[str, Attack] = {
    **{name: _array(changes) for name, changes in ARRAYS.items()},
    "no content": lambda _: RecordDict(),
    "no columns": lambda content: RecordDict({"answer": content["answer"]}),
    "arrays that are a configuration": lambda content: RecordDict(
        {**content, "columns": ConfigRecord({"update": b"0" * 99})}
    ),
    "an old version": _answer(version=VERSION - 1),
    "a client that was not asked": _answer(clients=["mallory"]),
    "a client that clears the screen": _answer(clients=["\x1b[2J"]),
    "a long refusal": _answer(refused="\x1b[31m" + "no " * 10**5),
    "a stranger that refuses": _answer(refusing=["mallory"], reasons=["no"]),
    "one that answers and refuses": lambda content: with_config(
        content, "answer", refusing=content.config_records["answer"]["clients"], reasons=["no"] * 3
    ),
    "always forgotten": FORGETFUL,
    "other columns": _columns(["update"]),
    "many columns": _columns([f"column{n}" for n in range(5000)]),
    "a column with a long name": _columns(["n" * 10**6]),
    "negative counts": _counts(-5),
    "large counts": _counts(2**62),
}
"""What a node may answer when it is asked to work."""


def _site(**changes: Any) -> Attack:
    return lambda content: with_config(content, "site", **changes)


def _all(**changes: Any) -> Attack:
    """Change what there is one of for each client."""

    def attack(content: RecordDict) -> RecordDict:
        number = len(content.config_records["site"]["clients"])  # type: ignore[arg-type]
        return _site(**{name: [value] * number for name, value in changes.items()})(content)

    return attack


NO_CLASSES: Attack = _site(num_classes=None)
"""Takes labels for numbers, which no model tells from classes."""


GREETINGS: Mapping[str, Attack] = {
    "no content": lambda _: RecordDict(),
    "an old version": _site(version=VERSION - 1),
    "a client without a name": _site(clients=[""], train=[1], test=[1], groups=None),
    "the same client twice": _site(clients=["a", "a"], train=[1, 1], test=[1, 1], groups=None),
    "very many clients": _site(clients=[str(n) for n in range(10**5 + 1)]),
    "large inputs": _site(input_shape=[30_000, 10_000]),
    "negative inputs": _site(input_shape=[-64]),
    "many outputs": _site(num_outputs=10**9),
    "negative classes": _site(num_classes=-10),
    "more classes than outputs": _site(num_classes=10**6),
    "negative whole inputs": _site(largest_input=-1),
    "inputs of an unknown scale": _site(written=[1.0, 0.0, 3.0, 1.0, 0.0]),
    "half a scale": _site(written=[1.0, 0.0]),
    "another model": _site(model="0" * 64),
    "other frozen values": _site(frozen="0" * 64),
    "negative examples": _all(train=-5),
    "many examples": _all(test=2**62),
    "no training examples": _all(train=0),
    "large groups": _all(groups=2**62),
    "a refusal": lambda _: RecordDict({"answer": ConfigRecord({"refused": "\x1b[2J" * 10**4})}),
}
"""What a node may answer when it is greeted."""
