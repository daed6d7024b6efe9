from __future__ import annotations

import torch

from umbel.client.work import LocalTraining
from umbel.flow import Flow, Replies, Request, Rows, drive


class Backwards:
    """Answers with the client's number, last client first."""

    def send(self, request: Request) -> Replies:
        clients = request.clients.flip(0)
        return Replies(clients, {"value": clients * 10})


def ask(clients: list[int]) -> Flow[list[int]]:
    replies = yield Request(LocalTraining(), torch.tensor(clients), [0] * len(clients))
    values: list[int] = replies.columns["value"].tolist()
    return values


def ask_twice() -> Flow[list[int]]:
    first = yield from ask([1, 2])
    second = yield from ask([4, 0])
    return first + second


def test_drive_returns_what_the_flow_returns_with_replies_in_the_order_of_clients() -> None:
    assert drive(ask_twice(), Backwards()) == [10, 20, 0, 40]


def test_a_flow_that_asks_nothing_returns_at_once() -> None:
    def silent() -> Flow[str]:
        yield from ()
        return "done"

    assert drive(silent(), Backwards()) == "done"


def test_rows_are_taken_from_the_table_without_a_row_a_client() -> None:
    rows = Rows(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 1, 0]))
    assert rows.take(torch.tensor([0, 2])).tolist() == [[2.0], [1.0]]
    assert rows.take(torch.tensor([0, 1])).tolist() == [[2.0], [2.0]]
    assert rows.take(torch.tensor([2, 1])).tolist() == [[1.0], [2.0]]
    assert rows.take(torch.tensor([], dtype=torch.long)).tolist() == []
    for positions in ([2, 1], [0, 1]):  # in the order of the table, and equal: views of it
        taken = rows.take(torch.tensor(positions))
        assert taken.untyped_storage().data_ptr() == rows.table.untyped_storage().data_ptr()
    assert rows.row(1).tolist() == [2.0]


def test_a_client_is_sent_what_is_shared_and_its_own_row() -> None:
    request = Request(
        LocalTraining(),
        torch.tensor([3, 8]),
        [0, 0],
        {"models": torch.ones(2)},
        {"theta": Rows(torch.tensor([[5.0], [6.0]]), torch.tensor([1, 0]))},
    )
    sent = request.sent_to(0)
    assert sent["models"].tolist() == [1.0, 1.0]
    assert sent["theta"].tolist() == [6.0]
    picked = request.pick(torch.tensor([1]))
    assert picked.clients.tolist() == [8]
    assert picked.sent_to(0)["theta"].tolist() == [5.0]
