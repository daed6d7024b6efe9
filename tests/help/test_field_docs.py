"""Help, notebooks and the command line read what each setting is for from one place."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import is_dataclass

import pytest

import umbel
from umbel.experiment.setting_paths import TableOf, tables
from umbel.help.field_docs import TITLE, field_docs


@pytest.mark.parametrize("table", tables(), ids=lambda table: f"{table.path}:{table.kind.__name__}")
def test_every_setting_of_an_experiment_says_what_it_is_for(table: TableOf) -> None:
    assert not [doc.name for doc in field_docs(table.kind) if not doc.meaning]


def test_a_setting_has_its_meaning_its_default_and_its_range() -> None:
    docs = {doc.name: doc for doc in field_docs(umbel.LocalTraining)}
    assert docs["lr"].meaning == "learning rate"
    assert docs["lr"].default == "0.1"
    assert docs["lr"].allowed == "a number; more than 0, and finite"
    assert (
        docs["batch_size"].allowed == '1 or more, or "all"' or "all" in docs["batch_size"].allowed
    )
    assert docs["drop_last"].meaning.startswith("leave out an epoch's last batch")
    assert {doc.name for doc in field_docs(umbel.FLACC)} >= {"local", "n_merge", "averaging"}


def test_help_and_notebooks_tell_of_every_field() -> None:
    helped = pydoc.plain(pydoc.render_doc(umbel.FLACC))
    assert "n_merge = 2" in helped
    assert "largest number of merges in a round; a whole number; 1 or more" in helped
    for name in umbel.__all__:
        thing = getattr(umbel, name)
        if isinstance(thing, type) and is_dataclass(thing) and field_docs(thing):
            told = inspect.getdoc(thing) or ""
            assert TITLE in told
            assert all(f"    {doc.name}" in told for doc in field_docs(thing)), name
            assert TITLE not in str(thing.__doc__)  # which is written, and not read from anywhere
