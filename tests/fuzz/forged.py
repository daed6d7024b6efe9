"""Forged folders of runs: what is in a file is changed on purpose, and then sealed again.

`python -m tests.fuzz forged --count 10000`. Seals tell damage, not forgery: so all commands that
take somebody else's folder must stand any content of it, and what stands in place of its files.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from safetensors import safe_open
from torch import Tensor

from tests.fuzz.commands import SECONDS, Outcome, attack, memory
from tests.fuzz.folders import Whole, folders
from tests.fuzz.inputs import Wrong
from umbel.files.seals import BLANK, KEY, json_text, sealed
from umbel.folder import tensor_files
from umbel.folder.experiment_file import HEAD
from umbel.run.digests import digest

DEEP: Any = 1
for _ in range(900):
    DEEP = [DEEP]

VALUES: Sequence[Any] = (
    *(None, True, -100, -1, 0, 1, 7, 2**31, 2**63, 10**300, 10**400, 0.5, -1.5, 1e308),
    *(math.nan, math.inf),
    *("", "a", "a" * 10_000, "a\nb", "\x1b[2J", "[/a]", "=cmd()", "<script>", "../..", "\u202e"),
    *("own_evil:Name", "1", "nan", "-1", "9" * 400, "é", "e\u0301"),
    *([], {}, [1], [[1]], [-1, 10**18], ["a"], {"a": 1}, {"0": "a"}, {"-1": "a", "x": "b"}),
    *([0] * 3000, DEEP),
)
"""What is put in place of anything."""

EVIL = 'import pathlib\npathlib.Path("imported").touch()\nclass Name: ...\n'
"""A module beside the folder, which leaves a mark where it is imported."""

LOOKING: Sequence[tuple[str, ...]] = (
    *(("show", "run"), ("show", "run", "--config"), ("show", "run", "--json"), ("show", ".")),
    *(("show", "run", "--rows", rows, "--csv") for rows in ("rounds", "clients", "differences")),
    *(("show", "run", "--at", "1,2"), ("show", "run", "--reach", "purity=0.5")),
    *(("report", "run"), ("report", "run"), ("report", ".")),
    *(("export", "run", "--to", "tensorboard"), ("show", "run")),
)
USING: Sequence[tuple[str, ...]] = (
    *(("resume", "run"), ("finish", "run"), ("resume", "run", "--rounds", "3")),
    *(("estimate-clusters", "run"), ("assign", "run", "new.npz")),
    *(("assign", "run", "new.npz", "--unlabelled"), ("advise", "run/experiment.toml")),
    *(("export", "run", "--to", "safetensors", way, "0") for way in ("--cluster", "--client")),
)


@dataclass(frozen=True)
class Forgery:
    """What is to be in place of one file, and a command that reads the folder."""

    whole: Whole
    name: str
    how: str
    make: Callable[[Path], object]  # given the copied folder
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' '.join(self.arguments)}; {self.whole.path.name}/{self.name}: {self.how}"

    def prepare(self, folder: Path) -> None:
        """The folder beside a whole one, examples of a newcomer, and a module."""
        for place in ("run", "whole"):
            shutil.copytree(self.whole.path, folder / place)
        x = np.random.default_rng(0).random((20, 8, 8), dtype=np.float32)
        np.savez(folder / "new.npz", x=x, y=np.arange(20) % 10)
        (folder / "own_evil.py").write_text(EVIL)
        self.make(folder / "run")

    @property
    def wrong(self) -> Wrong:
        """For the command line."""
        return Wrong(str(self), self.arguments, self.prepare, ends=(0, 1, 2))

    def fault(self, outcome: Outcome) -> str | None:
        """What should not be, if anything."""
        looks = self.arguments in LOOKING
        if looks and "imported" in outcome.written:
            return "imports what the folder names"
        if looks and outcome.status == 1:
            return f"fails: {outcome.said}"
        if looks and not outcome.escaped and outcome.seconds > SECONDS and outcome.status != 0:
            return f"takes {outcome.seconds:.1f} s"
        left = [file for file in outcome.written if file != "run/.lock"]
        return replace(outcome, written=left).fault(self.wrong)


def forgeries(wholes: Sequence[Whole], count: int, seed: int) -> Iterator[Forgery]:
    """So many, drawn at random."""
    rng = random.Random(seed)
    for _ in range(count):
        whole = rng.choice(wholes)
        name = rng.choice([*whole.files, "budget.json", "stopped.json"])
        arguments = rng.choice(LOOKING if rng.random() < 0.8 else USING)
        how, make = forged(whole, name, rng)
        yield Forgery(whole, name, how, make, arguments)


def forged(whole: Whole, name: str, rng: random.Random) -> tuple[str, Callable[[Path], object]]:
    """A change of this file, in words and as a function of the folder."""
    if rng.random() < 0.1:
        how = rng.choice(list(INSTEAD))
        return how, lambda folder: _replaced(folder / name, INSTEAD[how])
    match Path(name).suffix:
        case ".safetensors":
            return _tensors(whole.path / name, name, rng)
        case ".jsonl":
            how, content = _lines(whole.files[name], rng)
        case ".json":
            how, content = _json(whole.files.get(name, SPARE.get(name, b"{}")), rng)
        case ".toml":
            how, content = _toml(whole.files[name], rng)
        case ".csv":
            return _table(whole.files[name], name, rng)
        case _:
            how, content = "other bytes", rng.randbytes(33)
    return how, lambda folder: (folder / name).write_bytes(content)


SPARE = {
    "budget.json": b'{"until": [["accuracy", 0.9]], "max_seconds": 5.0}',
    "stopped.json": b'{"rounds": 1, "why": "it was enough"}',
}
"""What files hold that not every folder has."""


def _replaced(file: Path, make: Callable[[Path], object]) -> None:
    file.unlink(missing_ok=True)
    make(file)


def _sparse(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(2**40)


INSTEAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a link to nothing": lambda file: file.symlink_to("nothing"),
    "a terabyte of zeros": _sparse,
}


def changed(value: Any, rng: random.Random) -> tuple[str, Any]:
    """A plain value with something of it changed, gone, added or doubled."""
    inside = isinstance(value, dict | list) and value and rng.random() < 0.85
    if not inside:
        new = rng.choice(VALUES)
        return repr(new)[:60], new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, way = rng.choice(keys), rng.random()
    copy: Any = value.copy()
    if way < 0.1:
        del copy[key]
        return f"no {key!r}", copy
    if way < 0.2 and isinstance(value, dict):
        other = rng.choice([each for each in VALUES if isinstance(each, str)])
        copy[other] = copy[key] if rng.random() < 0.5 else copy.pop(key)
        return f"{key!r} as {other!r:.40}", copy
    if way < 0.2:
        return f"{key!r} again", [*copy, copy[key]]
    how, copy[key] = changed(value[key], rng)
    return f"{key!r}: {how}", copy


def _json(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    value = json.loads(content)
    (value[-1] if isinstance(value, list) else value).pop(KEY, None)
    how, value = changed(value, rng)
    try:
        text = json_text(value)
    except (TypeError, IndexError):  # no place for a seal
        text = json.dumps(value)
    return how, text.encode()


def _lines(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A record changed, and all lines sealed again."""
    values = [json.loads(line) for line in content.splitlines()]
    number = rng.randrange(len(values))
    values[number].pop(KEY)
    how, values[number] = changed(values[number], rng)
    text, before = "", ""
    for value in values:
        if not isinstance(value, dict):
            text += json.dumps(value) + "\n"
            continue
        value.pop(KEY, None)
        line = sealed(json.dumps({**value, KEY: BLANK}), before)
        before = line[-len(BLANK) - 2 : -2]
        text += line + "\n"
    return f"line {number + 1}: {how}", text.encode()


