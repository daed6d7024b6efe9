"""Causes of low purity on EMNIST in Lin et al. 2024, Fig. 5: `python -m benchmarks.letters`.

It runs the joint method with lambda 0.2 under one or several choices that the paper leaves open,
such as `blocks+lr-0.1`, and prints purity, the number of models that are in use, and accuracy after
some rounds. It needs `emnist` in the data directory. `--clients 200` is the paper's number; fewer
share the same images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.choices import changed
from benchmarks.refusing import plainly
from umbel.algorithms.joint import Joint
from umbel.client.work import LocalTraining
from umbel.data.scenarios.overlapping_labels import OverlappingLabels
from umbel.data.sources import Sources
from umbel.experiment.experiment import ExperimentSettings
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.run.records import Record

CLASSES, GROUPS, ABSENT = 47, 8, 7
SHOWN = (5, 10, 20, 40, 60, 100, 150, 200, 300, 400)
"""After how many rounds results are printed."""


@dataclass(frozen=True)
class Setting:
    """The settings that choices change."""

    scenario: OverlappingLabels
    method: Joint


Choice = Callable[[Setting], Setting]


def _all_but(absent: list[set[int]]) -> Choice:
    """Each group lacks these classes."""
    labels = tuple(tuple(sorted(set(range(CLASSES)) - each)) for each in absent)
    return lambda s: replace(s, scenario=replace(s.scenario, labels=labels))


def _at_random() -> list[set[int]]:
    """Seven classes for each group, by a separate seed."""
    rng = np.random.default_rng(0)
    return [set(rng.choice(CLASSES, ABSENT, replace=False).tolist()) for _ in range(GROUPS)]


def _trained(change: Callable[[LocalTraining], LocalTraining]) -> Choice:
    """Other local training."""

    def choice(setting: Setting) -> Setting:
        method = replace(setting.method, local=change(setting.method.local))
        return replace(setting, method=method)

    return choice


def _lr(value: float) -> Choice:
    return _trained(lambda local: replace(local, lr=value))


def _batch(size: int) -> Choice:
    return _trained(lambda local: replace(local, batch_size=size))


def _steps(number: int) -> Choice:
    return _trained(lambda local: replace(local, steps=number))


def _lam(value: float) -> Choice:
    return lambda s: replace(s, method=replace(s.method, lam=value))


CHOICES: Mapping[str, Choice] = {
    "as-in-table": lambda setting: setting,
    # Absent classes next to each other, so that those between two groups' have other names.
    "blocks": _all_but([{(6 * g + n) % CLASSES for n in range(ABSENT)} for g in range(GROUPS)]),
    "random": _all_but(_at_random()),
    "global-labels": lambda s: replace(s, scenario=replace(s.scenario, local_labels=False)),
    **{f"lr-{lr}": _lr(lr) for lr in (0.005, 0.05, 0.1, 0.2)},
    **{f"batch-{size}": _batch(size) for size in (64, 256, 512)},
    "steps-5": _steps(5),
    **{f"lambda-{lam}": _lam(lam) for lam in (0.0, 0.5, 0.8, 1.0)},
}


def experiment_of(choice: str, clients: int, rounds: int, seed: int) -> ExperimentSettings:
    """The full-size experiment under choices such as "blocks+lr-0.1", of these clients and rounds.

    Raises `UsageError` for a choice that is not among `CHOICES`.
    """
    cells = REPRODUCTIONS["lin-fig5"].cells("full")
    (usual,) = (c.experiment for c in cells if (c.row, c.column) == ("λ = 0.2", "EMNIST"))
    assert isinstance(usual.algorithm, Joint)
    assert isinstance(usual.scenario, OverlappingLabels)
    before = Setting(replace(usual.scenario, clients=clients), usual.algorithm)
    setting = changed(before, choice, CHOICES)
    return replace(
        usual,
        scenario=setting.scenario,
        algorithm=setting.method,
        rounds=rounds,
        evaluate_every=rounds,
        seed=seed,
    )


def same_name(scenario: OverlappingLabels) -> tuple[float, float]:
    """The share of the classes held by two groups that both call the same: mean over pairs of
    groups, and largest."""
    tables = [
        {label: place if scenario.local_labels else label for place, label in enumerate(mine)}
        for mine in scenario.labels
    ]
    shares = [
        float(np.mean([one[label] == other[label] for label in one.keys() & other.keys()]))
        for one, other in combinations(tables, 2)
    ]
    return float(np.mean(shares)), max(shares)


def watched(experiment: ExperimentSettings, sources: Sources) -> Iterator[tuple[Record, int]]:
    """The records of the rounds that are shown, and how many models some client uses."""
    last = experiment.most_rounds - 1
    for state, record in experiment.open(sources).rounds(experiment.rounds):
        if record.round + 1 in SHOWN or record.round == last:
            yield record, len(torch.unique(state.labels))


@plainly()
def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, do the rounds, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.letters", description=__doc__)
    parser.add_argument(
        "choices", nargs="*", default=["as-in-table"], help=f"of {', '.join(CHOICES)}"
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--clients", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    numbers = given.clients, given.rounds, given.seed
    experiments = {choice: experiment_of(choice, *numbers) for choice in given.choices}
    torch.set_num_threads(1)
    console = Console(width=120)
    for choice, experiment in experiments.items():
        assert isinstance(experiment.scenario, OverlappingLabels)
        mean, most = same_name(experiment.scenario)
        console.print(
            f"{choice}, {given.clients} clients, seed {given.seed}; of the classes that two groups "
            f"hold, {mean:.0%} have one name in both, {most:.0%} at most"
        )
        table = Table("rounds", "purity", "ARI", "models", "accuracy", box=SIMPLE_HEAD)
        for record, models in watched(experiment, Sources.default()):
            accuracy = "-" if record.accuracy is None else f"{record.accuracy:.3f}"
            purity, ari = f"{record.purity:.3f}", f"{record.ari:.3f}"
            table.add_row(str(record.round + 1), purity, ari, str(models), accuracy)
        console.print(table)


if __name__ == "__main__":
    main()
