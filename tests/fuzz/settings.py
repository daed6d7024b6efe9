"""Every setting that users can write, with values that none or few settings take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from umbel.algorithms.restarts import Restarts
from umbel.data.scenarios import SCENARIOS
from umbel.experiment.toml_file import REGISTRIES
from umbel.result.run import Experiment
from umbel.settings import bare, members_of

LONG = 100_000

EXTREME = (
    *("nan", "inf", "-inf", "-1", "0", "1", "3", "true", "1e300", "-1e300", "1e-300", "0.5"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "1" + 30 * "0"),
    *("0x" + 5000 * "f", 5000 * "9", "100000000000", "2020-01-01", "{}", "{a = 1}"),
    *('""', '"\\u0000"', '"a\\nb"', '"\\u001b[31m"', '"\\u202e"', f'"{LONG * "x"}"', '"../.."'),
    *("[]", "[nan]", "[inf, 1]", "[-1]", "[0]", "[9223372036854775807]", "[1e300]", "[[]]"),
    *('[""]', '["\\u0000"]', f"[{LONG * '1, '}]", f"[{20_001 * '1, '}]", 3000 * "[", "[1, 1, 1]"),
)
"""Values as TOML: not finite, out of range, endless, of control characters, of other types."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "fl-hc": ("algorithm.num_clusters=2",),
    "pacfl": ("algorithm.num_clusters=2",),
    "agglomerative": ("algorithm.clusterer.num_clusters=2",),
    "folder": ("scenario.path=clients",),
    "femnist": ("scenario.clients=2", "scenario.examples=[]"),
    "bearing-faults": ("scenario.clients=6", "scenario.examples=[2]", "model.name=mlp"),
    "channel-state": ("scenario.clients=2", "scenario.examples=4"),
    "linear-regressions": ("scenario.clients=3", "scenario.examples=8"),
    "streams": ("scenario.clients=4", "scenario.examples=8"),
    "together": ("scenario.clients=2",),
}
"""What a table of this name must say, or says so that it is small."""


def settings() -> Iterator[tuple[tuple[str, ...], str]]:
    """Settings that choose a table, and the path of a value in it, for all there are."""
    yield from _within(Experiment, "", ())
    for f in fields(Restarts):
        if f.name != "of":
            yield ("algorithm.name=ifca", "algorithm.restarts=2"), f"algorithm.{f.name}"


def _within(kind: Any, path: str, chosen: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    hints = get_type_hints(kind)
    for f in fields(kind):
        here = f"{path}{f.name}"
        for member in members_of(hints[f.name]):
            item = next(iter(get_args(member)), member) if bare(member) is tuple else member
            if bare(item) in REGISTRIES:
                yield from _named(bare(item), here, chosen)
            elif is_dataclass(item) and item is member:
                yield from _within(item, f"{here}.", chosen)
        yield chosen, here


def _named(kind: Any, path: str, chosen: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The settings of everything of a kind that has a name."""
    for name, entry in REGISTRIES[kind].items():
        if name in SCENARIOS and not isinstance(entry, type):
            continue  # a value of a type that has a name of its own
        more = (*chosen, f"{path}.name={name}", *NEEDED.get(name, ()))
        yield more, f"{path}.name"
        if isinstance(entry, type) and is_dataclass(entry):
            yield from _within(entry, f"{path}.", more)
