"""The results of several runs by method, and means over each method's seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np

from umbel.checks import UsageError
from umbel.runs.result import Result
from umbel.runs.sweep import CONTROL, OF_CONTROL, parts_of
from umbel.runs.variants import variants
from umbel.summary import SMALL, is_small, number_text, scaled_text

Methods: TypeAlias = Sequence[tuple[str, Sequence[Result]]]
"""The runs of each method, by its name."""

CONTROLS = " (random clusters)"
"""Ending of a control's name as shown to users."""


def by_method(runs: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """The runs of each method, without the ending that all names share; the best method last.

    The variants of a sweep are named by their values, as in "joint lam=0.1", and controls as in
    "joint (random clusters)". Runs of one name whose settings differ are variants, too. Raises
    `UsageError` for two runs of one name and seed, which are no two seeds.
    """
    ordered = sorted(runs, key=lambda run: (run.experiment.name, run.experiment.seed))
    named = [list(group) for _, group in groupby(ordered, key=lambda run: run.experiment.name)]
    methods: list[tuple[Mapping[str, str], list[Result]]] = []
    for group in named:  # that of a method is before that of its controls
        methods += _beside(group, methods) if is_control(group[0]) else variants(group)
    for _, seeded in methods:
        _check_single(seeded)
    methods.sort(key=lambda each: -rounded(mean([run.so_far.loss for run in each[1]])))
    methods.sort(key=lambda each: rounded(mean([run.so_far.accuracy for run in each[1]])))
    parts = [(parts_of(runs[0].experiment.name), more) for more, runs in methods]
    bases = _shortened({base for (base, _), _ in parts})
    keys = _shortest({path for (_, settings), more in parts for path in (*settings, *more)})
    names = [_named(bases[base], {**more, **settings}, keys) for (base, settings), more in parts]
    return [(name, seeded) for name, (_, seeded) in zip(names, methods, strict=True)]


def _beside(
    controls: Sequence[Result], methods: Sequence[tuple[Mapping[str, str], Sequence[Result]]]
) -> list[tuple[Mapping[str, str], list[Result]]]:
    """Controls by the variant of the method beside them, and with its settings.

    Their own settings do not tell variants: sizes of clusters are those that the method found under
    the same seed, and methods may differ in what no control has.
    """
    settings = {_place(run): more for more, seeded in methods for run in seeded}
    parts: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for run in controls:
        parts.setdefault(tuple(settings.get(_place(run), {}).items()), []).append(run)
    return [(dict(more), seeded) for more, seeded in parts.items()]


def _place(run: Result) -> tuple[Path, str, int]:
    """Where a run is, and the name and seed that it has, or that what it controls has."""
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
    """Whether `umbel compare --control` made it."""
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
    """The last key of each setting's path, or the whole path where another ends in the same key."""
    last = {path: path.rpartition(".")[2] for path in paths}
    counts = Counter(last.values())
    return {path: key if counts[key] == 1 else path for path, key in last.items()}


def uneven(methods: Methods) -> bool:
    """Whether methods have different numbers of seeds, which tables must then show."""
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
