"""Damaged folders of runs: each file of a run with bits turned, cut, doubled, swapped or gone.

`python -m tests.fuzz folders --count 100000`. Whoever looks at such a folder, or goes on with it,
is told of the damage in one line, or nothing is lost by it: results are those of the whole folder.
"""

from __future__ import annotations

import gc
import io
import json
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import umbel
from umbel.checks import UsageError
from umbel.data.sources import Sources
from umbel.files.seals import intact
from umbel.folder.execution import advance, opened
from umbel.folder.run_folder import RunFolder
from umbel.result.tables import results_of
from umbel.run.rounds import Rounds

EXPERIMENT = """
name = "small"
rounds = 2
participation = 0.5
[scenario]
name = "rotated-digits"
clients = 4
examples = [12]
[model]
name = "mlp"
hidden = [2]
[algorithm]
name = "{name}"
[algorithm.local]
epochs = 1
"""

LONGEST = 5_000
"""Characters of a message, which the command line cuts."""


@dataclass(frozen=True)
class Whole:
    """A folder that nothing is amiss with."""

    path: Path
    files: dict[str, bytes]
    run: Rounds | None  # what goes on with it, where it is not finished
    result: Any  # what it comes to
    # What commands write to, always the same: click keeps every stream that it has seen.
    printed: tuple[io.StringIO, io.StringIO] = field(
        default_factory=lambda: (io.StringIO(), io.StringIO()), compare=False, repr=False
    )


@dataclass(frozen=True)
class Damage:
    """One file as it is to be; None: it is gone."""

    whole: Whole
    name: str
    content: bytes | None
    how: str

    def __str__(self) -> str:
        return f"{self.whole.path.name}/{self.name}: {self.how}"


def folders(to: Path) -> list[Whole]:
    """A finished run of each kind of model, and one of which a round is left."""
    made = []
    for name, rounds in (("ifca", 2), ("pfedme", 2), ("fedem", 2), ("flacc", 1)):
        file = to / f"{name}.toml"
        file.write_text(EXPERIMENT.format(name=name))
        folder = RunFolder.create(to / name, umbel.read(file))
        going = opened(folder, Sources.default())
        iterator = advance(folder, going)
        for _ in range(rounds):
            next(iterator)
        if rounds == 2:
            list(iterator)
        iterator.close()  # type: ignore[attr-defined]
        files = {
            str(file.relative_to(folder.path)): file.read_bytes()
            for file in sorted(folder.path.rglob("*"))
            if file.is_file() and file.name != ".lock"
        }
        run = None if folder.finished else going
        whole = Whole(folder.path, files, run, None)
        made.append(Whole(folder.path, files, run, _use(whole)))
        _restore(whole)
    return made


def damage(whole: Whole, rng: random.Random) -> Damage:
    """Some damage of some file."""
    name = rng.choice(list(whole.files))
    content = whole.files[name]
    how = rng.choice([*WAYS])
    return Damage(whole, name, WAYS[how](content, rng), how)


def _turned(content: bytes, rng: random.Random, bits: int = 1) -> bytes:
    damaged = bytearray(content)
    for _ in range(bits if content else 0):
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _part(content: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randint(0, len(content))
    return start, min(len(content), start + rng.choice((1, 2, 8, 64, 512)))


def _without(content: bytes, rng: random.Random) -> bytes:
    start, end = _part(content, rng)
    return content[:start] + content[end:]


def _doubled(content: bytes, rng: random.Random) -> bytes:
    start, end = _part(content, rng)
    return content[:end] + content[start:]


def _overwritten(content: bytes, rng: random.Random) -> bytes:
    start, end = _part(content, rng)
    junk = rng.choice((bytes(end - start), rng.randbytes(end - start), b"9" * (end - start)))
    return content[:start] + junk + content[end:]


def _lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        lines.insert(rng.randint(0, len(lines)), lines.pop(rng.randrange(len(lines))))
    return b"".join(lines)


def _line_less(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        lines.pop(rng.randrange(len(lines)))
    return b"".join(lines)


WAYS: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "a bit is turned": _turned,
    "a bit more is turned": _turned,
    "bits are turned": lambda content, rng: _turned(content, rng, rng.randint(2, 40)),
    "cut": lambda content, rng: content[: rng.randint(0, len(content))],
    "a part is gone": _without,
    "a part is doubled": _doubled,
    "a part is overwritten": _overwritten,
    "twice": lambda content, _: content + content,
    "lines are moved": _lines,
    "a line is gone": _line_less,
    "empty": lambda *_: b"",
    "gone": lambda *_: None,
}


def attack(damage: Damage) -> str | None:
    """What should not have been: nothing, or why."""
    file = damage.whole.path / damage.name
    if damage.content is None:
        file.unlink()
    else:
        file.write_bytes(damage.content)
    try:
        found = _use(damage.whole)
    except UsageError as error:
        said = str(error)
        one_line = "\n" not in said and 0 < len(said) <= LONGEST
        return None if one_line else f"says {said!r}"
    except Exception as error:
        return "".join(traceback.format_exception(error)[-3:])
    finally:
        _restore(damage.whole)
    # Without it a run is not finished, and looks like that; evidence may be removed to save room,
    # and runs of earlier versions have no test examples and attributes of clients.
    known = damage.name in ("clusters.csv", "clients.csv") or damage.name.startswith("evidence/")
    known = damage.content is None and known
    # To remove its seal, the first line, is how a changed file is declared to be meant: settings
    # that may change on the way, such as the name, are then as the file has them.
    unsealed = damage.content is not None and intact(damage.content) is None
    known |= damage.name == "experiment.toml" and unsealed
    if found == damage.whole.result or known:
        return None
    return "is taken, and the results are others"


def _restore(whole: Whole) -> None:
    for file in whole.path.rglob("*"):
        if file.is_file() and str(file.relative_to(whole.path)) not in whole.files:
            file.unlink()
    for name, content in whole.files.items():
        file = whole.path / name
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)


