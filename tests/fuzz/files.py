"""Wrong files of data, as they were found."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.data import X, Y, write_client
from tests.fuzz.inputs import Wrong

CLIENTS = ("run", "small.toml", "--set", "scenario={name='folder', path='clients'}")
MINE = ("scenario={name='shifted', source='mine', clients=4}",)

Prepare = Callable[[Path], object]


def _data(*settings: str) -> tuple[str, ...]:
    words = (word for setting in settings for word in ("--set", setting))
    return ("run", "small.toml", "--data-dir", "data", *words)


def _beside(name: str, content: bytes) -> Prepare:
    """A file beside those of two clients."""

    def write(folder: Path) -> None:
        write_client(folder, "a")
        write_client(folder, "b")
        (folder / "clients" / name).write_bytes(content)

    return write


def _header(said: str, *, version: bytes = b"\x01\x00", length: int | None = None) -> bytes:
    form = "<H" if version == b"\x01\x00" else "<I"
    size = len(said) if length is None else length
    return b"\x93NUMPY" + version + struct.pack(form, size) + said.encode()


def _shaped(shape: str, kind: str = "<f4") -> bytes:
    return _header(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}")


def _member(x: bytes, way: int = zipfile.ZIP_STORED) -> Prepare:
    """A client whose x is stored as these bytes."""

    def write(folder: Path) -> None:
        (folder / "clients").mkdir()
        labels = io.BytesIO()
        np.save(labels, Y)
        with zipfile.ZipFile(folder / "clients" / "a.npz", "w", way) as archive:
            archive.writestr("x.npy", x)
            archive.writestr("y.npy", labels.getvalue())

    return write


def _bomb(folder: Path) -> None:
    """An archive that says it holds a thousand times what it does: a terabyte."""
    _member(_shaped(f"(20, {2**34})") + bytes(2**20), zipfile.ZIP_DEFLATED)(folder)
    file = folder / "clients" / "a.npz"
    content = bytearray(file.read_bytes())
    at = content.rfind(b"PK\x01\x02", 0, content.rfind(b"y.npy"))
    at = content.find(b"PK\x01\x02") if at < 0 else at
    struct.pack_into("<I", content, at + 24, 2**32 - 2)  # the size that a reader goes by
    file.write_bytes(content)


def _arrays() -> list[Wrong]:
    shapes = (f"({2**62}, {2**62})", f"({2**40},)", "(-20, -4)", "'abc'", "(20, 4)", "()")
    contents = {f"shape {shape[:30]}": _shaped(shape) for shape in shapes}
    contents |= {f"type {t}": _shaped("(20, 4)", t) + bytes(320) for t in ("zz", "O")}
    contents |= {
        "deep": _header(9000 * "("),
        "an endless header": _header("{}", version=b"\x03\x00", length=2**32 - 1),
        "empty": b"",
        "a pickle": b"\x80\x04.",
        "text": b"hello",
    }
    wrong = [Wrong(f"npz: {name}", CLIENTS, _member(x)) for name, x in contents.items()]
    held: dict[str, dict[str, Any]] = {
        "labels of 2e9": {"y": Y + 2_000_000_000},
        "labels of 2^63 - 1": {"y": np.full(20, 2**63 - 1)},
        "labels below": {"y": Y - 1},
        "no labels": {"y": np.zeros((20, 0), np.int64)},
        "no inputs": {"x": np.zeros((20, 0))},
        "words": {"x": X.astype(str)},
        "complex": {"x": X.astype(complex)},
        "nan": {"x": X * np.nan},
        "one more": {"x": X[1:]},
    }

    def holding(arrays: dict[str, Any]) -> Prepare:
        return lambda folder: write_client(folder, **arrays)

    return wrong + [Wrong(f"client: {name}", CLIENTS, holding(a)) for name, a in held.items()]


def _folders() -> list[Wrong]:
    def named(name: str) -> Prepare:
        def write(folder: Path) -> None:
            for client in ("a", "b", name):
                write_client(folder, client)

        return write

    def special(name: str, make: Callable[[Path], object]) -> Prepare:
        def write(folder: Path) -> None:
            write_client(folder, "a")
            write_client(folder, "b")
            make(folder / "clients" / name)

        return write

    cases = {
        "a bomb": _bomb,
        "an empty file": _beside("c.npz", b""),
        "an empty archive": _beside("c.npz", b"PK\x05\x06" + bytes(18)),
        "an array": _beside("c.npz", _shaped("(20, 4)") + bytes(320)),
        "a pipe": special("c.npz", os.mkfifo),
        "a link to itself": special("c.npz", lambda file: file.symlink_to("c.npz")),
        "a name with a line": named("a\nb"),
        "a name that colours": named("\x1b[31m"),
        "groups not UTF-8": _beside("groups.csv", b"a,\xff\nb,1"),
        "endless groups": _beside("groups.csv", (2**24 + 1) * b"a"),
    }
    wrong = [Wrong(f"clients: {name}", CLIENTS, make) for name, make in cases.items()]
    for setting in ("num_classes=0", f"num_classes={2**63 - 1}", "num_classes=2000000000"):
        scenario = f"scenario={{name='folder', path='clients', {setting}}}"
        wrong.append(Wrong(setting, ("run", "small.toml", "--set", scenario), write_client))
    return wrong


def _picture(size: int = 8, said: int | None = None) -> bytes:
    """A grey image in PNG, which may say that it is larger."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    head = struct.pack(">IIBBBBB", said or size, said or size, 8, 0, 0, 0, 0)
    rows = zlib.compress(size * (1 + size) * b"\0")
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", rows), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _parquet(images: Sequence[bytes | None], labels: Sequence[int | None]) -> bytes:
    pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")  # which have no types

    features = {
        "image": {"_type": "Image"},
        "label": {"_type": "ClassLabel", "names": ["a", "b", "c"]},
    }
    struct_ = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {
        "image": pa.array([{"bytes": image, "path": None} for image in images], type=struct_),
        "label": pa.array(labels, type=pa.int64()),
    }
    said = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    file = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(said), file)
    return file.getvalue()


