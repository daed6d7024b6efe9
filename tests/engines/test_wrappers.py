from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.federations import SIZES, blobs, mlp
from umbel.algorithms import FedAvg
from umbel.checks import DivergedError, UsageError
from umbel.client.work import (
    MEMORY,
    ChooseByLoss,
    Evaluation,
    LocalTraining,
    MeanLoss,
    MixtureTraining,
)
from umbel.client.work.base import Cost
from umbel.engines import Sequential
from umbel.engines.metering import Metered, Spent
from umbel.engines.replies.faults import Faults, Faulty
from umbel.engines.replies.guarded import Guarded, QuorumError
from umbel.engines.replies.validation import Limits
from umbel.flow import Replies, Request, Rows, Use, returned
from umbel.report.terminal.results import one_line
from umbel.result.run import Run
from umbel.run.rounds import Loop
from umbel.server.aggregation import Averaging
from umbel.server.shares import bounded_weights

NET = mlp()
P = NET.layout.num_values
CLIENTS = len(SIZES)


def request(round_seed: int = 0) -> Request:
    seeds = [1000 * round_seed + client for client in range(CLIENTS)]
    theta = Rows(NET.new(0)[None], torch.zeros(CLIENTS, dtype=torch.long))
    return Request(LocalTraining(epochs=1), torch.arange(CLIENTS), seeds, each={"theta": theta})


@pytest.fixture
def engine() -> Sequential:
    return Sequential(NET, blobs())


class Poisoned:
    """An engine in which client 1 sends NaN, client 2 a huge value, and client 3 nothing."""

    def __init__(self, engine: Sequential) -> None:
        self.engine = engine

    def send(self, request: Request) -> Replies:
        replies = self.engine.send(request)
        replies.columns["update"][1, 0] = torch.nan
        replies.columns["update"][2, 1] = 1e20
        return replies.pick(torch.tensor([0, 1, 2, 4, 5]))


def test_bytes_are_counted_per_client_in_both_directions(engine: Sequential) -> None:
    meter = Metered(engine, blobs().train)
    meter.send(request())
    spent = meter.take()
    assert spent.bytes_down == CLIENTS * P * 4
    assert spent.bytes_up == CLIENTS * (P * 4 + 8)  # the update, and the number of examples
    assert spent.seconds > 0
    assert meter.take() == Spent(cost=Cost())


def test_the_work_of_those_who_answered_is_counted(engine: Sequential) -> None:
    meter = Metered(Poisoned(engine), blobs().train)
    meter.send(request())
    answered = sum(SIZES) - SIZES[3]
    assert meter.take().cost == Cost(gradients=answered)
    models = Rows(torch.zeros(1, 4, P), torch.zeros(CLIENTS, dtype=torch.long))
    meter.engine = engine
    meter.send(replace(request(), work=MeanLoss(), each={"models": models}))
    meter.again(request())
    assert meter.take().cost == Cost(losses=4 * sum(SIZES))


def test_shared_tensors_count_once_a_client(engine: Sequential) -> None:
    models = torch.zeros(3, P)
    asked = request()
    meter = Metered(engine, blobs().train)
    meter.send(Request(asked.work, asked.clients, asked.seeds, {"models": models}, asked.each))
    assert meter.take().bytes_down == CLIENTS * (3 + 1) * P * 4


def test_what_a_client_remembers_is_no_traffic(engine: Sequential) -> None:
    remembering = MixtureTraining(LocalTraining(epochs=1))
    memory = Rows(torch.tensor([[0.5, 0.5]]), torch.zeros(CLIENTS, dtype=torch.long))
    models = torch.stack([NET.new(0), NET.new(1)])
    asked = Request(
        remembering, torch.arange(CLIENTS), range(CLIENTS), {"models": models}, {MEMORY: memory}
    )
    meter = Metered(engine, blobs().train)
    assert meter.send(asked).columns[MEMORY].shape == (CLIENTS, 2)
    spent = meter.take()
    assert spent.bytes_down == CLIENTS * 2 * P * 4
    assert spent.bytes_up == CLIENTS * (2 * P * 4 + 8)


def test_bad_replies_are_set_aside_counted_and_named(engine: Sequential) -> None:
    guard = Guarded(Poisoned(engine), Limits())
    replies = guard.send(request())
    assert replies.clients.tolist() == [0, 4, 5]
    assert replies.columns["update"].isfinite().all()
    gone, refused, _ = guard.take()
    assert gone == {3}
    assert set(refused) == {1, 2}
    assert refused[1].startswith("update: nan")
    assert refused[2].startswith("update: 1e+20")
    assert guard.take()[0] == set()


