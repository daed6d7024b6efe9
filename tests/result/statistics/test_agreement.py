"""How well clusters agree with attributes, against scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from umbel.folder.clients_file import Client
from umbel.result.statistics.agreement import adjusted_rand_index, agreement

WRISTS = ("left", "right", "left", "right", "left", "right")
PERSONS = ("Ava", "Ava", "Ben", "Ben", "Cem", "Cem")


def clients(clusters: Sequence[int], **attributes: Sequence[str]) -> list[Client]:
    return [
        Client(str(n), n, k, attributes={name: values[n] for name, values in attributes.items()})
        for n, k in enumerate(clusters)
    ]


def test_it_is_the_adjusted_mutual_information_of_scikit_learn() -> None:
    clusters = (0, 1, 0, 1, 0, 0)
    found = agreement(clients(clusters, wrist=WRISTS, person=PERSONS))
    assert found == pytest.approx(
        {
            "wrist": adjusted_mutual_info_score(WRISTS, clusters),
            "person": adjusted_mutual_info_score(PERSONS, clusters),
        }
    )
    assert found["wrist"] > 0.2 > found["person"]


def test_it_may_be_the_adjusted_rand_index_as_well() -> None:
    clusters = (0, 1, 0, 1, 0, 0)
    found = agreement(clients(clusters, wrist=WRISTS), adjusted_rand_index)
    assert found == {"wrist": pytest.approx(adjusted_rand_score(WRISTS, clusters))}
    assert agreement(clients((5, 2, 5, 2, 5, 2), wrist=WRISTS), adjusted_rand_index) == {
        "wrist": 1.0
    }


def test_the_same_clusters_are_1_and_a_single_one_0_whatever_they_are_called() -> None:
    assert agreement(clients((5, 2, 5, 2, 5, 2), wrist=WRISTS)) == {"wrist": pytest.approx(1)}
    assert agreement(clients((0,) * 6, wrist=WRISTS)) == {"wrist": 0.0}


def test_what_tells_nothing_of_clients_is_left_out() -> None:
    alike, names = ("x",) * 6, ("a", "b", "c", "d", "e", "f")
    assert agreement(clients((0, 1, 0, 1, 0, 1), country=alike, name=names)) == {}
    assert agreement(clients((0, 1, 0))) == {}


def test_clients_whose_value_is_not_known_do_not_count() -> None:
    wrists = (*WRISTS, "")
    assert agreement(clients((0, 1, 0, 1, 0, 1, 7), wrist=wrists)) == {"wrist": pytest.approx(1)}
