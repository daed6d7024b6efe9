"""Measures by which methods are compared: accuracy, loss, or a metric of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umbel.checks import UsageError, check
from umbel.client.metrics import METRICS
from umbel.experiment.experiment import ExperimentSettings
from umbel.folder.clients_file import Client
from umbel.result.run import Result
from umbel.run.metrics import names_of
from umbel.run.records import Record
from umbel.run.stopping import LOWER


@dataclass(frozen=True)
class Measure:
    """One number that says how well a client fares, and which way is better."""

    name: str  # accuracy, loss, or a metric

    @property
    def lower(self) -> bool:
        """True if lower values are better."""
        return self.name in LOWER

    @property
    def best(self) -> str:
        """Return the best of several values."""
        return "lowest" if self.lower else "highest"

    def gain(self, on: str = "") -> str:
        """Words for a gain, such as "less test loss"."""
        return " ".join(filter(None, ("less" if self.lower else "more", on, self.name)))

    def of_client(self, client: Client) -> float | None:
        """Return the value of a client; None if it is not known."""
        return client.metrics.get(self.name, _own(client, self.name))

    def of_record(self, record: Record) -> float | None:
        """The mean over clients after a round, on test examples."""
        return record.measures.get(self.name, _own(record, self.name))


ACCURACY, LOSS = Measure("accuracy"), Measure("loss")


def measure_of(runs: Sequence[Result], judge: str | None = None) -> Measure:
    """Return the measure of this name; by default accuracy, or loss if no run has accuracy.

    Raises `UsageError` for what not all of these runs measure, and for accuracy if none does.
    """
    by_loss = all(run.by_loss for run in runs)
    if judge is None:
        return LOSS if by_loss else ACCURACY
    measure = measure_named(judge, [run.experiment for run in runs])
    if measure == ACCURACY and runs and by_loss:
        raise UsageError("judge: none of these runs has an accuracy")
    return measure


def measure_named(name: str, experiments: Sequence[ExperimentSettings]) -> Measure:
    """The loss, the accuracy, or a metric that all of these experiments measure.

    Raises `UsageError` for any other, and for a metric of one's own: which way is better is not
    known of it.
    """
    measured = set(METRICS).intersection(*map(names_of, experiments))
    known = [ACCURACY.name, LOSS.name, *sorted(measured)]
    expected = f'measured by all of these runs, as {", ".join(known)}: write metrics = ["{name}"]'
    check(name in known, "judge", name, expected if name in METRICS else f"any of {known}")
    return Measure(name)


def _own(values: Client | Record, name: str) -> float | None:
    value: float | None = getattr(values, name, None)
    return value