def test_below_the_quorum_it_stops_and_says_why(engine: Sequential) -> None:
    guard = Guarded(Poisoned(engine), Limits(quorum=0.6))
    message = (
        r"3 of 6 clients gave a usable reply, and limits\.quorum = 0\.6 asks for 4: "
        r"1 did not answer, 2 were refused \(client 1: update: nan"
    )
    with pytest.raises(QuorumError, match=message):
        guard.send(request())


def test_without_a_quorum_nobody_need_answer_but_not_all_may_diverge(engine: Sequential) -> None:
    guard = Guarded(Faulty(engine, Faults(drop=1.0)), Limits(quorum=0))
    assert guard.send(request()).columns["update"].shape == (0, 83)
    guard = Guarded(Faulty(engine, Faults(not_finite=1.0)), Limits(quorum=0))
    message = r"0 of 6 clients .* without one nothing can be learned: 6 were refused"
    with pytest.raises(QuorumError, match=message):
        guard.send(request())


@pytest.mark.parametrize("fault", ["drop", "late", "not_finite", "wrong_shape", "huge"])
def test_without_a_quorum_a_run_outlives_rounds_of_nothing_but_faults(fault: str) -> None:
    faults, limits = Faults(**{fault: 1.0}), Limits(quorum=0)
    run = Run(FedAvg(), blobs(), mlp(), faults=faults, limits=limits)
    states = [state.models for state, _ in run.rounds(3)]
    assert torch.equal(states[0], states[-1])


class Lying:
    """An engine in which client 1 claims a thousand million examples, and client 2 steps far."""

    def __init__(self, engine: Sequential) -> None:
        self.engine = engine

    def send(self, request: Request) -> Replies:
        replies = self.engine.send(request)
        replies.columns["num_examples"][replies.clients == 1] = 10**9
        replies.columns["update"][replies.clients == 2] *= 1000
        return replies


def test_a_client_that_claims_all_examples_gets_its_share_at_most(engine: Sequential) -> None:
    honest = engine.send(request()).columns["num_examples"]
    guard = Guarded(Lying(engine), Limits(max_share=0.5))
    counts = guard.send(request()).columns["num_examples"]
    others = honest.sum() - honest[1]
    assert counts.tolist() == [others if n == 1 else int(c) for n, c in enumerate(honest)]
    bounded = guard.take()[2]
    assert list(bounded) == [1]
    assert bounded[1].startswith("num_examples: 1,000,000,000 counted as ")
    assert guard.take()[2] == {}


class Claims:
    """An engine in which clients claim these numbers of examples, and may choose these models."""

    def __init__(self, claimed: list[int], chosen: list[int] | None = None) -> None:
        self.claimed, self.chosen = torch.tensor(claimed), chosen

    def send(self, request: Request) -> Replies:
        count = len(request.clients)
        columns = {"num_examples": self.claimed[request.clients], "update": torch.zeros(count, P)}
        if self.chosen is not None:
            models = len(request.shared["models"])
            columns["chosen"] = torch.tensor(self.chosen)[request.clients]
            columns["losses"] = torch.zeros(count, models, dtype=torch.float64)
        return Replies(request.clients, columns)


CLAIMED = [1000, 10, 1000, 900, 50, 1_000_000]
IN_CLUSTERS = [0, 0, 1, 1, 1, 2]
ALLOWED = [10, 10, 950, 900, 50, 1920]
"""With half of the weight of a cluster at most; the last is alone, and has half of all."""


def of_one_model_each(clusters: list[int]) -> Request:
    theta = Rows(torch.stack([NET.new(seed) for seed in range(3)]), torch.tensor(clusters))
    return replace(request(), each={"theta": theta})


def chosen_by_loss() -> Request:
    models = torch.stack([NET.new(seed) for seed in range(3)])
    work = ChooseByLoss(LocalTraining(epochs=1))
    return replace(request(), work=work, each={}, shared={"models": models})


def known_to_the_server() -> Request:
    reduction = Averaging().reduction(3, torch.tensor(IN_CLUSTERS))
    return replace(request(), reduction=reduction)


@pytest.mark.parametrize("known_by", ["the model", "the model, in reverse", "choice", "labels"])
def test_a_share_is_one_of_the_average_that_a_client_enters(known_by: str) -> None:
    choices = IN_CLUSTERS if known_by == "choice" else None
    asked = {
        "the model": of_one_model_each(IN_CLUSTERS),
        "the model, in reverse": of_one_model_each(IN_CLUSTERS).pick(torch.arange(5, -1, -1)),
        "choice": chosen_by_loss(),
        "labels": known_to_the_server(),
    }[known_by]
    guard = Guarded(Claims(CLAIMED, choices), Limits(max_share=0.5))
    replies = guard.send(asked)
    counts = dict(zip(replies.clients.tolist(), replies.columns["num_examples"], strict=True))
    assert [int(counts[client]) for client in range(CLIENTS)] == ALLOWED
    assert sorted(guard.take()[2]) == [0, 2, 5]


