"""The contract finds mistakes of methods, and says what they are."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

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
    Sample,
    Served,
    Setup,
    State,
    check_num_clusters,
    cluster_mean,
    federate,
    one_model,
    train,
)
from umbel.testing import CHECKS, Check, blobs, check_method, mlp
from umbel.testing.absences import one_client_may_be_lost_in_any_request
from umbel.testing.sameness import a_round_leaves_the_state_before_it_as_it_was

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


class LabelsFloat(Norms):
    def init(self, setup: Setup) -> State:
        first = super().init(setup)
        return replace(first, labels=first.labels.float())


class LabelsNegative(Norms):
    def init(self, setup: Setup) -> State:
        first = super().init(setup)
        return replace(first, labels=first.labels - 1)


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


@dataclass(frozen=True)
class Counting(State):
    """How many clients the last round asked, by its number: JSON has text in place of numbers."""

    asked: Mapping[int, int] = field(default_factory=dict)


class CountsByNumber(Norms):
    def init(self, setup: Setup) -> State:
        first = super().init(setup)
        return Counting(first.models, first.labels)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from federate(state, ctx, self.local, self.averaging)
        assert isinstance(after, Counting)
        return replace(after, asked={ctx.round: len(ctx.cohort)})


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


class ServesNothing(Norms):
    def serve(self, state: State, ctx: Context) -> Flow[Any]:  # noqa: ARG002
        yield from ()


class ServesClusterFive(Norms):
    def serve(self, state: State, ctx: Context) -> Flow[Served]:
        served = yield from super().serve(state, ctx)
        return replace(served, labels=served.labels + 5)


class WeighsTwice(Norms):
    mixes = True

    def serve(self, state: State, ctx: Context) -> Flow[Served]:
        served = yield from super().serve(state, ctx)
        weights = state.models.new_ones(len(ctx.cohort), len(state.models))
        return replace(served, weights=2 * weights / len(state.models))


class KnowsTheGroups(Norms):
    def init(self, setup: Setup) -> State:
        return State(setup.new_models(2), torch.as_tensor(setup.groups))


class LooksAtTheGroups(Norms):
    def init(self, setup: Setup) -> State:
        labels = torch.zeros(setup.num_clients, dtype=torch.long)
        return State(setup.new_models(2), labels if setup.groups is None else setup.groups)


class SharesNothing(Norms):
    def init(self, setup: Setup) -> State:
        return State(setup.new_models(2), torch.arange(setup.num_clients) % 2)


class AssignsThree(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:  # noqa: ARG002
        yield from ()
        return Assigned(ctx.cohort, torch.zeros(3, 1), "nothing")


class AssignsOneColumn(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        return replace(found, scores=found.scores[:, :1])


class AssignsNaN(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        return replace(found, scores=found.scores * torch.nan)


class AssignsByParity(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        return replace(found, scores=found.scores + found.clients[:, None] % 2)


class AssignsAtRandom(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        return replace(found, scores=found.scores + random.random())


class AssignsAsTrained(Norms):
    """Gives newcomers the clusters of trained clients that have their numbers."""

    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        known = torch.nn.functional.one_hot(state.labels, len(state.models))[found.clients]
        return replace(found, scores=known.to(found.scores.dtype))


class AssignsByNumber(Norms):
    def assign(self, state: State, ctx: Context) -> Flow[Assigned]:
        found = yield from super().assign(state, ctx)
        return replace(found, scores=found.scores + found.clients[:, None])


class DoublesItsModels(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        return replace(after, models=after.models.double())


class CountsOutsideItsState(Norms):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        after = yield from super().round(state, ctx)
        number = 1 if ctx.round == 0 else vars(self)["number"] + 1
        object.__setattr__(self, "number", number)
        return replace(after, models=after.models * (1 - 0.001 * number))


class FitsTwo(Norms):
    def fit(self, state: State) -> Tensor:  # noqa: ARG002
        return torch.zeros(2)


class ProfilesFlat(Norms):
    def profile(self, state: State) -> Tensor:
        return torch.zeros(len(state.labels))


class ComparesOthers(Norms):
    def evidence(self, state: State, sample: Sample) -> Mapping[str, Tensor]:
        return {"clients": sample(len(state.labels)), "similarity": torch.ones(3, 2)}


class MeasuresTheRound(Norms):
    def measure(self, state: State) -> Mapping[str, float]:  # noqa: ARG002
        return {"round": 3.0}


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
    (LabelsFloat(), "labels of the state that init returns: 'torch.float32' is not a tensor of"),
    (LabelsNegative(), "labels of the state that init returns: -1 is not in 0 to 0"),
    (ModelsTooNarrow(), "models of the state that round returns: shape: (1, 82) is not (K, 83)"),
    (ReturnsNothing(), "round: 'NoneType' is not a State"),
    (Random(), "the same run twice gives other records of round 0, as if"),
    (ChangesInPlace(), "the state after round 0 was changed in place later: models differs"),
    (CountsByNumber(), "asked of the state that round returns: 'dict' is not what a checkpoint"),
    (
        DividesByNobody(),
        "where nobody answers request 1 of a round: models of the state that round",
    ),
    (ServesNothing(), "serve: 'NoneType' is not a Served"),
    (ServesClusterFive(), "labels that serve returns: 5 is not in 0 to 0"),
    (WeighsTwice(), "weights that serve returns: sum for a client: 2.0 is not 1"),
    (KnowsTheGroups(), "init fails without planted groups, by "),
    (LooksAtTheGroups(), "without planted groups, which are for scores alone, the run ends"),
    (SharesNothing(cluster_round=9), "models differ at first in 1.weight, by "),
    (AssignsThree(), "scores that assign returns: shape: (3, 1) is not (12, K)"),
    (AssignsOneColumn(), "scores that assign returns: shape: (12, 1) is not (12, 2) or wider"),
    (AssignsNaN(), "scores that assign returns: 'NaN' is not a number"),
    (AssignsAsTrained(), "AssignsAsTrained fails by IndexError: index 8 is out of bounds"),
    (AssignsByNumber(), "assign finds other scores of newcomers when they are numbered in another"),
    (AssignsByParity(), "assign finds other scores of newcomers when they are numbered in another"),
    (
        DoublesItsModels(),
        "models of the state that round returns: torch.float64 is not torch.float32",
    ),
    (AssignsAtRandom(), "assign finds other scores of the same newcomers when it is called again"),
    (CountsOutsideItsState(), "a run resumed after its third round, with another run in between,"),
    (FitsTwo(), "fit returns shape (2,) instead of a tensor (8,)"),
    (MeasuresTheRound(), "measure: 'round' is not a free name"),
    (ProfilesFlat(), "profile returns shape (8,) instead of a tensor (8, D)"),
    (ComparesOthers(), "what evidence returns: {'clients': 'torch.int64 (8,)', 'similarity'"),
    (PERSONAL, "clients [0, 1, 3, 4, 5, 7], who were never asked, are served models of zeros"),
]


def said(check: Check, method: Algorithm[Any]) -> str:
    try:
        check(method)
    except (AssertionError, UsageError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("method", "sentence"), MISTAKES, ids=lambda m: type(m).__name__)
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


def test_a_change_in_place_through_numpy_is_found() -> None:
    class ChangesThroughNumPy(Norms):
        def round(self, state: State, ctx: Context) -> Flow[State]:
            after = yield from super().round(state, ctx)
            state.models.numpy()[0, 0] += 1
            return after

    with pytest.raises(AssertionError, match="was changed in place later: models differs"):
        a_round_leaves_the_state_before_it_as_it_was(ChangesThroughNumPy())


def test_an_average_over_the_cohort_is_found() -> None:
    with pytest.raises(AssertionError, match="AveragesOverTheCohort fails by IndexError: shape "):
        check_method(AveragesOverTheCohort())


@dataclass(frozen=True)
class InRounds(Norms):
    """Its setting is a list, which has no hash."""

    rounds: list[int] = field(default_factory=lambda: [2, 4])


def test_a_setting_may_be_a_list() -> None:
    check_method(InRounds())


def test_a_method_without_a_mistake_passes() -> None:
    check_method(Norms())


@pytest.mark.parametrize("method", [LabelsFloat(), ServesClusterFive(), ReturnsNothing()])
def test_a_run_says_it_like_the_contract(method: Algorithm[Any]) -> None:
    sentence = next(text for mistake, text in MISTAKES if mistake == method)
    with pytest.raises(UsageError) as caught:
        next(umbel.Run(method, blobs(), mlp()).rounds(1))
    assert str(caught.value).startswith(sentence)


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


class CountsFromTheEnd(umbel.FedAvg):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        trained = yield from train(
            Rows(state.models, state.labels[ctx.cohort] - 1), ctx, self.local
        )
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


class AsksOneTwice(umbel.FedAvg):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        theta = Rows(state.models, state.labels[ctx.cohort])
        yield from train(theta, ctx.asking(torch.zeros_like(ctx.cohort)), self.local)
        return state


class MeansNobody(umbel.FedAvg):
    def round(self, state: State, ctx: Context) -> Flow[State]:
        theta = Rows(state.models, state.labels[ctx.cohort])
        trained = yield from train(theta, ctx, self.local)
        return replace(state, models=state.models + trained.update[:0].mean(0))


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            ForgetsTheCohort(),
            r"theta.index: shape: \(8,\) is not \(4,\), a number for each client",
        ),
        (CountsFromTheEnd(), "theta.index: -1 is not in 0 to 0, the numbers of rows of its table"),
        (YieldsAGenerator(), "what round yields: 'generator' is not a request: write `yield from`"),
        (AsksStrangers(), "clients: 10[0-9] is not in 0 to 7, the numbers of clients"),
        (AsksOneTwice(), r"clients: '\[0\] twice' is not unique: name each once"),
        (
            MeansNobody(),
            "models of the state that round returns: model 0: nan is not a finite number",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_round_asks_and_returns_is_looked_at_before_it_is_used(
    method: Algorithm[Any], said: str, tmp_path: Path
) -> None:
    run = umbel.Run(method, blobs((8,) * 8), mlp(), participation=0.5)
    with pytest.raises(UsageError, match=said):
        run.save(tmp_path / "run", 2)