def _toml(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    while True:
        how, value = changed(tomllib.loads(content.decode()), rng)
        try:
            return how, sealed(HEAD + tomli_w.dumps(value)).encode()
        except (TypeError, AttributeError, ValueError, RecursionError):  # TOML does not have it
            continue


def _table(content: bytes, name: str, rng: random.Random) -> tuple[str, Callable[[Path], object]]:
    rows: list[list[Any]] = list(csv.reader(io.StringIO(content.decode(), newline="")))
    row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    match rng.randrange(6):
        case 0:
            how = f"row {row} again"
            rows.append(rows[row])
        case 1:
            how = f"no row {row}"
            del rows[row]
        case 2:
            how = f"column {column} again"
            rows = [[*each, each[column]] for each in rows]
        case 3:
            how = f"no column {column}"
            rows = [[cell for n, cell in enumerate(each) if n != column] for each in rows]
        case _:
            cell = rng.choice(VALUES)
            how = f"row {row}, column {column}: {cell!r:.40}"
            rows[row][column] = cell
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    raw = text.getvalue().encode(errors="replace")

    def make(folder: Path) -> None:
        file = folder / name
        file.write_bytes(raw)
        file.with_suffix(".seal").write_text(digest([raw]) + "\n")

    return how, make


def _tensors(file: Path, name: str, rng: random.Random) -> tuple[str, Callable[[Path], object]]:
    with safe_open(file, framework="pt") as opened:
        header = json.loads(opened.metadata()["umbel"])
        tensors = tensor_files.tensors_in(opened)
    header.pop(KEY)
    if header and rng.random() < 0.5:
        how, header = changed(header, rng)
        header = header if isinstance(header, dict) else {"a": header}
    elif tensors:
        which = rng.choice(list(tensors))
        how = rng.choice(list(OTHERWISE))
        said = OTHERWISE[how](tensors.pop(which))
        tensors |= {} if said is None else {which: said.contiguous()}
        how = f"{which}: {how}"
    else:
        how, tensors = "a tensor", {"a": torch.zeros(3)}
    return how, lambda folder: tensor_files.write(folder / name, tensors, header)


OTHERWISE: dict[str, Callable[[Tensor], Tensor | None]] = {
    "gone": lambda _: None,
    "empty": lambda t: t[:0] if t.dim() else torch.zeros(0),
    "one more": lambda t: torch.cat([t, t[:1]]) if t.dim() and len(t) else torch.zeros(2),
    "one less": lambda t: t[:-1] if t.dim() else torch.zeros(0, 3),
    "a number": lambda _: torch.tensor(3.0),
    "in more dimensions": lambda t: t[None, ..., None].clone(),
    "not finite": lambda t: torch.full_like(t, torch.nan if t.is_floating_point() else 2**30),
    "infinite": lambda t: torch.full_like(t, torch.inf if t.is_floating_point() else -1),
    "large": lambda t: (
        torch.full_like(t, 1e30 if t.is_floating_point() else 2**62)
        if t.dtype != torch.bool
        else ~t
    ),
    "whole": lambda t: t.nan_to_num().to(torch.int64),
    "complex": lambda t: t.to(torch.complex64),
    "bytes": lambda t: t.to(torch.uint8),
    "truths": lambda t: t != 0,
    "half": lambda t: t.to(torch.bfloat16),
    "a million": lambda _: torch.zeros(10**6),
}


def main(count: int, seed: int = 0) -> int:
    """Attack so often. Prints what failed, and the figures: 1 if any failed."""
    to = Path(tempfile.mkdtemp())
    try:
        wholes = folders(to)
        attack(Wrong("to load everything", ("show", str(wholes[0].path)), ends=(0,)))
        began, size, faults = time.perf_counter(), memory(), Counter[str]()
        ends, slowest = Counter[int](), (0.0, "")
        for each in forgeries(wholes, count, seed):
            outcome = attack(each.wrong)
            if outcome.seconds > SECONDS:  # what was slow by chance is not so twice
                outcome = attack(each.wrong)
            ends[outcome.status] += 1
            if each.arguments in LOOKING:
                slowest = max(slowest, (outcome.seconds, str(each)))
            fault = each.fault(outcome)
            if fault is not None:
                faults[f"{each}: {fault}"] += 1
                sys.stdout.write(f"{each}: {fault}\n")
                sys.stdout.flush()
        seconds, grown = time.perf_counter() - began, (memory() - size) / 2**20
        sys.stdout.write(
            f"{count:,} forged folders in {seconds:.0f} s: {ends[2]:,} refused, {ends[1]:,} failed "
            f"in the run, {ends[0]:,} taken; {faults.total():,} not as they should be; the slowest "
            f"look took {slowest[0]:.2f} s ({slowest[1]}); {grown:.0f} MiB grown\n"
        )
    finally:
        shutil.rmtree(to)
    return int(faults.total() > 0)