@pytest.mark.parametrize("use", ["stored", "compared"])
def test_where_nothing_is_averaged_no_number_of_examples_is_lowered(use: Use) -> None:
    guard = Guarded(Claims(CLAIMED), Limits(max_share=0.5))
    replies = guard.send(replace(request(), use=use))
    assert replies.columns["num_examples"].tolist() == CLAIMED
    assert guard.take()[2] == {}


def test_a_step_far_longer_than_the_others_is_shortened_if_asked(engine: Sequential) -> None:
    guard = Guarded(Lying(engine), Limits(max_norm_ratio=3.0))
    update = guard.send(request()).columns["update"]
    norms = update.double().norm(dim=1)
    assert float(norms[2]) == pytest.approx(3 * float(norms.median()), rel=1e-5)
    assert guard.take()[2][2].startswith("update: of norm ")
    assert Guarded(Lying(engine), Limits()).send(request()).columns["update"][2].norm() > norms[2]


class Leaving:
    """An engine in which clients 1 and 4 do not train, 1 and 3 are not evaluated, and 5 sends NaN.

    Client 4 sends NaN where it is evaluated.
    """

    def __init__(self) -> None:
        self.engine = Sequential(mlp(), blobs())

    def send(self, request: Request) -> Replies:
        judged = isinstance(request.work, Evaluation)
        gone, spoilt = ([1, 3], [4, 5]) if judged else ([1, 4], [5])
        replies = self.engine.send(request)
        replies.columns["loss" if judged else "update"][spoilt] = torch.nan
        clients = replies.clients.tolist()
        return replies.pick(torch.tensor([n for n, c in enumerate(clients) if c not in gone]))


def test_clients_that_do_not_answer_an_evaluation_are_in_the_record_of_the_round() -> None:
    run = Run(FedAvg(), blobs(), mlp(), engine=Leaving(), evaluate_every=2)
    (_, unjudged), (state, judged) = run.rounds(2)
    assert unjudged.missing == (1, 4)
    assert list(unjudged.refused) == [5]
    assert judged.missing == (1, 3, 4)
    assert list(judged.refused) == [4, 5]
    assert judged.num_absent == 4
    assert one_line(judged, 2).endswith("absent 4")
    # A run that ends early is evaluated once more, which says nothing twice.
    loop = Loop(run, 2)
    closed, _ = returned(loop.closing(unjudged, state), run.answer)
    assert (closed.missing, closed.refused) == (judged.missing, judged.refused)
    assert returned(loop.closing(closed, state), run.answer)[0] == closed


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=12), st.floats(0.05, 1.0))
def test_no_weight_is_more_than_its_share_and_none_grows(counts: list[int], share: float) -> None:
    claimed = torch.tensor(counts)
    bounded = bounded_weights(claimed, share)
    assert (bounded <= claimed).all()
    assert (bounded >= claimed.min()).all()
    largest = bounded.max() / bounded.sum()
    assert largest <= max(share, 1 / len(counts)) + 0.01 or bool((bounded == bounded.min()).all())


@pytest.mark.parametrize(
    ("share", "counts", "most"), [(0.6, [950, 50], 75), (0.7, [950, 30], 70), (0.9, [99, 9], 81)]
)
def test_a_share_that_is_a_whole_number_of_examples_is_that_number(
    share: float, counts: list[int], most: int
) -> None:
    assert bounded_weights(torch.tensor(counts), share).tolist() == [most, counts[1]]


def test_evaluations_pass_the_same_gate(engine: Sequential) -> None:
    class Boasting:
        def send(self, request: Request) -> Replies:
            replies = engine.send(request)
            if isinstance(request.work, Evaluation):
                replies.columns["right"][1] = 3704 * 8
                replies.columns["loss"][2] = -3.7e27
                replies.columns["num_examples"][3] = -5
            return replies

    run = Run(FedAvg(LocalTraining(epochs=1)), blobs(), NET)
    honest = [record for _, record in run.rounds(2)]
    for record, expected in zip(
        (record for _, record in replace(run, engine=Boasting()).rounds(2)), honest, strict=True
    ):
        assert sorted(record.refused) == [1, 2, 3]
        assert record.refused[1].startswith("evaluation: right: 3.7e+03 is not within 0 to 1")
        assert record.refused[3].startswith("evaluation: ")
        assert record.accuracy is not None
        assert expected.accuracy is not None
        assert abs(record.accuracy - expected.accuracy) < 0.5
        assert 0 <= record.accuracy <= 1


