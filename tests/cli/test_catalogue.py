"""The sentences that `umbel list` prints are about what there is, all of it and no more."""

from __future__ import annotations

import pytest

from umbel.algorithms import ALGORITHMS
from umbel.cli.catalogue import KINDS, comparisons, entries, times
from umbel.data.scenarios import SCENARIOS
from umbel.experiment.library import shipped_comparisons, shipped_experiments
from umbel.networks import MODELS
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.papers.saved_results import kept
from umbel.result.run import read

NAMES = {
    "methods": list(ALGORITHMS),
    "scenarios": list(SCENARIOS),
    "models": list(MODELS),
    "experiments": list(shipped_experiments()),
    "papers": list(REPRODUCTIONS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_thing_has_one_sentence(kind: str) -> None:
    found = entries(kind)
    assert sorted(found) == sorted(NAMES[kind])
    for name, text in found.items():
        assert text.endswith("."), name
        assert not text.endswith(".."), name
        assert "=(" not in text, name  # the settings of a Python object
        assert len(text) <= 160, name


def test_experiments_say_what_their_definitions_say() -> None:
    for name, text in entries("experiments").items():
        assert text == f"{read(shipped_experiments()[name]).description}."


def test_comparisons_hold_every_experiment_once() -> None:
    assert list(comparisons()) == list(shipped_comparisons())
    names = [name for members in comparisons().values() for name in members]
    assert sorted(names) == sorted(shipped_experiments())


def test_papers_say_how_long_the_kept_results_took() -> None:
    for name in REPRODUCTIONS:
        assert times(name).count("seconds") + times(name).count("minutes") == len(list(kept(name)))
    assert times("cflgp-fig1").startswith("took full ")
