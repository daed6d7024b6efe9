"""The contract finds mistakes of methods, and says what they are."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import umbel
from umbel.algorithms.pfedme import PFedMeState
from umbel.checks import UsageError
from umbel.method import (
    Algorithm,
    Assigned,
    Averaging,
    Context,
    Flow,
    LocalTraining,
    Rows,
    Served,
    Setup,
    State,
    Traits,
    check_num_clusters,
    cluster_mean,
    federate,
    one_model,
    train,
)
from umbel.testing import CHECKS, Check, blobs, check_method, mlp
from umbel.testing.absences import one_client_may_be_lost_in_any_request

LOCAL = LocalTraining(epochs=2, batch_size=8)


@dataclass(frozen=True)
class Norms(Algorithm[State]):
    """Clusters clients once, by the lengths of their updates: without a mistake."""

    num_clusters: int = 2
    cluster_round: int = 2
    local: LocalTraining = LOCAL
    averaging: Averaging = field(default_factory=Averaging)

    def init(self, setup: Setup) -> State:
        check_num_clusters(self.num_clusters, setup)
        return one_model(setup)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        if ctx.round >= self.cluster_round and len(state.models) == 1:
            state = yield from self.cluster(state, ctx.everyone)
        return (yield from federate(state, ctx, self.local, self.averaging))

    def cluster(self, state: State, ctx: Context) -> Flow[State]:
        trained = yield from train(Rows(state.models, state.labels), ctx, self.local)
        if len(trained.clients) < self.num_clusters:
            return state
        order = trained.update.norm(dim=1).argsort(stable=True).argsort()
        found = order * self.num_clusters // len(order)
        labels = state.labels.index_copy(0, trained.clients, found)
        return State(state.models.repeat(self.num_clusters, 1), labels)


class DropsWhoDidNotAnswer(Norms):
    def cluster(self, state: State, ctx: Context) -> Flow[State]:
        trained = yield from train(Rows(state.models, state.labels), ctx, self.local)
        if len(trained.clients) < self.num_clusters:
            return state
        longer = trained.update.norm(dim=1) > trained.update.norm(dim=1).median()
        return State(state.models.repeat(2, 1), longer.long())


class LabelsTooFew(Norms):
    def init(self, setup: Setup) -> State:
        first = super().init(setup)
        return replace(first, labels=first.labels[:-1])


class ModelsTooNarrow(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        return replace(after, models=after.models[:, :-1])


class ReturnsNothing(Norms):
    def round(self, state: State, ctx: Context) -> Flow[Any]:
        yield from super().round(state, ctx)


class Random(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        return replace(after, models=after.models + random.random() * 1e-3)


class ChangesInPlace(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        state.models.mul_(1.001)
        return after


class DividesByNobody(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        theta = Rows(state.models, state.labels[ctx.cohort])
        trained = yield from train(theta, ctx, self.local)
        return replace(state, models=state.models + trained.update.mean(0))


class AveragesOverTheCohort(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        labels = state.labels[ctx.cohort]
        trained = yield from train(Rows(state.models, labels), ctx, self.local)
        step = cluster_mean(trained.update, labels, torch.ones_like(labels), len(state.models))
        return replace(state, models=state.models + step)


class ServesClusterFive(Norms):
    def serve(self, state: State, ctx: Context) -> Flow[Served]:
        served = yield from super().serve(state, ctx)
        return replace(served, labels=served.labels + 5)


class WeighsTwice(Norms):
    traits = Traits(mixes=True)

    def serve(self, state: State, ctx: Context) -> Flow[Served]:
        served = yield from super().serve(state, ctx)
        weights = state.models.new_ones(len(ctx.cohort), len(state.models))
        return replace(served, weights=2 * weights / len(state.models))


class KnowsTheGroups(Norms):
    def init(self, setup: Setup) -> State:
        return State(setup.new_models(2), torch.as_tensor(setup.groups))


class AssignsNaN(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        return replace(found, scores=found.scores * torch.nan)


class AssignsByNumber(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        return replace(found, scores=found.scores + found.clients[:, None])


class CountsOutsideItsState(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        number = 1 if ctx.round == 0 else vars(self)["number"] + 1
        object.__setattr__(self, "number", number)
        return replace(after, models=after.models * (1 - 0.001 * number))


class ForgetsWhoHasAModel(umbel.PFedMe):
    def init(self, setup: Setup) -> PFedMeState:
        first = super().init(setup)
        return replace(first, personal=torch.zeros_like(first.personal))

    def serve(self, state: PFedMeState, ctx: Context) -> Flow[Served]:
        yield from ()
        labels = state.labels[ctx.cohort]
        plain = Rows(state.models, labels)
        return Served(Rows(state.personal, ctx.cohort), labels, adapted_from=plain)


PERSONAL = ForgetsWhoHasAModel(local=replace(LOCAL, lr=0.01), personal_lr=0.05)

MISTAKES: list[tuple[Algorithm[Any], str]] = [
    (
        DropsWhoDidNotAnswer(),
        "where one client is lost in each request: reduction: labels: shape: (7,) is not (8,)",
    ),
    (LabelsTooFew(), "labels of the state that init returns: shape: (7,) is not (8,)"),
    (ModelsTooNarrow(), "models of the state that round returns: shape: (1, 82) is not (K, 83)"),
    (ReturnsNothing(), "round: 'NoneType' is not a State"),
    (Random(), "the same run twice gives other records of round 0, as if"),
    (ChangesInPlace(), "the state after round 0 was changed in place later: models differs"),
    (
        DividesByNobody(),
        "where nobody answers request 1 of a round: models of the state that round",
    ),
    (ServesClusterFive(), "labels that serve returns: 5 is not in 0 to 0"),
    (WeighsTwice(), "weights that serve returns: sum for a client: 2.0 is not 1"),
    (KnowsTheGroups(), "init fails without planted groups, by "),
    (CountsOutsideItsState(), "a run resumed after its third round, with another run in between,"),
]

FOUND_LATE: list[tuple[Algorithm[Any], str]] = [
    (AssignsNaN(), "scores that assign returns: 'NaN' is not a number"),
    (AssignsByNumber(), "assign finds other scores of newcomers when they are numbered in another"),
    (PERSONAL, "clients [0, 1, 3, 4, 5, 7], who were never asked, are served models of zeros"),
]
"""Mistakes that one of the last checks finds."""


def said(check: Check, method: Algorithm[Any]) -> str:
    try:
        check(method)
    except (AssertionError, UsageError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("method", "sentence"),
    [*MISTAKES, *(pytest.param(*each, marks=pytest.mark.long) for each in FOUND_LATE)],
    ids=lambda m: type(m).__name__,
)
def test_a_mistake_is_found_and_said_in_a_sentence(method: Algorithm[Any], sentence: str) -> None:
    found: list[str] = []
    for check in CHECKS:
        found.append(said(check, method))
        assert found[-1][:1] not in (":", "\n")
        if found[-1].startswith(sentence):
            return
    pytest.fail(f"{found}")


@pytest.mark.parametrize("number", range(5))
def test_one_who_does_not_answer_a_clustering_is_missed_in_whichever_round(number: int) -> None:
    lost = "one client does not answer|labels: shape|labels of the state that round returns: shape"
    with pytest.raises((AssertionError, UsageError), match=lost):
        one_client_may_be_lost_in_any_request(DropsWhoDidNotAnswer(cluster_round=number))


def test_an_average_over_the_cohort_is_found() -> None:
    with pytest.raises(AssertionError, match="AveragesOverTheCohort fails by IndexError: shape "):
        check_method(AveragesOverTheCohort())


@pytest.mark.long
def test_a_method_without_a_mistake_passes() -> None:
    check_method(Norms())


def test_serve_has_to_be_a_generator() -> None:
    class ServesAtOnce(Norms):
        def serve(self, state: State, ctx: Context) -> Any:
            labels = state.labels[ctx.cohort]
            return Served(Rows(state.models, labels), labels)

    with pytest.raises(UsageError, match="serve: 'Served' is not a generator: ask by `yield from`"):
        next(umbel.Run(ServesAtOnce(), blobs(), mlp()).rounds(1))


class ForgetsTheCohort(umbel.FedAvg):
    """Rows by the number of the client, where they are by its place in the cohort."""

    def round(self, state: State, ctx: Context) -> Flow[State]:
        trained = yield from train(Rows(state.models, state.labels), ctx, self.local)
        return replace(state, models=state.models + trained.update.mean(0))


class YieldsAGenerator(umbel.FedAvg):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        theta = Rows(state.models, state.labels[ctx.cohort])
        yield train(theta, ctx, self.local)  # type: ignore[misc]
        return state


class AsksStrangers(umbel.FedAvg):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        theta = Rows(state.models, state.labels[ctx.cohort])
        yield from train(theta, ctx.asking(ctx.cohort + 100), self.local)
        return state


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            ForgetsTheCohort(),
            r"theta.index: shape: \(8,\) is not \(4,\), a number for each client",
        ),
        (YieldsAGenerator(), "what round yields: 'generator' is not a request: write `yield from`"),
        (AsksStrangers(), "clients: 10[0-9] is not in 0 to 7, the numbers of clients"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_round_asks_and_returns_is_looked_at_before_it_is_used(
    method: Algorithm[Any], said: str, tmp_path: Path
) -> None:
    run = umbel.Run(method, blobs((8,) * 8), mlp(), participation=0.5)
    with pytest.raises(UsageError, match=said):
        run.save(tmp_path / "run", 2)
