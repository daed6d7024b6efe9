"""Users in files of LEAF: Shakespeare, Sent140, synthetic and FEMNIST, with their own split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umbel
from umbel.checks import UsageError
from umbel.data.leaf import LETTERS
from umbel.data.scenarios.leaf import LeafUsers
from umbel.data.scenarios.natural import Natural
from umbel.data.sources import Sources

Users = dict[str, tuple[list[Any], list[Any]]]


def write(file: Path, users: Users) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    file.write_text(json.dumps(content))


def numbers(count: int, start: int) -> tuple[list[Any], list[Any]]:
    return [[float(start + n), 0.5] for n in range(count)], [float(n % 3) for n in range(count)]


def synthetic(train: Path, test: Path) -> None:
    write(train, {"a": numbers(6, 0), "b": numbers(5, 10), "c": numbers(3, 30)})
    write(test, {"a": numbers(2, 100), "b": numbers(4, 110), "d": numbers(1, 0)})


@pytest.mark.parametrize(
    "places",
    [
        ("train/all_data_0_keep_0_train_9.json", "test/all_data_0_keep_0_test_9.json"),
        ("data/train/mytrain.json", "data/test/mytest.json"),
        ("all_data_niid_1_keep_10_train_8.json", "all_data_niid_1_keep_10_test_8.json"),
    ],
)
def test_the_division_of_leaf_is_kept(
    places: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    synthetic(*(tmp_path / place for place in places))
    made = umbel.scenario("leaf", path=str(tmp_path), least=4)
    assert made.names == ("a", "b")
    assert made.train.sizes.tolist() == [6, 5]
    assert made.test.of(1)[0][:, 0].tolist() == [110.0, 111.0, 112.0, 113.0]
    assert made.num_classes == 3
    assert "without training examples, and left out: d" in caplog.text
    assert umbel.scenario("leaf", path=str(tmp_path), clients=2).num_clients == 2


def test_files_that_are_not_divided_are_divided_at_random(tmp_path: Path) -> None:
    write(tmp_path / "all_data" / "data.json", {"a": numbers(10, 0), "b": numbers(20, 0)})
    made = umbel.scenario("leaf", path=str(tmp_path / "all_data"), test_fraction=0.2)
    assert made.test.sizes.tolist() == [2, 4]


def test_shakespeare_is_read_as_leafs_numbers_of_characters(tmp_path: Path) -> None:
    text = "To be, or not to be"
    pairs: Users = {
        "HAMLET": ([text[n : n + 8] for n in range(9)], [text[n + 8] for n in range(9)])
    }
    write(tmp_path / "train" / "all.json", pairs)
    write(tmp_path / "test" / "all.json", {"HAMLET": (["that is "], ["t"])})
    made = umbel.scenario("leaf", path=str(tmp_path))
    assert made.num_classes == len(LETTERS) == 80
    assert made.train.x.shape == (9, 8)
    assert "".join(LETTERS[n] for n in made.train.of(0)[0][0].tolist()) == "To be, o"
    assert LETTERS[int(made.test.y[0])] == "t"


def test_tweets_of_sent140_become_counts_of_words(tmp_path: Path) -> None:
    rows = [[str(n), "Mon Apr 06", "NO_QUERY", "me", f"good day {n}", "2"] for n in range(6)]
    write(tmp_path / "train" / "all.json", {"me": (rows, [0, 1] * 3)})
    write(tmp_path / "test" / "all.json", {"me": (rows[:1], [1])})
    made = umbel.scenario("leaf", path=str(tmp_path), text_features=32)
    assert made.train.x.shape == (6, 32)
    assert made.test.x[0].tolist() == made.train.x[0].tolist()


def test_what_is_not_leafs_is_refused(tmp_path: Path) -> None:
    def refused(said: str, **more: Any) -> None:
        with pytest.raises(UsageError, match=said):
            LeafUsers(path=str(tmp_path), **more).build(0, Sources.default())

    refused("holds no .json files of LEAF, and no train/")
    write(tmp_path / "train" / "a.json", {"a": numbers(4, 0)})
    refused("clients: 2 is not at most 1", clients=2)
    refused("shape .* is not of 2 values", shape=(3,))
    write(tmp_path / "test" / "a.json", {"b": numbers(4, 0)})
    refused("no user has examples in both train and test, as LEAF's `-t user`")
    write(tmp_path / "test" / "a.json", {"a": (["0001.jpg"], [1])})
    write(tmp_path / "train" / "a.json", {"a": (["0002.jpg"], [1])})
    refused("client a: .* x are texts, and y no characters")
    (tmp_path / "train" / "a.json").write_text("{}")
    refused("not a file of users, num_samples and user_data")


def images(writer: int, count: int, black: float) -> tuple[list[Any], list[Any]]:
    x = np.full((count, 784), black)
    x[:, 0] = writer / 255
    return x.tolist(), [int(n) for n in np.arange(count) % 62]


@pytest.mark.parametrize("base", ["", "data/"])
def test_femnist_keeps_the_division_of_leaf(base: str, tmp_path: Path) -> None:
    folder = tmp_path / "femnist"
    train = {f"f{n}": images(n, 20 + n, 0.0) for n in range(4)}
    write(folder / f"{base}train" / "all_data_0_niid_0_keep_0_train_9.json", train)
    tests = {f"f{n}": images(n, 2 + n, 1.0) for n in range(4)}
    write(folder / f"{base}test" / "all_data_0_niid_0_keep_0_test_9.json", tests)
    sources = Sources(tmp_path, tmp_path / "cache")
    made = Natural(clients=3, examples=(20, 26)).build(0, sources)
    for client, name in enumerate(made.names):
        number = int(name[1])
        assert made.train.sizes[client] == 20 + number
        assert made.test.sizes[client] == 2 + number
        assert float(made.test.of(client)[0][:, 0, 0, 1].min()) == 1.0
    anew = Natural(clients=3, examples=(20, 26), split="train+test").build(0, sources)
    assert set(anew.train.sizes + anew.test.sizes) <= {22, 24, 26}
