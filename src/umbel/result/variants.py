"""Runs of one name that are not seeds of one experiment: they are told apart by their settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from umbel.experiment import toml_file as config
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.flat import flat
from umbel.result.run import Result

BESIDE = {"name", "description", "seed", "rounds", "evaluate_every", "checkpoint_every"}
"""Settings that runs of one experiment may differ in, or of which a table tells by itself."""

DIGESTS = {"train", "test", "validation", "groups", "names", "initial", "constants", "gives"}
DIGESTS |= {"clients", "examples", "test_examples", "validation_examples", "frozen"}
"""What of data and modules made in Python may be another for each seed."""

SAME_ANYHOW = {"engine.name", "engine.kernel", "engine.device", "engine.memory_mb"}
SAME_ANYHOW |= {"engine.workers", "engine.address"}
"""Settings that don't change what is learnt."""

LONGEST = 24
"""Characters of a value in a name, and of the part in which it differs from others."""


def variants(runs: Sequence[Result]) -> list[tuple[Mapping[str, str], list[Result]]]:
    """The runs by their settings, each part with those that tell it from the others."""
    told = [(sorted(_settings(run.experiment).items()), run) for run in runs]
    told.sort(key=lambda each: str(each[0]))  # stable: seeds stay in their order
    parts = [
        (dict(key), [run for _, run in group])
        for key, group in groupby(told, key=lambda each: each[0])
    ]
    names = _telling([settings for settings, _ in parts])
    short = {
        name: _shortened({settings[name] for settings, _ in parts if name in settings})
        for name in names
    }
    return [
        ({name: short[name][settings[name]] for name in names if name in settings}, seeded)
        for settings, seeded in parts
    ]


def _settings(experiment: ExperimentSettings) -> dict[str, str]:
    """What makes an experiment, by dotted names."""
    table = config.plain(experiment)
    of_python = [part for part in ("scenario", "model") if ":Own" in str(table[part]["name"])]
    left_out = BESIDE | SAME_ANYHOW | {f"{p}.{name}" for p in of_python for name in DIGESTS}
    found = flat(table)
    return {name: repr(value) for name, value in found if name not in left_out}


def likeness(experiment: ExperimentSettings) -> str:
    """What is equal for experiments that learn the same, whatever they are called."""
    left_out = (BESIDE - {"rounds"}) | SAME_ANYHOW
    table = {name: value for name, value in flat(config.plain(experiment)) if name not in left_out}
    return repr(sorted(table.items()))


def _telling(parts: Sequence[Mapping[str, str]]) -> list[str]:
    """As few settings as tell these apart, those of the method first."""
    chosen: list[str] = []
    for name in _differing(parts):
        if _count(parts, [*chosen, name]) > _count(parts, chosen):
            chosen.append(name)
    return chosen


def _differing(parts: Sequence[Mapping[str, str]]) -> Iterator[str]:
    names = dict.fromkeys(name for part in parts for name in part)
    order = ("algorithm.name", "algorithm.", "model.", "scenario.", "")
    rank = {
        name: next(n for n, start in enumerate(order) if name.startswith(start)) for name in names
    }
    for name in sorted(names, key=lambda name: rank[name]):
        if len({part.get(name) for part in parts}) > 1:
            yield name


def _count(parts: Sequence[Mapping[str, str]], names: Sequence[str]) -> int:
    return len({tuple(part.get(name) for name in names) for part in parts})


def _shortened(values: Iterable[str]) -> dict[str, str]:
    """The beginning of each value, and where several begin alike, the part in which they differ."""
    texts = {value: value.strip("'") for value in values}
    beginnings = {value: _cut(text) for value, text in texts.items()}
    short = {}
    for value, beginning in beginnings.items():
        alike = [texts[other] for other, begins in beginnings.items() if begins == beginning]
        short[value] = beginning + (_difference(texts[value], alike) if len(alike) > 1 else "")
    return short


def _difference(text: str, alike: Sequence[str]) -> str:
    """The part of a text that tells it from others, which begin alike."""
    shortest, longest = min(map(len, alike)), max(map(len, alike))
    start = next((n for n in range(shortest) if len({each[n] for each in alike}) > 1), shortest)
    enough = (n for n in range(start + LONGEST, longest) if _distinct(each[:n] for each in alike))
    end = next(enough, longest)
    return text[start:end] + "..." * (end < len(text))


def _distinct(texts: Iterable[str]) -> bool:
    every = list(texts)
    return len(set(every)) == len(every)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
