"""The command that compares all methods on the same scenarios."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from umbel.checks import UsageError, check
from umbel.checks import command as to_paste
from umbel.cli.options import (
    SEEDS,
    FilePath,
    announce,
    data_dir_option,
    jobs_option,
    no_import_option,
    runs_dir_option,
)
from umbel.cli.printing import say

if TYPE_CHECKING:
    from umbel.bench.page import ScenarioResults
    from umbel.bench.plan import Bench, BenchScenario
    from umbel.data.sources import Sources
    from umbel.experiment.experiment import ExperimentSettings
    from umbel.result.run import Result

SIZES = ("smoke", "reduced", "full")


@click.command()
@click.option("--size", type=click.Choice(SIZES), default="reduced", show_default=True)
@click.option("--methods", metavar="NAMES", help="Only these, as fedavg,ifca.")
@click.option("--scenarios", metavar="NAMES", help="Only these, as rotation,watch.")
@click.option("--add", multiple=True, metavar="FILE.py", type=FilePath(), help="Your own method.")
@click.option("--seeds", type=SEEDS, help="Number of seeds; default: as the size says.")
@click.option("--page", type=FilePath(), help="The page's file; default: among the runs.")
@jobs_option
@runs_dir_option
@data_dir_option
@no_import_option
def bench(
    size: str,
    methods: str | None,
    scenarios: str | None,
    add: tuple[Path, ...],
    seeds: int | None,
    page: Path | None,
    jobs: int,
    runs_dir: Path,
    data_dir: Path | None,
    no_import: bool,
) -> None:
    """Compare all methods on ten scenarios, and write one page and one file of numbers.

    The settings of each method are chosen on validation examples, by the same number of trial runs.
    Runs that are done are not done again: what was stopped goes on by the same command.
    """
    from umbel.bench.page import numbers
    from umbel.bench.page import page as written
    from umbel.bench.plan import Bench
    from umbel.data.sources import Sources
    from umbel.files.atomic import write_text
    from umbel.summary import duration

    added = dict(own_method(file, no_import) for file in add)
    whole = Bench.of(size, added).part(methods, scenarios, [*added])
    whole = replace(whole, seeds=seeds or whole.seeds)
    place = runs_dir / f"bench-{size}"
    maker = Maker(whole, place, Sources.default(data_dir), jobs)
    file, command = page or place / "bench.md", to_paste("bench", *sys.argv[2:])
    say("looking at which methods can run on each scenario")
    ready = [(scenario, *maker.runnable(scenario)) for scenario in whole.scenarios.values()]
    work = [seconds / jobs for *_, seconds in ready]
    say(f"about {duration(sum(work))} if no run is done yet, by the time of FedAvg on this machine")
    done: list[ScenarioResults] = []
    began = perf_counter()
    for scenario, left_out, _ in ready:
        done.append(maker.make(scenario, left_out))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, written(whole, done, command))
        write_text(file.with_suffix(".json"), numbers(whole, done, command))
        pace = (perf_counter() - began) / (sum(work[: len(done)]) or 1.0)
        left = duration(pace * sum(work[len(done) :]))
        say(f"{scenario.name} is done, {len(done)} of {len(ready)}: about {left} left")
    say(f"written: {file} and {file.with_suffix('.json')}")


def own_method(file: Path, no_import: bool) -> tuple[str, str]:
    """The name and the "module:Name" of the one method in a file."""
    from umbel.algorithms.base import Algorithm
    from umbel.client.imports import imported

    check(file.suffix == ".py" and file.is_file(), "--add", str(file), "a Python file")
    announce([str(file)], no_import)
    sys.path.insert(0, str(file.parent.absolute()))
    module: dict[str, Any] = imported("--add", f"{file.stem}:__dict__")
    kinds = [each for each in module.values() if isinstance(each, type)]
    own = [each for each in kinds if each.__module__ == file.stem]
    names = [each.__name__ for each in own if issubclass(each, Algorithm)]
    check(len(names) == 1, "--add", str(file), f"a file with one method; it has {names}")
    return names[0], f"{file.stem}:{names[0]}"


@dataclass(frozen=True)
class Maker:
    """Makes the runs of a bench."""

    bench: Bench
    place: Path
    sources: Sources
    jobs: int

    def runnable(self, scenario: BenchScenario) -> tuple[dict[str, str], float]:
        """Why each method that can't run here can't, and about how many seconds all runs take."""
        from umbel.run.start import unsaid

        bench, left_out = self.bench, dict(self.bench.left_out)
        first = replace(bench, methods={"fedavg": {"method": "fedavg"}})
        plain = first.experiment(scenario, "fedavg", {}, "fedavg", 0)
        began = perf_counter()
        try:
            federation = plain.federation(self.sources)
            *_, (_, record) = plain.opened(federation).rounds(2)
            beside = perf_counter() - began  # what a run takes beside its rounds
        except UsageError as error:
            return {**left_out, **dict.fromkeys(bench.methods, str(error))}, 0.0
        for name in bench.methods:
            choice = bench.choices(scenario, name)[0]
            try:
                with unsaid():
                    made = bench.experiment(scenario, name, choice, name, 0)
                    made.opened(federation).start(made.rounds)
            except UsageError as error:
                left_out[name] = str(error)
        runs = (bench.trials + bench.seeds) * len(bench.methods.keys() - left_out.keys())
        return left_out, runs * (beside + plain.most_rounds * record.seconds * bench.cost)

    def make(self, scenario: BenchScenario, left_out: Mapping[str, str]) -> ScenarioResults:
        """Choose the settings of each method by its trial runs, and make its runs."""
        from umbel.bench.page import ScenarioResults
        from umbel.bench.plan import TRIAL_SEED, best

        bench, place = self.bench, self.place / scenario.name
        choices = {n: bench.choices(scenario, n) for n in bench.methods if n not in left_out}
        made = partial(bench.experiment, scenario)
        trials = {
            name: [made(name, of, f"{name}-trial{n}", TRIAL_SEED) for n, of in enumerate(each)]
            for name, each in choices.items()
        }
        tried, why = self.runs(trials, place / "trials")
        values = {
            name: [run.last.judged("accuracy") if run else None for run in each]
            for name, each in tried.items()
        }
        found = {name: best(choices[name], values[name]) for name in choices}
        chosen = {name: choice for name, choice in found.items() if choice is not None}
        seeded = {
            name: [made(name, choice, name, seed) for seed in range(bench.seeds)]
            for name, choice in chosen.items()
        }
        ended, further = self.runs(seeded, place)
        runs = {n: [run for run in each if run] for n, each in ended.items() if None not in each}
        failed = dict.fromkeys((n for n in choices if n not in runs), "; ".join([*why, *further]))
        whole = {name: [*zip(choices[name], values[name], strict=True)] for name in choices}
        return ScenarioResults(scenario, runs, {**left_out, **failed}, whole, chosen)

    def runs(
        self, wanted: Mapping[str, Sequence[ExperimentSettings]], place: Path
    ) -> tuple[dict[str, list[Result | None]], list[str]]:
        """Make the runs that are not finished; None for those that can't go on, and why."""
        from umbel.cli.compare import make_runs
        from umbel.cli.execute import OwnScreen
        from umbel.folder.run_folder import RunFolder
        from umbel.result.run import Result

        left = []
        for each in (each for of in wanted.values() for each in of):
            folder = RunFolder.of(place, each)
            if folder.begun:
                folder.checked()
            left += [] if folder.finished else [each]
        groups = [[*of] for _, of in groupby(left, key=lambda each: each.name)]
        why = make_runs(groups, place, self.sources, OwnScreen(lines=1), self.jobs)
        folders = {name: [RunFolder.of(place, each) for each in of] for name, of in wanted.items()}
        return {
            n: [Result(f) if f.finished else None for f in of] for n, of in folders.items()
        }, why
