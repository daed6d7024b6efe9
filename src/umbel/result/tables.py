"""Results of runs as tables with a row for each run, for each round, and for each client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, check
from umbel.data.groups import is_number
from umbel.experiment.layers import flat
from umbel.experiment.toml_file import plain
from umbel.folder.clients_file import COLUMNS, TUNED, Client
from umbel.folder.run_folder import RunFolder, runs_in
from umbel.notebooks import cut
from umbel.result.run import Result
from umbel.result.statistics.agreement import (
    adjusted_mutual_information,
    adjusted_rand_index,
    agreement,
)
from umbel.result.statistics.baselines import Baselines
from umbel.result.statistics.fairness import Fairness, WorseOff, fairness
from umbel.result.statistics.pairs import differences
from umbel.result.table import Table, Value
from umbel.run.metrics import names_of
from umbel.run.records import Record, measures_of
from umbel.summary import counted

OF_A_RUN = ("folder", "name", "algorithm", "seed")
"""Columns that identify the run of a row."""

RESULTS = (
    *("accuracy", "worst", "accuracy_std", "weighted_accuracy", "loss"),
    *("num_clusters", "ari", "purity", "nmi"),
)
"""Results of a run's last round; before its end, of the last evaluated round."""

OF = ("run", "round", "client")
"""Kinds of rows of the tables."""

EVENNESS = (
    *("worst_tenth", "spread"),
    *("worse_than_alone", "surely_worse_than_alone"),
    *("worse_than_one_model", "surely_worse_than_one_model"),
)
"""Evenness of a finished run, and the clients that local-only or FedAvg serves better."""

COSTS = ("megabytes_down", "megabytes_up", "gradient_evaluations", "loss_evaluations", "seconds")
"""Traffic and work of each client, and time, of all rounds so far."""


