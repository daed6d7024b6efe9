"""The results of several runs by method, and means over each method's seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np

from umbel.checks import UsageError, check, nearest
from umbel.experiment import toml_file
from umbel.experiment.differences import settings_of
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.sweep import CONTROL, OF_CONTROL, parts_of
from umbel.folder.how_to_continue import over_flower
from umbel.result.run import Result
from umbel.summary import SMALL, is_small, number_text, scaled_text

Methods: TypeAlias = Sequence[tuple[str, Sequence[Result]]]
"""The runs of each method, by its name."""

CONTROLS = " (random clusters)"
"""Ending of a control's name as shown to users."""


def by_method(runs: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """The runs of each method, without the ending that all names share; the best method last.

    The variants of a sweep are named by their values, as in "joint lam=0.1", and controls as in
    "joint (random clusters)". Runs of one name whose settings differ are variants, too, and
    methods of several names with equal settings are one. Raises
    `UsageError` for two runs of one name and seed, which are no two seeds.
    """
    ordered = sorted(runs, key=lambda run: (run.experiment.name, run.experiment.seed))
    named = [list(group) for _, group in groupby(ordered, key=lambda run: run.experiment.name)]
    methods: list[tuple[Mapping[str, str], list[Result]]] = []
    for group in named:  # that of a method is before that of its controls
        methods += _beside(group, methods) if is_control(group[0]) else variants(group)
    for _, seeded in methods:
        _check_single(seeded)
    once = _once(methods)
    once.sort(key=lambda each: -rounded(mean([run.so_far.loss for run in each[2]])))
    once.sort(key=lambda each: rounded(mean([run.so_far.accuracy for run in each[2]])))
    parts = [(parts_of(name), more) for name, more, _ in once]
    bases = _shortened({base for (base, _), _ in parts})
    keys = _shortest({path for (_, settings), more in parts for path in (*settings, *more)})
    names = [_named(bases[base], {**more, **settings}, keys) for (base, settings), more in parts]
    return [(name, seeded) for name, (*_, seeded) in zip(names, once, strict=True)]


def chosen(runs: Sequence[Result], only: Sequence[str], without: Sequence[str]) -> list[Result]:
    """The runs of these methods only, and without those; `*` stands for any text in a name.

    A method has the name of its row, and those of its experiment and of its runs' folders; its
    control goes with it. Raises `UsageError` for a name that nothing has.
    """
    if not only and not without:
        return list(runs)
    rows: list[tuple[str, list[Result]]] = []
    with suppress(UsageError):  # of several comparisons, whose rows are not of one table
        rows = by_method([run for run in runs if run.records])
    row_of = {run.folder.path: name for name, seeded in rows for run in seeded}

    def names(run: Result) -> set[str]:
        found = {run.experiment.name, run.folder.path.name, row_of.get(run.folder.path, "")}
        return {*found, *(name.removesuffix(OF_CONTROL).removesuffix(CONTROLS) for name in found)}

    def fits(run: Result, name: str) -> bool:
        return any(each == name or fnmatchcase(each, name) for each in names(run))

    for option, given in (("--only", only), ("--without", without)):
        for name in given:
            known = any(fits(run, name) for run in runs)
            hint = nearest(name, [row for row, _ in rows] or {r.experiment.name for r in runs})
            if not known:
                raise UsageError(f"{option}: {name!r} is no method here; {hint}")
    kept = [
        run
        for run in runs
        if (not only or any(fits(run, name) for name in only))
        and not any(fits(run, name) for name in without)
    ]
    check(bool(kept), "--without", ", ".join(without), "without some method: nothing is left")
    return kept


def _beside(
    controls: Sequence[Result], methods: Sequence[tuple[Mapping[str, str], Sequence[Result]]]
) -> list[tuple[Mapping[str, str], list[Result]]]:
    """Return controls by the variant of their method, with its settings.

    Their own settings do not tell variants: sizes of clusters are those that the method found under
    the same seed, and methods may differ in what no control has.
    """
    settings = {_place(run): more for more, seeded in methods for run in seeded}
    parts: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for run in controls:
        parts.setdefault(tuple(settings.get(_place(run), {}).items()), []).append(run)
    return [(dict(more), seeded) for more, seeded in parts.items()]


def _once(
    methods: Sequence[tuple[Mapping[str, str], list[Result]]],
) -> list[tuple[str, Mapping[str, str], list[Result]]]:
    """Methods of equal settings are one, named as the one with the fewest values in its name.

    Of two runs with one seed the finished one counts, or else that of this name. Controls are
    equal if what they control is.
    """
    kept: list[tuple[str, Mapping[str, str], dict[int, Result]]] = []
    places: dict[object, int] = {}  # by likeness, and by name
    for more, seeded in sorted(methods, key=lambda each: _simplest(each[1][0].experiment.name)):
        name, told = seeded[0].experiment.name, tuple(more.items())
        alike: list[object] = [_likeness(run) for run in seeded]
        if is_control(seeded[0]):
            controlled = places.get((name.removesuffix(OF_CONTROL), told))
            if controlled is not None:
                name = kept[controlled][0] + OF_CONTROL
            alike = [(name, told if controlled is None else controlled)]
        place = next((places[each] for each in alike if each in places), len(kept))
        if place == len(kept):
            kept.append((name, more, {}))
        places |= dict.fromkeys((*alike, (name, told)), place)
        for run in seeded:
            other = kept[place][2].setdefault(run.experiment.seed, run)
            if run.finished and not other.finished:
                kept[place][2][run.experiment.seed] = run
    return [(name, more, list(runs.values())) for name, more, runs in kept]


def _simplest(name: str) -> tuple[bool, int, str]:
    """Methods first, then controls; of each those with the fewest values in their names."""
    settings = parts_of(name)[1]
    return CONTROL in settings.items(), len(settings), name


def _likeness(run: Result) -> str:
    """Return values that are equal for runs that learn the same.

    Clients over Flower may differ in each run.
    """
    return str(run.folder.path) if over_flower(run.folder.path) else likeness(run.experiment)


def _place(run: Result) -> tuple[Path, str, int]:
    """Return the path of a run, and its name and seed, or those of the run that it controls."""
    experiment = run.experiment
    return run.folder.path.parent, experiment.name.removesuffix(OF_CONTROL), experiment.seed


def _check_single(runs: Sequence[Result]) -> None:
    first: dict[int, Result] = {}
    for run in runs:
        name, seed = run.experiment.name, run.experiment.seed
        other = first.setdefault(seed, run)
        if other is not run:
            raise UsageError(
                f"{run.folder.path}: is {name} with seed {seed}, and so is {other.folder.path}; "
                "compare the runs of one comparison at a time, or give runs other names"
            )


def is_control(run: Result) -> bool:
    """True if `umbel compare --control` made the run."""
    return CONTROL in parts_of(run.experiment.name)[1].items()


def _named(base: str, settings: Mapping[str, str], keys: Mapping[str, str]) -> str:
    varied = [f"{keys[p]}={value}" for p, value in settings.items() if (p, value) != CONTROL]
    return " ".join([base, *varied]) + (CONTROLS if CONTROL in settings.items() else "")


def _shortened(names: set[str]) -> dict[str, str]:
    """Each name without the words, between hyphens, that all end in."""
    words = {name: name.split("-") for name in names}
    while (
        len(words) > 1
        and len({parts[-1] for parts in words.values()}) == 1
        and min(map(len, words.values())) > 1
    ):
        words = {name: parts[:-1] for name, parts in words.items()}
    return {name: "-".join(parts) for name, parts in words.items()}


def _shortest(paths: set[str]) -> dict[str, str]:
    """Return the last key of each setting's path, or the whole path if keys would be equal."""
    last = {path: path.rpartition(".")[2] for path in paths}
    counts = Counter(last.values())
    return {path: key if counts[key] == 1 else path for path, key in last.items()}


def uneven(methods: Methods) -> bool:
    """Return True if methods have different numbers of seeds, which tables must then show."""
    return len({len(runs) for _, runs in methods}) > 1


def over_seeds(methods: Methods, which: str = "") -> str:
    """Explain numbers with a ±, and over which seeds they are; "" if every method has one seed."""
    most = max(len(runs) for _, runs in methods)
    if most == 1:
        return ""
    seeds = which or ("the seeds of each row" if uneven(methods) else f"{most} seeds")
    return f"mean ± population standard deviation over {seeds}"


def mean(values: Sequence[float | None]) -> float:
    """The mean of the known values; minus infinity if none is known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else -np.inf


def rounded(value: float) -> float:
    """To nine digits, however small: rounding errors must not order methods that are equal."""
    return float(f"{value:.9g}")


def mean_text(values: Sequence[float | None], digits: int, scaled: bool = False) -> str:
    """The mean as text, a dash if nothing is known; `scaled`: as `scaled_text` writes it."""
    value = mean(values)
    text = scaled_text if scaled else number_text
    return text(value if np.isfinite(value) else None, digits)


def megabytes_text(values: Sequence[float | None]) -> str:
    """The mean as text: a digit after the point, or, of little, the first digit that is not 0.

    It is a dash if nothing is known.
    """
    value = mean(values)
    if not np.isfinite(value):
        return "-"
    return f"{value:.1g}" if 1e-6 <= value < 0.095 else f"{value:.1f}"


def spread_text(values: Sequence[float | None], digits: int, scaled: bool = False) -> str:
    """Mean and, over several seeds, population standard deviation; `scaled` as in `mean_text`.

    A small mean with a deviation that is not small is shown like other numbers.
    """
    known = [value for value in values if value is not None]
    deviation = float(np.std(known)) if len(known) > 1 else 0.0
    small = scaled and is_small(mean(values)) and deviation < SMALL
    told = f"±{deviation:{'.2g' if small else f'.{digits}f'}}" if len(known) > 1 else ""
    return mean_text(values, digits, small) + told


BESIDE = {"name", "description", "seed", "rounds", "evaluate_every", "checkpoint_every"}
"""Settings in which runs of one experiment may differ, or that tables show by themselves."""

DIGESTS = {"train", "test", "validation", "groups", "names", "initial", "constants", "gives"}
DIGESTS |= {"clients", "examples", "test_examples", "validation_examples", "frozen"}
"""What of data and modules made in Python may be another for each seed."""

SAME_ANYHOW = {"engine.name", "engine.kernel", "engine.device", "engine.memory_mb"}
SAME_ANYHOW |= {"engine.workers", "engine.address"}
"""Settings that don't change what is learnt."""

LONGEST_VALUE = 24
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
        name: _short_values({settings[name] for settings, _ in parts if name in settings})
        for name in names
    }
    return [
        ({name: short[name][settings[name]] for name in names if name in settings}, seeded)
        for settings, seeded in parts
    ]