def test_a_request_that_the_round_can_do_without_needs_no_reply(engine: Sequential) -> None:
    guard = Guarded(Faulty(engine, Faults(drop=1.0)), Limits(quorum=0.6))
    asked = replace(request(), optional=True)
    assert guard.send(asked).columns["update"].shape == (0, 83)
    assert len(guard.take()[0]) == CLIENTS
    assert asked.pick(torch.tensor([1])).optional


@pytest.mark.parametrize(
    ("faults", "missing", "reason"),
    [
        (Faults(drop=1.0), CLIENTS, ""),
        (Faults(late=1.0), 0, "late"),
        (Faults(not_finite=1.0), 0, "update: nan is not within"),
        (Faults(wrong_shape=1.0), 0, "update: shape (1, 83) instead of (83,)"),
        (Faults(huge=1.0), 0, "update: 1e+30 is not within"),
    ],
)
def test_each_fault_is_seen_for_what_it_is(
    engine: Sequential, faults: Faults, missing: int, reason: str
) -> None:
    guard = Guarded(Faulty(engine, faults), Limits())
    with pytest.raises(QuorumError):
        guard.send(request())
    gone, refused, _ = guard.take()
    assert len(gone) == missing
    assert len(refused) == CLIENTS - missing
    assert all(why.startswith(reason) for why in refused.values())


def test_clients_that_do_not_fail_answer_as_they_would_have(engine: Sequential) -> None:
    faults = Faults(drop=0.1, late=0.05, not_finite=0.05, wrong_shape=0.05, huge=0.05)
    healthy, seen = engine.send(request()), set()
    for number in range(30):
        guard = Guarded(Faulty(engine, faults), Limits(quorum=0))
        replies = guard.send(request(number))
        alone = healthy if number == 0 else engine.send(request(number))
        expected = alone.pick(replies.clients)
        assert torch.equal(replies.columns["update"], expected.columns["update"])
        seen |= {len(replies.clients)}
    assert len(seen) > 2


def test_faults_are_a_function_of_the_clients_seed_with_the_stated_frequency() -> None:
    faults = Faults(drop=0.25, huge=0.5)
    fates = [faults.of(seed) for seed in range(4000)]
    assert fates == [faults.of(seed) for seed in range(4000)]
    assert fates.count("drop") == pytest.approx(1000, abs=100)
    assert fates.count("huge") == pytest.approx(2000, abs=120)
    assert set(fates) == {"drop", "huge", None}


def test_probabilities_are_checked() -> None:
    with pytest.raises(UsageError, match=r"drop: 2\.0 is not a probability"):
        Faults(drop=2.0)
    with pytest.raises(UsageError, match=r"drop \+ late: 1\.2 is not a sum"):
        Faults(drop=0.6, late=0.6)


@dataclass(frozen=True)
class FiftyFive:
    """An engine where 55 of 100 clients answer."""

    def send(self, request: Request) -> Replies:
        kept = request.clients[:55]
        return Replies(kept, {"losses": torch.zeros(55, 1)})


def test_a_quorum_that_is_met_exactly_is_met() -> None:
    request = Request(MeanLoss(), torch.arange(100), [0] * 100, {"models": torch.zeros(1, 3)})
    for engine, share in ((FiftyFive(), 0.55), (FiftyFive(), 0.541)):
        assert len(Guarded(engine, Limits(quorum=share)).send(request).clients) == 55
    with pytest.raises(QuorumError, match="asks for 56"):
        Guarded(FiftyFive(), Limits(quorum=0.551)).send(request)


@pytest.mark.parametrize(
    "faults", [Faults(drop=0.01), Faults(late=0.01), Faults(huge=0.01)], ids=str
)
def test_training_that_diverges_ends_a_run_whose_faults_are_others(
    engine: Sequential, faults: Faults
) -> None:
    class AllDiverge:
        def send(self, request: Request) -> Replies:
            replies = engine.send(request)
            replies.columns["update"][:] = torch.nan
            return replies

    engines, advice = Faulty(AllDiverge(), faults), "lower the learning rate"
    guard = Guarded(engines, Limits(quorum=0.0), advice=lambda: advice, faults=faults)
    with pytest.raises(DivergedError, match="lower the learning rate"):
        guard.send(request())


def test_a_single_client_that_diverges_ends_no_run_without_a_quorum(engine: Sequential) -> None:
    class OneLies:
        def send(self, request: Request) -> Replies:
            replies = engine.send(request).pick(torch.tensor([2]))
            replies.columns["update"][:] = torch.nan
            return replies

    guard = Guarded(OneLies(), Limits(quorum=0.0), advice=lambda: "lower the learning rate")
    assert not len(guard.send(request()).clients)
    assert list(guard.take()[1]) == [2]