@dataclass(frozen=True)
class Results:
    """The runs of a folder, finished or not, as tables of runs, rounds and clients.

    `results` gives one. `len`, iteration, rows and columns are of the table of runs. Each table is
    read from the runs' folders when it is first asked for, so that those of runs in progress may be
    of different moments.
    """

    folders: tuple[RunFolder, ...]  #: where the runs are

    @cached_property
    def runs(self) -> Table:
        """A row for each run: its name and seed, last round, cost, and settings that differ."""
        first = (*OF_A_RUN, "finished", "rounds", "rounds_planned", *RESULTS, *COSTS, *EVENNESS)
        return Table.of(_runs(self.folders), first)

    @cached_property
    def rounds(self) -> Table:
        """A row for each round of a run."""
        rows = (row for folder in self.folders for row in _rounds(Result(folder)))
        return Table.of(rows, (*OF_A_RUN, "round", *RESULTS))

    @cached_property
    def clients(self) -> Table:
        """A row for each client of a finished run."""
        rows = (row for folder in self.folders for row in _clients(Result(folder)))
        return Table.of(rows, (*OF_A_RUN, *COLUMNS, "test_examples"))

    def __repr__(self) -> str:
        try:
            tables = (self.runs, self.rounds, self.clients)
        except (UsageError, OSError, ValueError):
            return f"Results: {counted(len(self.folders), 'run')}, which can't all be read"
        sizes = [counted(len(table), of) for table, of in zip(tables, OF, strict=True)]
        return f"Results: {', '.join(sizes)}"

    def _repr_html_(self) -> str:
        try:
            columns, values = self.columns, self.rows
        except (UsageError, OSError, ValueError):
            columns, values = (), ()
        rows = [[str(row[name]) for name in columns] for row in values]
        return cut(columns, rows, repr(self), "runs")._repr_html_()

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return iter(self.runs)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of runs."""
        return self.runs.columns

    @property
    def rows(self) -> tuple[dict[str, Value], ...]:
        """Return the columns of each run, by name."""
        return self.runs.rows

    def column(self, name: str) -> list[Value]:
        """One value of each run. Raises `UsageError` for a name that is not a column's."""
        return self.runs.column(name)

    def differences(self, judge: str | None = None) -> Table:
        """A row for each pair of methods: how much better one is, with a 95% interval.

        Gains are of accuracy, or without it of loss, on the same clients under the same seeds; or
        of what `judge` names: "loss", or a metric of the runs such as "perplexity".
        `p_holm` is the p-value corrected for all pairs. Runs of one name are of one method, each of
        another seed: raises `UsageError` for two of one name and seed, as of two comparisons.
        """
        return differences(list(map(Result, self.folders)), judge)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. Raises `UsageError` if pandas is not installed."""
        return self.runs.to_pandas()


def results(folder: Path | str) -> Results:
    """Read the results of one run, or of all runs in a folder or in the comparisons in it.

    >>> import torch
    >>> federation = umbel.scenario("rotated-digits", clients=4)
    >>> net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    >>> for seed in range(2):
    ...     run = umbel.Run(umbel.FedAvg(), federation, net, seed=seed)
    ...     result = run.save(f"runs/fedavg-seed{seed}", rounds=2)
    >>> umbel.results("runs").column("seed")
    [0, 1]

    Clients count as worse off by the baselines of the run's own comparison, if it has any.

    Raises `UsageError` where there is no run.
    """
    return results_of(run_folders(Path(folder)))


def run_folders(folder: Path) -> list[RunFolder]:
    """The run of this folder, or those in it and in folders in it, by name."""
    if (folder / "experiment.toml").is_file():
        return [RunFolder.open(folder)]
    runs = runs_in(folder, depth=2)
    check(bool(runs), "folder", str(folder), "the folder of a run, or a folder of runs")
    return runs


def results_of(folders: Sequence[RunFolder]) -> Results:
    """The results of these runs, in this order."""
    return Results(tuple(folders))


def _runs(folders: Sequence[RunFolder]) -> Iterator[dict[str, Value]]:
    described = [plain(folder.experiment) for folder in folders]
    baselines = Baselines.among(map(Result, folders))
    for folder, said, settings in zip(folders, described, _differing(described), strict=True):
        run = Result(folder)  # with its records, of which those of many runs do not fit into memory
        even, agrees = _evenness(fairness(run, baselines)), _agreement(run)
        yield {**_which(run, said), **_summary(run), **even, **agrees, **settings}


def _rounds(run: Result) -> Iterator[dict[str, Value]]:
    which = _which(run, plain(run.experiment))
    return ({**which, **_measured(record)} for record in run.records)


def _clients(run: Result) -> Iterator[dict[str, Value]]:
    which = _which(run, plain(run.experiment))
    return ({**which, **_client(client)} for client in (run.clients if run.finished else ()))


def _which(run: Result, said: Mapping[str, Any]) -> dict[str, Value]:
    experiment = run.experiment
    values = (str(run.folder.path), experiment.name, said["algorithm"]["name"], experiment.seed)
    return dict(zip(OF_A_RUN, values, strict=True))


def _summary(run: Result) -> dict[str, Value]:
    last = run.so_far if run.records else None
    return {
        "finished": run.finished,
        "rounds": len(run.records),
        "rounds_planned": run.experiment.rounds,
        **{name: getattr(last, name, None) for name in RESULTS},
        **{name: last.measures.get(name) if last else None for name in names_of(run.experiment)},
        "megabytes_down": run.megabytes_down,
        "megabytes_up": run.megabytes_up,
        "gradient_evaluations": run.evaluations_per_client("gradient"),
        "loss_evaluations": run.evaluations_per_client("loss"),
        "seconds": run.seconds,
    }


def _measured(record: Record) -> dict[str, Value]:
    """A round, counted from 1."""
    values = dict(measures_of(record))
    whole = {name: int(value) for name, value in values.items() if _counts(record, name)}
    return {"round": record.round + 1, **values, **whole}


def _counts(record: Record, name: str) -> bool:
    # A method's measure may have the name of a property, which is not its value.
    return name in ("missing", "refused") or isinstance(vars(record).get(name), int)


def _client(client: Client) -> dict[str, Value]:
    """A client, with a group that is a number as such."""
    group = int(client.group) if is_number(client.group) else client.group or None
    known = {"client": client.name, **vars(client), "group": group}
    attributes = {f"attribute_{name}": value for name, value in client.attributes.items()}
    tuned = () if client.tuned_epochs is None else TUNED
    told = {name: known[name] for name in (*COLUMNS, "test_examples", *tuned)}
    return {**told, **client.metrics, **attributes}


def _evenness(found: Fairness) -> dict[str, Value]:
    def shares(worse: WorseOff | None) -> tuple[Value, Value]:
        return (None, None) if worse is None else (worse.share, worse.surely)

    values = (found.worst_tenth, found.spread, *shares(found.alone), *shares(found.one_model))
    return dict(zip(EVENNESS, values, strict=True))


def _agreement(run: Result) -> dict[str, Value]:
    """Return the agreement of the clusters with each attribute."""
    clients = run.clients if run.finished else []
    scores = {"ami": adjusted_mutual_information, "ari": adjusted_rand_index}
    return {
        f"{name}_{attribute}": value
        for name, score in scores.items()
        for attribute, value in agreement(clients, score).items()
    }


def _differing(described: Sequence[Mapping[str, Any]]) -> list[dict[str, Value]]:
    """Return the settings in which each experiment differs, but for those shown anyway.

    Those are name, seed, and rounds: `rounds_planned`, which may be more than are done.
    """
    told = {"name", "description", "seed", "rounds"}
    tables = [{k: v for k, v in flat(said) if k not in told} for said in described]
    names = dict.fromkeys(name for table in tables for name in table)
    differ = [n for n in names if any(t.get(n) != tables[0].get(n) for t in tables)]
    return [{name: table.get(name) for name in differ} for table in tables]
