"""Wrong arguments, experiment files and modules, as they were found."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.inputs import Wrong

DIGITS = 5000 * "9"

Prepare = Callable[[Path], object]


def _run(*settings: str) -> tuple[str, ...]:
    return ("run", "small.toml", *(word for each in settings for word in ("--set", each)))


def _toml(text: str | bytes) -> Prepare:
    content = text.encode() if isinstance(text, str) else text
    return lambda folder: (folder / "wrong.toml").write_bytes(content)


def _module(name: str, text: str) -> Wrong:
    def write(folder: Path) -> None:
        (folder / f"own_{name}.py").write_text(text)

    return Wrong(f"a module: {text}", _run(f"algorithm.name=own_{name}:Name"), write)


def _chain(folder: Path) -> None:
    for number in range(3000):
        (folder / f"{number}.toml").write_text(f'extends = "{number + 1}.toml"')


def _comparison(folder: Path) -> None:
    (folder / "both").mkdir()
    shutil.copy(folder / "small.toml", folder / "both")


def _files() -> list[Wrong]:
    """Experiment files."""
    texts: dict[str, str | bytes] = {
        "brackets": f"x = {3000 * '['}",
        "endless": 2**20 * "#",
        "another coding": b"\xff\xfe",
        "a control character": "name = \0",
        "extends itself": 'extends = "wrong.toml"',
        "extends a list": "extends = []",
    }
    there: dict[str, Prepare] = {
        "a pipe": lambda folder: os.mkfifo(folder / "wrong.toml"),
        "a device": lambda folder: (folder / "wrong.toml").symlink_to("/dev/zero"),
    }
    there |= {name: _toml(text) for name, text in texts.items()}
    wrong = [Wrong(f"TOML: {name}", ("run", "wrong.toml"), make) for name, make in there.items()]
    return [*wrong, Wrong("TOML: a chain", ("run", "0.toml"), _chain)]


def _settings() -> list[Wrong]:
    """Settings on the command line, by what they say."""
    wrong = (
        *(
            "",
            "=",
            "=1",
            ".=1",
            f"{'.'.join(3000 * 'a')}=1",
            "na\nme=1",
            "rounds",
            f"x={3000 * '['}",
        ),
        *(f"rounds={DIGITS}", f"rounds=0x{5000 * 'f'}", "seed=9223372036854775808", "seed=-1"),
        *(f"participation=[{10**6 * '1,'}]", f"participation={10**6 * 'x'}"),
        *(
            'name="a\\nb"',
            f'name="{1000 * "a"}"',
            'name="a\\u001b[31m"',
            'name="\udcff"',
            "name='..'",
        ),
        *("scenario.shares=[inf, 1, 1, 1]", "scenario.shares=[1e308, 1e308, 1e308, 1e308]"),
        *("scenario.clients=1000000000000", 'scenario.source="a\\u0000"'),
        *("scenario.shift.angles=[nan, 0]", "scenario.shift={name='rotate', angles=[inf]}"),
        "scenario.shift={name='permute-labels', groups=1000000000000}",
        *("model.hidden=[10000000000]", "model.hidden=[4611686018427387904]"),
        f"model.hidden=[{20_000 * '1,'}]",
        *("algorithm.local.epochs=100000000000", "algorithm.local.steps=100000000000"),
        *("algorithm.local.lr=inf", "algorithm.local.lr=nan", "algorithm.local.lr=1" + 400 * "0"),
        *("engine.device=meta", "engine.device=cuda:99999999999999999999", "engine.memory_mb=nan"),
        *("algorithm.name=:", "algorithm.name=..:Name", 'algorithm.name="a\\u0000:b"'),
        "algorithm.name=umbel.algorithms.base:Algorithm",
    )
    listed = [Wrong(f"--set {setting[:60]!r}", _run(setting)) for setting in wrong]
    diverging = ("algorithm.local.lr=1e300", "algorithm.local.lr=1e39")
    many = ("algorithm.name=ifca", "algorithm.restarts=1000000000000")
    return [
        *listed,
        Wrong("--set restarts", _run(*many)),
        *(Wrong(f"--set {setting}", _run(setting), ends=(1,)) for setting in diverging),
        Wrong("in place", _run("engine.name=sequential", "algorithm.local.lr=1e300"), ends=(1,)),
    ]


def _options() -> list[Wrong]:
    """Values of options, and arguments."""
    of_run = {
        "--seed": (DIGITS, "-1", "x", str(2**64)),
        "--runs-dir": ("a\0", 5000 * "a", "/dev/null", "/dev/null/x", "\udcff", "small.toml"),
        "--data-dir": ("small.toml", "\0", 5000 * "a", "gone"),
        "--max-time": (DIGITS, "nan", "-1s", "0", "1e5", ""),
        "--until": (f"accuracy={DIGITS}", "accuracy=nan", "a\nb=1", "=", "loss=-1", "accuracy"),
    }
    wrong = [
        Wrong(f"{option} {value[:20]!r}", ("run", "small.toml", option, value))
        for option, values in of_run.items()
        for value in values
    ]
    names = ("a\0.toml", "a\udcff.toml", "a\nb.toml", 100_000 * "a", "", ".", "\u202e", "--", "-z")
    wrong += [Wrong(f"run {name[:20]!r}", ("run", name)) for name in names]
    none = ("scenario.examples=[9999]", "rounds=0,1")
    wrong += [Wrong(f"compare {s}", ("compare", "both", "--set", s), _comparison) for s in none]
    wrong += [
        Wrong("list", ("list", "experiments", 10_000 * "[")),
        Wrong("compare seeds", ("compare", "both", "--seeds", DIGITS), _comparison),
        Wrong("sweep", ("compare", "both", "--set", f"rounds={100_000 * '1,'}1"), _comparison),
        Wrong("reproduce seeds", ("reproduce", "cflgp-fig1", "--seeds", DIGITS)),
    ]
    return wrong


WORDS = [
    *_files(),
    *_settings(),
    *_options(),
    _module("exits", "raise SystemExit(3)"),
    _module("fails", "1 / 0"),
    _module("ends", "("),
    _module("lacks", "Other = 1"),
    _module("lies", "Name = 1"),
]
