"""The similarities of label-swapped clients in FLACC: `python -m benchmarks.similarities`.

It begins the full-size run of Mehta & Shao 2023 with swapped labels under one or several choices
that the paper leaves open, such as `disjoint+whole-batches`, and prints for every round the cosine
similarities between the updates of its cohort, and each merge of clients of different groups. The
server has one model until separation, so that similarities do not depend on merges. It needs
`cifar10` in the data directory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isnan
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.choices import changed
from benchmarks.merges import RoundSeen, Spread, rounds_seen, swapped_pairs
from benchmarks.refusing import plainly
from benchmarks.result_files import check_folder
from umbel.algorithms.flacc import FLACC
from umbel.client.optimizers import SGD
from umbel.client.work import LocalTraining
from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import SwapLabels
from umbel.data.sources import Sources
from umbel.experiment.experiment import ExperimentSettings
from umbel.networks import CNN
from umbel.papers.mehta2023.benchmarks import BENCHMARKS


@dataclass(frozen=True)
class Network(CNN):
    """The CNN, as other libraries would start or pad it."""

    glorot: bool = False  # first weights of Glorot & Bengio 2010, and no bias, as Keras has them
    padded: bool = True  # whether convolutions see zeros around an image

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        layers = list(super().build(input_shape, num_outputs).children())
        sides = list(input_shape[1:])
        for layer in layers if not self.padded else ():
            if isinstance(layer, nn.Conv2d):
                layer.padding = (0, 0)
                sides = [(side - self.kernel + 1) // 2 for side in sides]
        if not self.padded:
            first = next(n for n, layer in enumerate(layers) if isinstance(layer, nn.Linear))
            layers[first] = nn.Linear(self.channels[-1] * sides[0] * sides[1], self.hidden)
        for layer in layers if self.glorot else ():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
        return nn.Sequential(*layers)


EVALUATE_EVERY = 10  # rounds


@dataclass(frozen=True)
class Setting:
    """The settings that choices change."""

    scenario: Shifted
    network: Network
    local: LocalTraining


def disjoint(setting: Setting) -> Setting:
    """No label is swapped in two groups."""
    shift = SwapLabels(groups=5, disjoint=True)
    return replace(setting, scenario=replace(setting.scenario, shift=shift))


def whole_batches(setting: Setting) -> Setting:
    """A last batch of an epoch with fewer than 32 examples is left out."""
    return replace(setting, local=replace(setting.local, drop_last=True))


def standardised(setting: Setting) -> Setting:
    """Pixels have mean 0 and standard deviation 1, and are not from 0 to 1."""
    return replace(setting, scenario=replace(setting.scenario, standardise=True))


def momentum(setting: Setting) -> Setting:
    """SGD has momentum 0.9."""
    return replace(setting, local=replace(setting.local, optimizer=SGD(momentum=0.9)))


def glorot(setting: Setting) -> Setting:
    """The network's first weights are those of Keras."""
    return replace(setting, network=replace(setting.network, glorot=True))


def unpadded(setting: Setting) -> Setting:
    """Convolutions see no zeros around an image."""
    return replace(setting, network=replace(setting.network, padded=False))


def as_in_table(setting: Setting) -> Setting:
    """As `umbel reproduce flacc-table1 --size full` has it."""
    return setting


CHOICES: Mapping[str, Callable[[Setting], Setting]] = {
    choice.__name__.replace("_", "-"): choice
    for choice in (as_in_table, disjoint, whole_batches, standardised, glorot, unpadded, momentum)
}


@dataclass(frozen=True)
class Study:
    """The first rounds under one choice."""

    choice: str
    seed: int
    precision: str
    pairs: tuple[tuple[int, ...], ...]  # the labels that each group has swapped
    rounds: list[RoundSeen] = field(default_factory=list)


def experiment_of(choice: str, seed: int = 0) -> ExperimentSettings:
    """The full-size experiment under choices such as "disjoint+glorot".

    Raises `ValueError` for a choice that is not among `CHOICES`.
    """
    (benchmark,) = (b for b in BENCHMARKS if b.name == "label-swapped CIFAR-10")
    usual = Setting(benchmark.scenario, Network(), benchmark.local)
    setting = changed(usual, choice, CHOICES)
    return replace(
        benchmark.experiment("full"),
        scenario=setting.scenario,
        model=setting.network,
        algorithm=FLACC(setting.local),
        seed=seed,
    )


def printed(study: Study, console: Console) -> None:
    """Show a study as a table, and its wrong merges below."""
    swapped = " ".join("/".join(map(str, pair)) for pair in study.pairs)
    console.print(f"{study.choice}, seed {study.seed}, {study.precision}; swapped: {swapped}")
    head = ["round", "within", "tiny", "sharing", "most", "below", "apart", "most", "below"]
    rows = Table(*head, "entities", "mixed", "accuracy", box=SIMPLE_HEAD, pad_edge=False)
    for column in rows.columns:
        column.no_wrap = True
    for seen in study.rounds:
        cells = [_short(seen.within), _short(seen.tiny), *_beside(seen.sharing)]
        cells += [*_beside(seen.apart), str(seen.entities), str(seen.mixed)]
        cells.append("-" if seen.accuracy is None else f"{seen.accuracy:.3f}")
        rows.add_row(str(seen.number), *cells)
    console.print(rows)
    for seen in study.rounds:
        for mixing in seen.mixings:
            here, there = ("+".join(map(str, each)) for each in mixing.groups)
            said = "that share a label" if mixing.share_a_label else "that share no label"
            since = ", ".join(map(str, mixing.rounds))
            console.print(
                f"round {seen.number}: groups {here} and {there}, {said}, merge at "
                f"{mixing.smallest:.2f}, of round {since}"
            )


def _short(spread: Spread) -> str:
    return "-" if isnan(spread.mean) else f"{spread.mean:.2f} ± {spread.sd:.2f}"


def _beside(spread: Spread) -> tuple[str, str, str]:
    """The same with the largest, and how far all are below those within groups."""
    if isnan(spread.mean):
        return ("-", "-", "-")
    return (_short(spread), f"{spread.largest:.2f}", f"{spread.below:.2f}")


@plainly()
def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, do the rounds, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.similarities", description=__doc__)
    parser.add_argument(
        "choices", nargs="*", default=["as-in-table"], help=f"of {', '.join(CHOICES)}"
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=["full", "bf16"], default="full")
    parser.add_argument("--json", type=Path, help="write the results here")
    given = parser.parse_args(arguments)
    check_folder(given.json)
    experiments = {choice: experiment_of(choice, given.seed) for choice in given.choices}
    torch.set_num_threads(1)
    console, studies = Console(width=120), list[Study]()
    for choice, usual in experiments.items():
        engine = replace(usual.engine, precision=given.precision)
        experiment = replace(usual, engine=engine, evaluate_every=EVALUATE_EVERY)
        study = Study(choice, given.seed, given.precision, swapped_pairs(experiment))
        studies.append(study)
        for seen in rounds_seen(experiment, given.rounds, Sources.default()):
            study.rounds.append(seen)
            if given.json:  # after every round: a round takes a minute
                text = json.dumps([asdict(done) for done in studies], indent=1)
                given.json.write_text(text + "\n", encoding="utf-8")
        printed(study, console)


if __name__ == "__main__":
    main()
