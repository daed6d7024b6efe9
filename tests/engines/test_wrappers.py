from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.federations import SIZES, blobs, mlp
from umbel.checks import UsageError
from umbel.client.work import MEMORY, LocalTraining, MixtureTraining
from umbel.engines import Sequential
from umbel.engines.validation import Limits
from umbel.engines.wrappers import Faults, Faulty, Guarded, Metered, QuorumError
from umbel.flow import Replies, Request, Rows

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
    meter = Metered(engine)
    meter.send(request())
    traffic = meter.take()
    assert traffic.bytes_down == CLIENTS * P * 4
    assert traffic.bytes_up == CLIENTS * (P * 4 + 8)  # the update, and the number of examples
    assert traffic.seconds > 0
    assert meter.take().bytes_down == 0


def test_shared_tensors_count_once_a_client(engine: Sequential) -> None:
    models = torch.zeros(3, P)
    asked = request()
    meter = Metered(engine)
    meter.send(Request(asked.work, asked.clients, asked.seeds, {"models": models}, asked.each))
    assert meter.take().bytes_down == CLIENTS * (3 + 1) * P * 4


def test_what_a_client_remembers_is_no_traffic(engine: Sequential) -> None:
    remembering = MixtureTraining(LocalTraining(epochs=1))
    memory = Rows(torch.tensor([[0.5, 0.5]]), torch.zeros(CLIENTS, dtype=torch.long))
    models = torch.stack([NET.new(0), NET.new(1)])
    asked = Request(
        remembering, torch.arange(CLIENTS), range(CLIENTS), {"models": models}, {MEMORY: memory}
    )
    meter = Metered(engine)
    assert meter.send(asked).columns[MEMORY].shape == (CLIENTS, 2)
    traffic = meter.take()
    assert traffic.bytes_down == CLIENTS * 2 * P * 4
    assert traffic.bytes_up == CLIENTS * (2 * P * 4 + 8)


def test_bad_replies_are_set_aside_counted_and_named(engine: Sequential) -> None:
    guard = Guarded(Poisoned(engine), Limits())
    replies = guard.send(request())
    assert replies.clients.tolist() == [0, 4, 5]
    assert replies.columns["update"].isfinite().all()
    absences = guard.take()
    assert absences.missing == {3}
    assert set(absences.refused) == {1, 2}
    assert absences.refused[1].startswith("update: nan")
    assert absences.refused[2].startswith("update: 1e+20")
    assert guard.take().missing == set()


def test_below_the_quorum_it_stops_and_says_why(engine: Sequential) -> None:
    guard = Guarded(Poisoned(engine), Limits(quorum=0.6))
    message = (
        r"3 of 6 clients gave a usable reply, and limits\.quorum = 0\.6 asks for 4: "
        r"1 did not answer, 2 were refused \(client 1: update: nan"
    )
    with pytest.raises(QuorumError, match=message):
        guard.send(request())


def test_no_usable_reply_at_all_is_an_error_whatever_the_quorum(engine: Sequential) -> None:
    guard = Guarded(Faulty(engine, Faults(drop=1.0)), Limits(quorum=0))
    with pytest.raises(QuorumError, match=r"0 of 6 clients .* 6 did not answer"):
        guard.send(request())


def test_a_request_that_the_round_can_do_without_needs_no_reply(engine: Sequential) -> None:
    guard = Guarded(Faulty(engine, Faults(drop=1.0)), Limits(quorum=0.6))
    asked = replace(request(), optional=True)
    assert guard.send(asked).columns["update"].shape == (0, 83)
    assert len(guard.take().missing) == CLIENTS
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
    absences = guard.take()
    assert len(absences.missing) == missing
    assert len(absences.refused) == CLIENTS - missing
    assert all(why.startswith(reason) for why in absences.refused.values())


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
    with pytest.raises(UsageError, match=r"faults: 1\.2 is not a sum"):
        Faults(drop=0.6, late=0.6)
