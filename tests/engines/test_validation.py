from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work import MEMORY, ChooseByLoss, LocalTraining, MixtureWeights
from umbel.client.work.base import Promise, Work
from umbel.engines.replies.validation import Limits, assemble, bad_values
from umbel.flow import Replies, Request, Rows

ASKED = Request(
    ChooseByLoss(LocalTraining()),
    torch.tensor([2, 5, 7]),
    [0, 0, 0],
    {"models": torch.zeros(3, 4)},
)


def answer(client: int, **changes: Tensor) -> tuple[list[int], dict[str, Tensor]]:
    good = {
        "update": torch.ones(4),
        "num_examples": torch.tensor(9),
        "chosen": torch.tensor(2),
        "losses": torch.ones(3).double(),
    }
    return [client], {name: value[None] for name, value in {**good, **changes}.items()}


def reasons(**changes: Tensor) -> dict[int, str]:
    replies = assemble(ASKED, [answer(2), answer(5, **changes)])
    return {**replies.refused, **bad_values(ASKED, replies, Limits())}


def test_good_answers_are_joined_by_client_number() -> None:
    replies = assemble(ASKED, [answer(7, chosen=torch.tensor(0)), answer(2)])
    assert replies.clients.tolist() == [2, 7]
    assert replies.columns["chosen"].tolist() == [2, 0]
    assert replies.columns["update"].shape == (2, 4)
    assert not replies.refused
    assert not bad_values(ASKED, replies, Limits())


def test_columns_have_the_promised_type_whatever_the_client_sent() -> None:
    sent = answer(2, update=torch.ones(4).double(), chosen=torch.tensor(1, dtype=torch.int32))
    columns = assemble(ASKED, [sent]).columns
    assert columns["update"].dtype == torch.float32
    assert columns["chosen"].dtype == torch.int64
    assert columns["losses"].dtype == torch.float64


@dataclass(frozen=True)
class Voting(Work):
    """Clients vote for one of three; `per` names a column that bounds the votes."""

    per: str | None = None

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        return {"votes": Promise((3,), torch.int64, low=0, high=1, total=1, per=self.per)}

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        return {"votes": torch.tensor([1, 0, 0])}


def test_whole_numbers_may_have_a_promised_sum() -> None:
    asked = Request(Voting(), torch.arange(3), [0, 0, 0])
    votes = torch.tensor([[1, 0, 0], [0, 0, 1], [1, 1, 0]])
    refused = bad_values(asked, Replies(torch.arange(3), {"votes": votes}), Limits())
    assert refused == {2: "votes: sums to 2 instead of 1"}


def test_no_answer_at_all_gives_empty_columns() -> None:
    replies = assemble(ASKED, [])
    assert replies.clients.tolist() == []
    assert replies.columns["update"].shape == (0, 4)
    assert not bad_values(ASKED, replies, Limits())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"update": torch.ones(5)}, "update: shape (5,) instead of (4,)"),
        (
            {"update": torch.ones(4, dtype=torch.long)},
            "update: torch.int64 instead of torch.float",
        ),
        ({"chosen": torch.tensor(1.0)}, "chosen: torch.float32 instead of torch.int64"),
        (
            {"num_examples": torch.ones(1, dtype=torch.long)},
            "num_examples: shape (1,) instead of ()",
        ),
        ({"extra": torch.ones(1)}, "columns ['chosen', 'extra', 'losses', "),
        (
            {"update": torch.tensor([0, 1, math.nan, 0])},
            "update: nan is not within -1e+04 to",
        ),
        ({"update": torch.tensor([0, 1, math.inf, 0])}, "update: inf is not within"),
        ({"update": torch.tensor([0, 1, -1e30, 0])}, "update: -1e+30 is not within"),
        (
            {"losses": torch.tensor([0, math.nan, 0]).double()},
            "losses: nan is not within -1e+12 to 1e+12: it stands for",
        ),
        ({"chosen": torch.tensor(3)}, "chosen: 3 is not within 0 to 2"),
        ({"chosen": torch.tensor(-1)}, "chosen: -1 is not within 0 to 2"),
        ({"num_examples": torch.tensor(0)}, "num_examples: 0 is not within 1 to 1e+09"),
        ({"num_examples": torch.tensor(2**40)}, "num_examples: 1.1e+12 is not within"),
    ],
)
def test_a_bad_answer_is_refused_with_its_reason_and_the_others_stay(
    changes: dict[str, Tensor], reason: str
) -> None:
    found = reasons(**changes)
    assert list(found) == [5]
    assert found[5].startswith(reason)


@given(
    value=st.floats(width=32),
    claimed=st.integers(-(2**63), 2**63 - 1),
    chosen=st.integers(-(2**63), 2**63 - 1),
)
def test_what_passes_is_finite_and_in_range(value: float, claimed: int, chosen: int) -> None:
    changes = {
        "update": torch.tensor([0.0, value, 0.0, 0.0]),
        "num_examples": torch.tensor(claimed),
        "chosen": torch.tensor(chosen),
    }
    usable = abs(value) <= 1e4 and 1 <= claimed <= 10**9 and 0 <= chosen <= 2
    assert (reasons(**changes) == {}) == usable


def test_limits_can_be_widened_and_are_checked() -> None:
    replies = assemble(ASKED, [answer(2, update=torch.full((4,), 5e4))])
    assert 2 in bad_values(ASKED, replies, Limits())
    assert not bad_values(ASKED, replies, Limits(max_value=1e5))
    with pytest.raises(UsageError, match=r"quorum: 1\.5 is not in"):
        Limits(quorum=1.5)
    with pytest.raises(UsageError, match="max_value: 0 is not more than 0"):
        Limits(max_value=0)
    with pytest.raises(UsageError, match="max_examples: 0 is not 1 or more"):
        Limits(max_examples=0)


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        ([0.5, 0.5], "memory: shape (2,) instead of (3,)"),
        ([0.5, 0.5, math.nan], "memory: nan is not within 0 to 1"),
        ([0.5, 0.6, -0.1], "memory: -0.1 is not within 0 to 1"),
    ],
)
def test_what_a_client_remembers_is_checked_too(memory: list[float], reason: str) -> None:
    rows = {MEMORY: Rows(torch.full((1, 3), 1 / 3), torch.tensor([0]))}
    asked = Request(MixtureWeights(), torch.tensor([0]), [0], {"models": torch.zeros(3, 4)}, rows)
    replies = assemble(asked, [([0], {MEMORY: torch.tensor([memory])})])
    assert {**replies.refused, **bad_values(asked, replies, Limits())} == {0: reason}


def test_a_client_whose_mixture_weights_do_not_sum_to_one_is_refused() -> None:
    rows = {MEMORY: Rows(torch.full((1, 3), 1 / 3), torch.tensor([0, 0]))}
    asked = Request(MixtureWeights(), torch.arange(2), [0, 0], {"models": torch.zeros(3, 4)}, rows)
    sent = [0, 1], {MEMORY: torch.tensor([[0.9, 0.9, 0.9], [0.3, 0.6, 0.1]])}
    reason = "memory: sums to 2.7 instead of 1"
    assert bad_values(asked, assemble(asked, [sent]), Limits()) == {0: reason}
