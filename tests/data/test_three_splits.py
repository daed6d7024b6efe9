"""Validation examples: where they come from, and that the others stay what they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.channel_state import ChannelState
from umbel.data.scenarios.few_labels import FewLabels
from umbel.data.scenarios.folder import Folder, read_clients
from umbel.data.scenarios.linear_regressions import LinearRegressions
from umbel.data.scenarios.overlapping_labels import OverlappingLabels
from umbel.data.scenarios.shifted import Shifted
from umbel.data.scenarios.together import Together
from umbel.data.sources import Sources

FIFTH: dict[str, Any] = {"validation_fraction": 0.2}
X, Y = np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 3


def rows(split: Any, client: int) -> set[tuple[float, ...]]:
    return set(map(tuple, split.of(client)[0].reshape(len(split.of(client)[0]), -1).tolist()))


def test_validation_examples_are_taken_from_training_and_leave_the_test_as_it_is() -> None:
    clients = [(X, Y), (X + 100, Y)]
    without = Federation.from_arrays(clients, seed=3)
    found = Federation.from_arrays(clients, validation_fraction=0.25, seed=3)
    assert torch.equal(found.test.x, without.test.x)
    assert found.validation is not None
    assert found.train.sizes.tolist() == [13, 13]
    assert found.validation.sizes.tolist() == [4, 4]  # a quarter of 17
    for client in range(2):
        kept, apart = rows(found.train, client), rows(found.validation, client)
        assert not kept & apart
        assert kept | apart == rows(without.train, client)
    again = Federation.from_arrays(clients, validation_fraction=0.25, seed=4)
    assert again.validation is not None
    assert not torch.equal(again.validation.x, found.validation.x)


def test_without_validation_a_federation_is_what_it_was() -> None:
    found = Federation.from_arrays([(X, Y)], seed=3)
    assert found.validation is None
    order = umbel.seeds.generator(3, umbel.seeds.Stream.DATA, 0).permutation(20)
    assert found.train.x.tolist() == X[order[:17]].tolist()
    assert found.splits == (found.train, found.test)


def test_given_validation_examples_are_used_as_they_are() -> None:
    found = Federation.from_arrays(
        {"a": (X, Y), "b": (X, Y)},
        {"b": (X[:2], Y[:2]), "a": (X[:1], Y[:1])},
        validation={"b": (X[:0], Y[:0]), "a": (X[:3], Y[:3])},
    )
    assert found.validation is not None
    assert found.validation.sizes.tolist() == [3, 0]
    assert "40 training, 3 validation and 3 test examples" in repr(found)
    assert "validation examples" in found._repr_html_()
    picked = found.pick([1, 0]).validation
    assert picked is not None
    assert picked.sizes.tolist() == [0, 3]
    assert found.pick([1]).validation is None  # nobody is left who has any


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"validation_fraction": 1.0}, r"validation_fraction: 1.0 is not in \[0, 1\)"),
        ({"validation_fraction": 0.99}, "validation_fraction: 0.99 is not low enough"),
        ({"validation_fraction": 0.01}, "validation_fraction: 0.01 is not 0, or enough for an"),
        ({"validation": [(X[:0], Y[:0])]}, "validation: 'no example'"),
        ({"validation": [(X, Y)] * 2}, "validation: 2 is not as many clients as 1"),
        ({"validation": [(X, Y)], "validation_fraction": 0.1}, "validation_fraction: 0.1 is not 0"),
        ({"validation": [(X[:, :1], Y)]}, "client 0: .* is not inputs of shape"),
        ({"validation": [(X * np.nan, Y)]}, "client 0"),
        ({"validation": [(X, Y + 7)], "num_classes": 3}, "client 0: a label is above"),
        ({"validation": [X]}, "a pair"),
    ],
)
def test_bad_validation_examples_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(umbel.UsageError, match=message):
        Federation.from_arrays([(X, Y)], **more)


def test_a_folder_keeps_validation_examples(tmp_path: Path) -> None:
    federation = umbel.scenario("rotated-digits", clients=4, validation_fraction=0.2)
    federation.save(tmp_path / "sites")
    found = Folder(path=str(tmp_path / "sites")).build(0, Sources.default())
    for name in ("train", "validation", "test"):
        assert torch.equal(getattr(found, name).x, getattr(federation, name).x)
        assert torch.equal(getattr(found, name).y, getattr(federation, name).y)
    with pytest.raises(umbel.UsageError, match=r"validation_fraction: 0\.5 is not 0"):
        Folder(path=str(tmp_path / "sites"), validation_fraction=0.5).build(0, Sources.default())
    np.savez(tmp_path / "sites" / "9.npz", x=np.zeros((3, 1, 8, 8)), y=np.arange(3))
    with pytest.raises(umbel.UsageError, match="in every file or in none"):
        read_clients(tmp_path / "sites", 10)


def test_scenarios_set_validation_examples_apart_and_keep_their_test_examples() -> None:
    sources = Sources.default()
    shifted = Shifted(clients=4)
    recipes: list[Scenario] = [
        shifted,
        replace(LinearRegressions(), examples=20, test_examples=5),
        OverlappingLabels(clients=4),
        FewLabels(clients=4),
        ChannelState(clients=2, examples=10),
    ]
    for recipe in recipes:
        less: Scenario = replace(recipe, **FIFTH)
        without, found = recipe.build(1, sources), less.build(1, sources)
        assert torch.equal(found.test.x, without.test.x)
        assert found.validation is not None
        together = found.train.sizes + found.validation.sizes
        assert together.tolist() == without.train.sizes.tolist()
    parts = Together((shifted, replace(shifted, validation_fraction=0.5)), clients=8)
    both = parts.build(0, sources).validation
    assert both is not None
    assert [bool(size) for size in both.sizes] == [False] * 4 + [True] * 4


def test_arrays_of_a_split_under_another_name_are_refused(tmp_path: Path) -> None:
    x, y = np.zeros((6, 2)), np.arange(6) % 2
    for name, said in (("X_test", "x_test or y_test"), ("val_x", "x_validation or y_validation"),
                       ("x_train", "x or y")):  # fmt: skip
        arrays: dict[str, Any] = {"x": x, "y": y, name: x}
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises(UsageError, match=f"'{name}' is not .* call it {said}"):
            umbel.scenario("folder", path=str(tmp_path))
    np.savez(tmp_path / "a.npz", x=x, y=y, testimony=x)
    assert umbel.scenario("folder", path=str(tmp_path)).names == ("a",)


def test_a_column_that_divides_rows_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pyarrow", reason="the extra umbel[tables] is not installed")
    sets = ["train", "train", "test"]
    rows = [f"{'ab'[n % 2]},{n * n % 7},{sets[n % 3]},{'pq'[n % 2]}" for n in range(60)]
    (tmp_path / "all.csv").write_text("\n".join(["site,age,set,y", *rows]))
    settings: dict[str, Any] = {"path": str(tmp_path / "all.csv"), "client": "site", "target": "y"}
    umbel.scenario("table", **settings)
    assert "column 'set' seems to divide the rows" in caplog.text
    assert 'split_column = "set"' in caplog.text
    kept = umbel.scenario("table", split="column", split_column="set", **settings)
    assert kept.test.sizes.tolist() == [10, 10]
