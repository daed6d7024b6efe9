"""Evenness of a run's results over clients: worst tenth, spread, and who is worse off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from umbel.folder.clients_file import Client
from umbel.result.run import Result
from umbel.result.statistics.baselines import FEDERATED, LOCAL, Baselines

SAME = 1e-6
"""A smaller difference, as a share of usual values, is rounding."""

BEYOND_CHANCE = 1.645
"""Standard errors: the difference of two accuracies is as large by chance in one of 20 clients."""


@dataclass(frozen=True)
class WorseOff:
    """Shares of clients that a method serves worse than another."""

    share: float  # at all
    surely: float | None  # by more than chance; None where that is not known


@dataclass(frozen=True, kw_only=True)
class Fairness:
    """Evenness of a run's results over clients; None for unknown values."""

    worst_tenth: float | None = None  # mean accuracy, or loss, of the worst tenth of clients
    spread: float | None = None  # standard deviation over clients
    alone: WorseOff | None = None  # worse off than with local-only training
    one_model: WorseOff | None = None  # worse off than with FedAvg


def fairness(run: Result, baselines: Baselines) -> Fairness:
    """Compute the evenness of a finished run, in comparison with these baselines."""
    if not run.finished:
        return Fairness()
    values = [
        value for client in run.clients if (value := value_of(client, run.by_loss)) is not None
    ]
    if not values:
        return Fairness()
    alone, one_model = (_beside(run, baselines.beside(run, kind)) for kind in (LOCAL, FEDERATED))
    return Fairness(
        worst_tenth=worst_tenth(values, run.by_loss),
        spread=float(np.std(values)),
        alone=alone,
        one_model=one_model,
    )


def value_of(client: Client, by_loss: bool) -> float | None:
    """Return the value by which a client is judged."""
    return client.loss if by_loss else client.accuracy


def worst_tenth(values: Sequence[float], by_loss: bool) -> float:
    """The mean of the worst tenth of clients, rounded up to whole clients."""
    worst = sorted(values, reverse=by_loss)
    return float(np.mean(worst[: ceil(len(worst) / 10)]))


def worse_off(
    clients: Sequence[Client], before: Sequence[Client], by_loss: bool
) -> WorseOff | None:
    """The share of clients that fare worse than before; None without a common client.

    A client fares worse by more than chance if its accuracy is lower by more than 1.645 standard
    errors of a difference of two shares (Agresti & Caffo 2000), on as many test examples as it has.
    That is cautious: both models are judged on the same examples, and mostly err on the same ones.
    For losses no standard error is known.
    """
    earlier = {client.name: client for client in before}
    usual = magnitude(value_of(client, by_loss) for client in (*clients, *before))
    at_all, surely = [], []
    for client in clients:
        now, other = value_of(client, by_loss), earlier.get(client.name)
        then = None if other is None else value_of(other, by_loss)
        if now is None or then is None:
            continue
        worse = now - then if by_loss else then - now
        at_all.append(worse > SAME * max(usual, abs(now)))
        if not by_loss and client.test_examples:
            surely.append(worse_by_more_than_chance(now, then, client.test_examples))
    if not at_all:
        return None
    known = len(surely) == len(at_all)
    return WorseOff(float(np.mean(at_all)), float(np.mean(surely)) if known else None)


def magnitude(values: Iterable[float | None]) -> float:
    """The mean magnitude of the known values, 0 without any: losses may be of any size."""
    known = [abs(value) for value in values if value is not None]
    return float(np.mean(known)) if known else 0.0


def worse_by_more_than_chance(now: float, then: float, examples: int) -> bool:
    """Return True if an accuracy on so many test examples is surely lower than another."""
    # With a right and a wrong answer more, the error of few examples is not taken for zero.
    shares = [(examples * accuracy + 1) / (examples + 2) for accuracy in (now, then)]
    error = sqrt(sum(share * (1 - share) for share in shares) / (examples + 2))
    return shares[1] - shares[0] > BEYOND_CHANCE * error


def _beside(run: Result, baseline: Result | None) -> WorseOff | None:
    if baseline is None or not baseline.finished:
        return None
    return worse_off(run.clients, baseline.clients, run.by_loss)
