"""Sentences of the advice that give reasons: each is true of the table beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import umbel
from tests.advice.test_adviser import LOCAL, net, tables
from tests.advice.test_verdict import CLIENTS, standing, structure
from umbel.advice.advice import headline, sentences
from umbel.advice.race import _without_losers
from umbel.advice.structure import Difference
from umbel.advice.trial import Standing
from umbel.advice.verdict import decide

NOT_BY_TUNING = (
    "but as many further epochs without fine-tuning bring as much: '2 clusters' then has 0.278."
)


@pytest.fixture(scope="module")
def advice() -> umbel.Advice:
    return umbel.advise(tables(2, clients=CLIENTS), net(), local=LOCAL, budget=2)


def told(advice: umbel.Advice, groups: int, *standings: Standing) -> umbel.Advice:
    """The same advice, if these were the ways."""
    shown = structure(groups)
    verdict = decide(standings, shown)
    return replace(advice, structure=shown, standings=standings, verdict=verdict)


def tuned(base: Standing, loss: float, *rivals: Standing) -> Standing:
    clusters = int(base.clusters.max()) + 1
    found = standing(base.contender.kind, loss, clusters, tuned=True)
    contender = replace(found.contender, base=base.contender)
    return replace(found, contender=contender, rivals=rivals)


def lower(advice: umbel.Advice) -> list[str]:
    return [sentence for sentence in sentences(advice) if "has a lower loss" in sentence]


def test_clusters_that_examples_do_not_show_are_not_said_to_gain_nothing_by_fine_tuning(
    advice: umbel.Advice,
) -> None:
    one, alone = standing("one", 0.5), standing("local", 0.6)
    shown, other = standing("clusters", 0.30, 2), standing("clusters", 0.2999, 3)
    noise = np.where(np.arange(CLIENTS) % 2, 0.2, -0.2)
    other = replace(other, loss=other.loss + noise)
    best = tuned(other, 0.2, one, standing("clusters", 0.3, 3))
    found = told(advice, 2, one, alone, shown, other, best)
    assert found.verdict.chosen is shown
    (sentence,) = lower(found)
    assert "but before fine-tuning its clusters were not surely better than those" in sentence
    assert sentence.endswith("; its lead over the advised way is more than chance.")
    hardly = replace(tuned(other, 0.29, *best.rivals), loss=0.29 + noise)
    (sentence,) = lower(told(advice, 2, one, alone, shown, other, hardly))
    assert sentence.endswith("; its lead over the advised way may be chance.")


def test_a_gain_by_longer_training_or_too_small_a_lead_is_said_to_be_that(
    advice: umbel.Advice,
) -> None:
    one, alone = standing("one", 0.5), standing("local", 0.6)
    shown = standing("clusters", 0.30, 2)
    as_good = tuned(shown, 0.28, one, standing("clusters", 0.28, 2))
    (sentence,) = lower(told(advice, 2, one, alone, shown, as_good))
    assert sentence.startswith("Train 2 models, one for each cluster of clients; the way called ")
    assert "has a lower loss (0.278 against 0.298)" in sentence
    assert sentence.endswith(NOT_BY_TUNING)
    little = tuned(shown, 0.2995, one, standing("clusters", 0.31, 2))
    (sentence,) = lower(told(advice, 2, one, alone, shown, little))
    assert sentence.endswith("but by less than 0.5%, and the advised way is simpler.")


def test_clusters_that_became_one_better_model_are_said_to_be_another_start_of_it(
    advice: umbel.Advice,
) -> None:
    one, alone = standing("one", 0.5), standing("local", 0.6)
    found = standing("clusters", 0.2, 2)
    merged = replace(found, clusters=np.zeros_like(found.clusters))
    for way, said in ((merged, True), (found, False), (replace(merged, loss=one.loss), False)):
        sentence = "all clients chose the same model, which is one model from another start"
        told_now = told(advice, 1, one, alone, way)
        assert any(sentence in each for each in sentences(told_now)) == said
    assert _without_losers([one, alone, merged, standing("clusters", 0.4, 3)])[-1].stopped == ""


def test_training_alone_is_advised_with_what_is_true_of_shared_models(
    advice: umbel.Advice,
) -> None:
    one, alone = standing("one", 0.5), standing("local", 0.3)
    assert headline(told(advice, 1, one, alone)).endswith("no model that clients share is as good.")
    noise = np.where(np.arange(CLIENTS) % 2, 0.9, -0.9)
    by_chance = replace(standing("clusters", 0.29, 2), loss=0.29 + noise)
    found = told(advice, 2, one, alone, by_chance)
    assert found.verdict.answer == "train alone"
    assert headline(found).endswith("no model that clients share is surely better.")


def test_one_model_for_clients_that_differ_is_advised_with_what_is_true_of_clusters(
    advice: umbel.Advice,
) -> None:
    one, alone = standing("one", 0.5), standing("local", 0.6)
    noise = np.where(np.arange(CLIENTS) % 2, 0.2, -0.2)
    shown = Difference(kind="labels", p_value=0.002, nearness=0.9, dimensions=1)
    losses = {
        "No clustering is surely better than one model.": 0.42 + noise,
        "Clusters are better by no more than 0.5%, and one model is simpler.": one.loss - 0.001,
    }
    for sentence, loss in losses.items():
        found = told(advice, 2, one, alone, replace(standing("clusters", 0, 2), loss=loss))
        assert found.verdict.answer == "one model"
        assert sentence not in sentences(found)
        differ = replace(found, structure=replace(found.structure, differences=(shown,)))
        assert sentences(differ)[-1] == sentence


@pytest.mark.parametrize(("unseen", "said"), [(1, "1 client will"), (2, "2 clients will")])
def test_labels_of_the_test_that_others_train_on_are_said_to_be_new_to_these_clients(
    advice: umbel.Advice, unseen: int, said: str
) -> None:
    found = replace(advice, facts=replace(advice.facts, unseen=unseen))
    own = "its own" if unseen == 1 else "their own"
    expected = f"{said} meet labels that are not among {own} training examples."
    assert expected in sentences(found)


@pytest.mark.parametrize(
    ("course", "said"),
    [
        ((14.6,), "too short to see"),
        ((14.6, 13.97), "allow more rounds"),
        ((14.6, 13.97, 13.36), "allow more rounds"),
        ((14.6, 10.0, 9.99, 9.98), ""),
        ((14.6, 14.59), ""),
    ],
)
def test_a_short_budget_is_said_to_be_one(
    advice: umbel.Advice, course: tuple[float, ...], said: str
) -> None:
    one = replace(standing("one", 0.5), course=tuple(enumerate(course, 1)))
    text = " ".join(sentences(told(advice, 1, one, standing("local", 0.6))))
    for each in ("too short to see", "allow more rounds"):
        assert (each in text) == (each == said)
