"""The page of a comparison of all methods in Markdown, and its numbers in JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from umbel.bench.audits import Runs, deciding_seeds, marks_of, ranked
from umbel.bench.plan import Bench, BenchScenario, Choice
from umbel.experiment.library import catalogue
from umbel.experiment.toml_file import plain
from umbel.folder.sessions_file import environment
from umbel.report.best_method import chance, said, verdict
from umbel.report.comparison import Sheet, sheet
from umbel.result.outcomes import mean
from umbel.result.run import Result
from umbel.result.statistics.measures import ACCURACY
from umbel.result.statistics.pairs import MethodStanding, standing
from umbel.result.table import Table
from umbel.result.tables import results_of
from umbel.summary import counted, joined_by_and, three_digits

SHOWN = "method|accuracy|worst tenth|worse than alone|ARI|AMI|clusters|MB|seconds"
"""How the columns of the usual table begin that this page has, as a pattern."""


@dataclass(frozen=True)
class ScenarioResults:
    """The finished runs of one scenario."""

    scenario: BenchScenario
    runs: Runs
    left_out: Mapping[str, str]  # why each other method has no results
    trials: Mapping[str, Sequence[tuple[Choice, float | None]]]  # and the value on validation
    chosen: Mapping[str, Choice]

    @cached_property
    def order(self) -> MethodStanding | None:
        """All methods but those that are told the groups, compared; None if there is only one."""
        fair = {n: e for n, e in self.runs.items() if not e[0].algorithm.traits.needs_groups}
        return standing(ranked(fair, ACCURACY), ACCURACY) if len(fair) > 1 else None

    @cached_property
    def deciding(self) -> dict[tuple[str, str], list[int]]:
        """The pairs that are decided by one seed, and each such seed."""
        return deciding_seeds(self.order) if self.order else {}

    @cached_property
    def marks(self) -> dict[str, list[str]]:
        """What to look at twice, by method."""
        best = self.in_front[:1]
        beside = {other: of for (method, other), of in self.deciding.items() if method in best}
        return marks_of(self.runs, beside)

    @property
    def in_front(self) -> list[str]:
        """The best method, and those that it may be ahead of by chance."""
        order = self.order
        return [order.leader.name, *(pair.other.name for pair in order.doubtful)] if order else []

    def table(self) -> str:
        """The table of the methods, the best first, in Markdown."""
        names = [method.name for method in reversed(ranked(self.runs, ACCURACY))]
        whole = sheet([(name, self.runs[name]) for name in names])
        shown = [n for n, head in enumerate(whole.heads) if re.match(SHOWN, head)]
        pairs = {pair.other.name: pair for pair in (self.order.others if self.order else ())}
        groups = {name: group for group, of in catalogue("methods").items() for name in of}
        rows = []
        for row in whole.rows:
            registered = plain(self.runs[row[0]][0].experiment)["algorithm"]["name"]
            pair = pairs.get(row[0])
            lead = "-" if pair is None or pair.lead is None else said(pair.lead)
            p_value = "-" if pair is None or not pair.known else chance(pair.p_value)
            twice = "; ".join(self.marks.get(row[0], ())) or "-"
            name, *values = (row[n] for n in shown)
            group = groups.get(name, groups.get(registered, "-"))
            rows.append((name, group, *values, lead, p_value, twice))
        heads = [whole.heads[n] for n in shown]
        heads = [heads[0], "group", *heads[1:], "behind the best", "p (Holm)", "look twice at"]
        return Sheet(tuple(heads), tuple(rows)).markdown

    def section(self) -> Iterator[str]:
        """The results in Markdown."""
        yield f"## {self.scenario.name}\n\n{self.scenario.description}\n"
        if self.runs:
            yield self.table()
        if self.order is not None:
            yield f"{verdict(self.order, ACCURACY)}\n"
        if self.chosen:
            yield f"Chosen: {'; '.join(f'{n} ({_said(c)})' for n, c in self.chosen.items())}.\n"
        for why in dict.fromkeys(self.left_out.values()):
            names = [name for name, reason in self.left_out.items() if reason == why]
            yield f"Left out: {joined_by_and(names)}: {why}.\n"

    def front(self) -> str:
        """The methods in front, and which of them sends the least."""
        sent = {name: _megabytes(self.runs[name]) for name in self.in_front}
        least = min(sent, key=lambda name: sent[name])
        text = f"- {self.scenario.name}: {joined_by_and([*sent])}. Of these {least} sends the "
        text += f"least, {three_digits(sent[least])} MB to and from each client."
        simple = [name for name in ("local-only", "fedavg") if name in sent]
        return text + (f" No clusters are needed: {joined_by_and(simple)}." if simple else "")

    def plain(self) -> dict[str, Any]:
        """The results for programs."""
        pairs = [
            {"method": pair.better.name, "other": pair.other.name, "p_holm": pair.p_value}
            | {"sure": pair.sure, **asdict(pair.lead)}
            | {"decided_by_seeds": self.deciding.get((pair.better.name, pair.other.name))}
            for pair in (self.order.pairs if self.order else ())
            if pair.lead is not None
        ]
        folders = [run.folder for each in self.runs.values() for run in each]
        # Without the settings of other methods.
        runs = [
            {name: value for name, value in row.items() if value is not None}
            | {"folder": Path(str(row["folder"])).name}
            for row in results_of(folders).runs.rows
        ]
        return {
            "scenario": self.scenario.name,
            "experiment": self.scenario.experiment,
            "left_out": self.left_out,
            "trials": self.trials,
            "chosen": self.chosen,
            "runs": runs,
            "pairs": Table.of(pairs).rows,
            "marks": self.marks,
        }


def _said(choice: Choice) -> str:
    """The values of the settings by their last keys."""
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in choice.items())


def _megabytes(runs: Sequence[Result]) -> float:
    """To and from each client, the mean over seeds."""
    return mean([run.megabytes_down for run in runs]) + mean([run.megabytes_up for run in runs])


def when(done: Sequence[ScenarioResults]) -> Iterator[str]:
    """Which method is good when, from the numbers of the scenarios."""
    for planted, title in ((True, "planted groups"), (False, "natural clients")):
        of = [one for one in done if one.scenario.planted == planted and one.order is not None]
        counts = Counter(name for one in of for name in one.in_front)
        most = [f"{name} ({count})" for name, count in counts.most_common() if 2 * count > len(of)]
        if of:
            scenarios, told = counted(len(of), "scenario"), joined_by_and(most or ["none"])
            yield f"In front in most of {scenarios} with {title}: {told}."
            yield "\n".join(["", *(one.front() for one in of), ""])


def page(bench: Bench, done: Sequence[ScenarioResults], command: str) -> str:
    """The whole page in Markdown."""
    versions = [f"{name} {number}" for name, number in environment()["versions"].items()]
    how = f"""# All methods side by side: {bench.size} size

Made by `{command}` with {", ".join(versions)}.

Settings were chosen by {counted(bench.trials, "trial run")} of each method and scenario, on
validation examples; results are on test examples, over {counted(bench.seeds, "seed")}.
[How to read them](bench.md#how-to-read-the-page).

## Which method when

In front: the best mean, and those that it may be ahead of by chance. Methods that are told the
planted groups are not compared.
"""
    return "\n".join([how, *when(done), *(part for one in done for part in one.section())])


def numbers(bench: Bench, done: Sequence[ScenarioResults], command: str) -> str:
    """The same for programs: JSON."""
    about = {"size": bench.size, "seeds": bench.seeds, "trials": bench.trials, "command": command}
    table = {**about, **environment(), "scenarios": [one.plain() for one in done]}
    return f"{json.dumps(table, allow_nan=False)}\n"