def _parquets() -> list[Wrong]:
    def of(make: Callable[[], bytes]) -> Prepare:
        def write(folder: Path) -> None:
            (folder / "data" / "mine").mkdir(parents=True)
            (folder / "data" / "mine" / "train.parquet").write_bytes(make())

        return write

    def whole() -> bytes:
        return _parquet(200 * [_picture()], [n % 3 for n in range(200)])

    def flipped() -> bytes:
        content = whole()
        return content[:300] + 50 * b"\xff" + content[350:]

    cases: dict[str, Callable[[], bytes]] = {
        "empty": lambda: b"",
        "marks alone": lambda: b"PAR1" + 100 * b"x" + b"PAR1",
        "cut": lambda: whole()[:-200],
        "flipped": flipped,
        "other images": lambda: _parquet(20 * [b"junk"], 20 * [0]),
        "images of two sizes": lambda: _parquet(10 * [_picture(), _picture(9)], 20 * [0]),
        "endless images": lambda: _parquet(20 * [_picture(8, said=100_000)], 20 * [0]),
        "no labels": lambda: _parquet(20 * [_picture()], 20 * [None]),
        "labels of 2^40": lambda: _parquet(20 * [_picture()], 20 * [2**40]),
    }
    return [Wrong(f"Parquet: {name}", _data(*MINE), of(make)) for name, make in cases.items()]


def _others() -> list[Wrong]:
    def at(*path: str, content: bytes) -> Prepare:
        def write(folder: Path) -> None:
            file = folder.joinpath("data", *path)
            file.parent.mkdir(parents=True)
            file.write_bytes(content)

        return write

    pixels = [784 * [float("nan")]]
    writers = {
        "users": ["a"],
        "num_samples": [1],
        "user_data": {"a": {"x": pixels, "y": [1]}},
    }
    texts = (b"{", 100_000 * b"[", 10_000 * b"9", b"[]", b'{"users": null}', b"\xff\xfe\xff")
    empty = b'{"users": [], "num_samples": [], "user_data": {}}'
    natural = _data("scenario={name='femnist', clients=1, examples=[]}")
    leaf = [
        Wrong(f"LEAF: {text[:20]!r}", natural, at("femnist", "a.json", content=text))
        for text in (*texts, empty, json.dumps(writers).encode())
    ]
    packed, bearings = ("cwru_bearing", "drive_end_12k.npz"), _data("scenario.name=bearing-faults")
    signals = [
        Wrong(f"bearings: {content[:20]!r}", bearings, at(*packed, content=content))
        for content in (b"junk", _shaped("(20, 4)") + bytes(320), b"")
    ]
    cost = _data("scenario={name='channel-state', source='cost2100'}")
    file = ("cost2100", "DATA_Htrainin.mat")
    return [*leaf, *signals, Wrong("channels", cost, at(*file, content=100 * b"junk"))]


FILES = [*_arrays(), *_folders(), *_parquets(), *_others()]