def _settings(experiment: ExperimentSettings) -> dict[str, str]:
    """Return the settings of an experiment by dotted names."""
    table = toml_file.plain(experiment)
    of_python = [part for part in ("scenario", "model") if ":Own" in str(table[part]["name"])]
    left_out = BESIDE | SAME_ANYHOW | {f"{p}.{name}" for p in of_python for name in DIGESTS}
    return {name: repr(value) for name, value in settings_of(experiment, left_out).items()}


def likeness(experiment: ExperimentSettings) -> str:
    """Return values that are equal for experiments that learn the same, whatever their names."""
    left_out = (BESIDE - {"rounds"}) | SAME_ANYHOW
    return repr(sorted(settings_of(experiment, left_out).items()))


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


def _short_values(values: Iterable[str]) -> dict[str, str]:
    """Return the beginning of each value, or the different parts if beginnings are equal."""
    texts = {value: value.strip("'") for value in values}
    beginnings = {value: _cut(text) for value, text in texts.items()}
    short = {}
    for value, beginning in beginnings.items():
        alike = [texts[other] for other, begins in beginnings.items() if begins == beginning]
        short[value] = beginning + (_difference(texts[value], alike) if len(alike) > 1 else "")
    return short


def _difference(text: str, alike: Sequence[str]) -> str:
    """Return the part in which a text differs from others that begin alike."""
    shortest, longest = min(map(len, alike)), max(map(len, alike))
    start = next((n for n in range(shortest) if len({each[n] for each in alike}) > 1), shortest)
    enough = (
        n for n in range(start + LONGEST_VALUE, longest) if _distinct(each[:n] for each in alike)
    )
    end = next(enough, longest)
    return text[start:end] + "..." * (end < len(text))


def _distinct(texts: Iterable[str]) -> bool:
    every = list(texts)
    return len(set(every)) == len(every)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
