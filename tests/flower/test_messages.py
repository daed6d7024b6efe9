"""What comes in from a network is refused with its reason, whatever it is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.test_equality import WORKS
from tests.flower.attacks import ARRAYS, with_array
from umbel.checks import UsageError
from umbel.client.work import LocalTraining, Work
from umbel.experiment.toml_file import plain
from umbel.flower import handshake as greeting
from umbel.flower import messages
from umbel.flower.arrays import DTYPES, arrays, tensors
from umbel.flower.errors import ForgottenError, RefusedError
from umbel.flower.fields import VERSION
from umbel.flower.messages import Asked

MAX_BYTES = 10_000


def asked(**changes: Any) -> Asked:
    given = {
        "work": LocalTraining(lr=0.1),
        "clients": ["a", "b"],
        "seeds": [1, 2**63 - 1],
        "shared": {"models": torch.arange(6.0).reshape(2, 3)},
        "tables": {"theta": torch.arange(4.0, dtype=torch.float64).reshape(2, 2)},
        "index": {"theta": [1, 0]},
    }
    return Asked(**{**given, **changes})


def config(content: RecordDict, record: str, **changes: Any) -> RecordDict:
    for name, value in changes.items():
        content.config_records[record][name] = value
    return content


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_every_work_is_read_as_it_was_written(work: Work) -> None:
    assert messages.asked_in(messages.ask(asked(work=work)), MAX_BYTES).work == work


def test_tensors_and_rows_are_read_as_they_were_written() -> None:
    before = asked(remembered=["x", "y"])
    after = messages.asked_in(messages.ask(before), MAX_BYTES)
    assert (after.clients, after.seeds, after.index) == (before.clients, before.seeds, before.index)
    assert after.remembered == before.remembered
    torch.testing.assert_close(dict(after.shared), dict(before.shared), rtol=0, atol=0)
    torch.testing.assert_close(dict(after.tables), dict(before.tables), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"name": "os:system"}', "'os:system' is not allowed here"),
        (
            '{"name": "choose-by-loss", "then": {"name": "os:system"}}',
            "'os:system' is not allowed here",
        ),
        ('{"name": "local-training", "lr": -1}', "lr: -1.0 is not more than 0"),
        ('{"name": "local-training", "rate": 1}', "rate: unknown key"),
        ("{", "work: Expecting property name"),
        ("[" * 10_000, "work: maximum recursion depth"),
    ],
)
def test_a_work_that_is_unknown_or_unfit_is_refused(text: str, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        messages.work_in(text)
    assert why in str(refused.value)


def test_a_work_outside_the_package_is_done_only_where_it_is_allowed() -> None:
    class_name = "tests.flower.own_work:Own"
    text = json.dumps({"name": class_name})
    with pytest.raises(RefusedError, match="is not allowed here"):
        messages.work_in(text)
    work = messages.work_in(text, [class_name])
    assert plain(work)["name"] == class_name


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": 1}, "messages of version 1, but"),
        ({"clients": ["a"]}, "1 clients, but 2 seeds"),
        ({"clients": [1, 2]}, "clients: .* is not a list of str"),
    ],
)
def test_a_request_of_another_form_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        messages.asked_in(config(messages.ask(asked()), "asked", **changes), MAX_BYTES)


@pytest.mark.parametrize("row", [2, -1])
def test_a_row_outside_its_table_is_refused(row: int) -> None:
    with pytest.raises(RefusedError, match=r"theta: .* are not all from 0 to 1"):
        messages.asked_in(messages.ask(asked(index={"theta": [0, row]})), MAX_BYTES)


@pytest.mark.parametrize("changes", ARRAYS.values(), ids=ARRAYS)
def test_an_array_that_is_none_is_refused(changes: Mapping[str, Any]) -> None:
    content = with_array(messages.ask(asked()), "shared", "models", **changes)
    with pytest.raises(RefusedError, match=r"^(shared|models): "):
        messages.asked_in(content, MAX_BYTES)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("shape", [(), (2, 3)], ids=str)
def test_an_array_is_read_as_it_was_written(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = (torch.arange(math.prod(shape)).reshape(shape) % 2).to(dtype)
    content = RecordDict({"some": arrays({"values": values})})
    found = tensors(content, "some", ["values"], 100)["values"]
    assert found.dtype == dtype
    assert torch.equal(found, values)


def test_tensors_of_too_many_bytes_are_refused_altogether() -> None:
    half = torch.zeros(MAX_BYTES // 8 - 1)
    content = messages.ask(asked(shared={"a": half}, tables={"b": half[None], "c": half[None]}))
    with pytest.raises(RefusedError, match="tables: 9992 bytes, more than the 5004 allowed"):
        messages.asked_in(content, MAX_BYTES)


def test_a_refusal_is_raised_on_the_other_side() -> None:
    with pytest.raises(RefusedError, match=r"^theta: wrong$"):
        messages.answer_in(messages.refusal(RefusedError("theta: wrong")), [], MAX_BYTES)
    with pytest.raises(RefusedError, match=r"^ZeroDivisionError; this node's log says"):
        greeting.site_in(messages.refusal(ZeroDivisionError("by Anna Mueller")))
    wrong = UsageError("label: 16 is not in 0 to 9")
    with pytest.raises(RefusedError, match=r"^UsageError: label: 16 is not in 0 to 9$"):
        greeting.site_in(messages.refusal(wrong, private=False))
    with pytest.raises(RefusedError, match=r"^UsageError; this node's log says more$"):
        greeting.site_in(messages.refusal(wrong))
    with pytest.raises(ForgottenError):
        messages.answer_in(messages.refusal(ForgottenError("a")), [], MAX_BYTES)


def test_those_who_refuse_are_read_with_their_reasons_beside_those_who_answer() -> None:
    why = "another update would exceed epsilon 3"
    content = messages.answer(["a"], {"update": torch.zeros(1, 4)}, {"b": why, "c": "no " * 999})
    answer = messages.answer_in(content, ["update"], MAX_BYTES)
    assert answer.clients == ["a"]
    assert list(answer.refused) == ["b", "c"]
    assert answer.refused["b"] == why
    nobody = messages.answer([], {"update": torch.zeros(0, 4)}, {"a": why})
    assert messages.answer_in(nobody, ["update"], MAX_BYTES).clients == []
    willing = messages.answer(["a"], {"update": torch.zeros(1, 4)})
    assert messages.answer_in(willing, ["update"], MAX_BYTES).refused == {}


def test_rows_that_do_not_fit_their_clients_are_refused() -> None:
    content = messages.answer(["a", "b"], {"update": torch.zeros(3, 4)})
    with pytest.raises(RefusedError, match=r"update: \(3, 4\) for 2 clients"):
        messages.answer_in(content, ["update"], MAX_BYTES)


values = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=True),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.booleans(),
    st.lists(st.integers(-5, 5), max_size=3),
    st.lists(st.text(max_size=3), max_size=3),
)
keys = st.sampled_from(
    ["version", "work", "clients", "seeds", "remembered", "refused", "train", "test", "groups",
     "input_shape", "num_outputs", "num_classes", "model", "largest_input"]
)  # fmt: skip
records = st.dictionaries(
    st.sampled_from(["asked", "index", "answer", "site"]), st.dictionaries(keys, values)
)


@given(records)
def test_whatever_comes_in_is_read_or_refused(content: dict[str, dict[str, Any]]) -> None:
    record = RecordDict(
        {name: ConfigRecord({"version": VERSION, **c}) for name, c in content.items()}
    )
    for read in (
        lambda: messages.asked_in(record, MAX_BYTES),
        lambda: messages.answer_in(record, ["update"], MAX_BYTES),
        lambda: greeting.site_in(record),
    ):
        with suppress(RefusedError):
            read()
