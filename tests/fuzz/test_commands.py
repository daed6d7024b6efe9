"""Wrong inputs of the command line, those that were found and some that are drawn."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from tests.fuzz.commands import attack, of_setting
from tests.fuzz.inputs import Wrong
from tests.fuzz.settings import EXTREME, settings
from tests.fuzz.words import WORDS
from umbel.checks import UsageError, check_memory, is_plain, shown

PATHS = list(settings())

NUMBERS = st.integers(max_value=10) | st.integers(min_value=10**10)
"""Whole numbers of which a run ends soon, or is refused."""

PHASES = (Phase.explicit, Phase.generate)
"""What fails is small enough as it is: to make it smaller takes minutes."""


def fault_of(wrong: Wrong) -> str | None:
    """What should not be. Time is left out: machines and their loads differ."""
    fault = attack(wrong).fault(wrong)
    return None if fault is None or fault.startswith("takes") else fault


@pytest.mark.parametrize("first", range(0, len(WORDS), 20))
def test_what_was_found_is_refused_in_one_line_with_nothing_written(first: int) -> None:
    faults = {wrong.name: fault_of(wrong) for wrong in WORDS[first : first + 20]}
    assert {name: fault for name, fault in faults.items() if fault} == {}


@bounded(max_examples=40, phases=PHASES)
@given(st.sampled_from(PATHS), st.sampled_from(EXTREME))
def test_no_value_of_a_setting_escapes(path: tuple[tuple[str, ...], str], value: str) -> None:
    assert fault_of(of_setting(*path, value)) is None


@bounded(max_examples=30, phases=PHASES)
@given(st.sampled_from(PATHS), st.floats() | NUMBERS | st.text(max_size=20))
def test_no_number_or_text_of_a_setting_escapes(
    path: tuple[tuple[str, ...], str], value: float | str
) -> None:
    assert fault_of(of_setting(*path, str(value))) is None


@bounded(max_examples=60, phases=PHASES)
@given(st.lists(st.text(max_size=12), max_size=4))
def test_no_words_escape(words: list[str]) -> None:
    outcome = attack(Wrong("words", ("run", "small.toml", *words)))
    assert outcome.fault(Wrong("words", (), ends=(0, 2))) is None


def test_a_value_in_a_message_is_of_one_line_and_ends() -> None:
    assert shown([1, 2]) == "[1, 2]"
    assert shown("a\nb") == r"'a\nb'"
    assert shown(list(range(1000))).endswith("characters more)")
    assert shown(10**5000) == "a value of type int, too long to be shown,"


def test_names_may_be_of_any_script_but_not_act_on_a_terminal() -> None:
    assert all(map(is_plain, ("Ava", "نیم‌فاصله", "👩‍🔬", "a b", "日本")))
    assert not any(map(is_plain, ("a\nb", "\x1b[31m", "\0", "\udcff", "\u202e", "\u2028")))


def test_memory_is_asked_for_before_it_is_taken() -> None:
    check_memory(2**20, "little")
    with pytest.raises(UsageError, match=r"all of it: 1,048,576\.0 GiB is more than the .* GiB of"):
        check_memory(2**50, "all of it")
