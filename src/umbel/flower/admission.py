"""Limits on requests: a node does its own experiment's works, a bounded number of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import ConfigRecord, RecordDict

from umbel.algorithms.restarts import Restarts
from umbel.client.work import WORKS, Description, Work
from umbel.client.work.base import undeclared
from umbel.experiment.experiment import ExperimentSettings
from umbel.flower.errors import RefusedError
from umbel.run.evaluation import works_of

REQUESTS = "requests"
"""The record of a node's state that counts the requests to each client in a run of Flower."""

MORE_ROUNDS = 100
"""Rounds beyond those of the experiment, for fine-tuning and other requests after the last one."""


def check_work(asked: Work, experiment: ExperimentSettings, describes: bool) -> None:
    """Raise `RefusedError` for a work that a run of the node's own experiment does not ask for.

    `describes` says whether clients describe their inputs, which no experiment asks for by itself.
    """
    settings = experiment.metrics or (), experiment.personal, experiment.limits.max_value
    declared = works_of(experiment.algorithm, *settings)
    name = next((name for name, kind in WORKS.items() if kind is type(asked)), type(asked).__name__)
    if isinstance(asked, Description):
        if not describes:
            raise RefusedError(f"work: {name}: only with describe = true in this node's settings")
        declared.append(Description(1))
    why = undeclared(asked, declared)
    if why is not None:
        method = type(experiment.algorithm).__name__
        said = f"{why}, in this node's own experiment, whose method is {method}"
        raise RefusedError(f"work: {name}: {said}")


def count(
    state: RecordDict,
    clients: Sequence[str],
    seeds: Sequence[int],
    most: int,
    of: ExperimentSettings,
) -> None:
    """Count one more request to each client. Raises `RefusedError` for too many in a round.

    All requests of a round have the same seed for a client; `state` is that of one run of Flower.
    """
    # Each start of `Restarts` sends its own requests in a round.
    starts = of.algorithm.restarts if isinstance(of.algorithm, Restarts) else 1
    kept = _kept(state)
    for client, seed in zip(clients, seeds, strict=True):
        last, requests, rounds = kept.get(client, (None, 0, 0))
        # A server can't hide a request in a new round: rounds are bounded, too.
        same = seed == last
        requests, rounds = (requests + 1, rounds) if same else (1, rounds + 1)
        if requests > most * starts:
            allowed = f"the {most * starts} that this node allows (its setting max-requests)"
            raise RefusedError(f"client {client!r}: more requests in a round than {allowed}")
        if rounds > of.most_rounds + MORE_ROUNDS:
            raise RefusedError(f"client {client!r}: more rounds than the experiment's {of.rounds}")
        kept[client] = seed, requests, rounds
    # Flower's records hold lists of numbers and texts, so the table is kept by column.
    columns = [list(column) for column in zip(*kept.values(), strict=True)] or [[], [], []]
    table = dict(zip(("seeds", "requests", "rounds"), columns, strict=True))
    state[REQUESTS] = ConfigRecord({"clients": list(kept), **table})


def _kept(state: RecordDict) -> dict[str, tuple[int | None, int, int]]:
    """The seed of each client's last request, the requests with it, and the number of rounds."""
    if REQUESTS not in state:
        return {}
    table: Mapping[str, object] = state.config_records[REQUESTS]
    columns = (table[name] for name in ("seeds", "requests", "rounds"))
    return dict(zip(table["clients"], zip(*columns, strict=True), strict=True))  # type: ignore[call-overload]