def _use(whole: Whole) -> Any:
    """All that looking shows; or, of a run with a round left, what it comes to."""
    from umbel.cli.show import print_run

    folder, printed = RunFolder(whole.path), whole.printed
    for stream in printed:
        stream.seek(0)
        stream.truncate()
    with redirect_stdout(printed[0]), redirect_stderr(printed[1]):
        tables = _tables(folder)
        print_run(folder)
        folder.sessions.read()
        snapshots = [(s.round, sorted(s.tensors)) for s in folder.evidence.read()]
        if whole.run is not None:
            list(advance(folder, whole.run))
            return [record.untimed() for record in folder.records()], _models(whole.path)
    return tables, printed[0].getvalue(), snapshots, _models(whole.path)


def _tables(folder: RunFolder) -> list[str]:
    results = results_of([folder])
    return [table.to_json() for table in (results.runs, results.rounds, results.clients)]


def _models(path: Path) -> list[Any]:
    result = umbel.load(path)
    modules = [result.model_for(client) for client in result.clusters]
    modules += [result.model(cluster) for cluster in range(result.num_clusters)]
    return [sorted(result.clusters.items()), [_values(module) for module in modules]]


def _values(module: Any) -> list[list[float]]:
    return [tensor.flatten().tolist() for tensor in module.state_dict().values()]


def attacks(wholes: Sequence[Whole], count: int, seed: int) -> Iterator[Damage]:
    """This many attacks; few go on with a run, as that takes longer."""
    rng = random.Random(seed)
    for number in range(count):
        going = [whole for whole in wholes if (whole.run is not None) == (number % 10 == 0)]
        yield damage(rng.choice(going), rng)


def main(count: int, seed: int = 0) -> int:
    """Attack so often. Prints what failed, and the figures: 1 if any failed."""
    to = Path(tempfile.mkdtemp())
    out = sys.stdout
    try:
        wholes = folders(to)
        gc.collect()
        gc.freeze()  # all that is loaded by now stays: to go through it again and again is slow
        began, size = time.perf_counter(), _memory()
        slowest, faults, ways = 0.0, Counter[str](), Counter[str]()
        for each in attacks(wholes, count, seed):
            clock = time.process_time()
            fault = attack(each)
            slowest = max(slowest, time.process_time() - clock)
            ways[each.how] += 1
            if fault is not None:
                faults[f"{each}: {fault}"] += 1
                if faults.total() <= 20:
                    out.write(f"{each}: {fault}\n")
                    out.flush()
        seconds, grown = time.perf_counter() - began, (_memory() - size) / 1024
        out.write(json.dumps(dict(ways), indent=1) + "\n")
        out.write(f"{count:,} damaged folders in {seconds:.0f} s: {faults.total()} failed, ")
        out.write(f"the slowest {slowest:.2f} s of work, {grown:.0f} MB grown\n")
    finally:
        shutil.rmtree(to)
    return int(faults.total() > 0)


def _memory() -> int:
    """Kilobytes that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
