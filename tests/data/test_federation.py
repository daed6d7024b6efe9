from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import umbel
from umbel.checks import UsageError
from umbel.client.objectives import CLASSIFICATION, REGRESSION
from umbel.data.federation import Federation
from umbel.data.scenarios.folder import read_clients

BELOW = "a label is below 0, and not in 0 to"
FROM_SIGNS = "number the classes from 0, as by (y > 0).astype(int)"
X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])


def test_a_saved_federation_is_read_back_the_same(tmp_path: Path) -> None:
    federation = umbel.scenario("rotated-digits", clients=4, seed=1)
    federation.save(tmp_path / "sites")
    found = read_clients(tmp_path / "sites", federation.num_classes)
    by_name = [found.names.index(name) for name in federation.names]
    again = found.pick(by_name)
    assert torch.equal(again.train.x, federation.train.x)
    assert torch.equal(again.test.y, federation.test.y)
    assert again.groups is not None
    assert federation.groups is not None
    assert again.groups.tolist() == federation.groups.tolist()
    odd = replace(federation, names=("a", "b/c", "d", "e"))
    with pytest.raises(umbel.UsageError, match="client: 'b/c' is not a name for a file"):
        odd.save(tmp_path / "odd")
    assert not (tmp_path / "odd").exists()


def test_a_federation_is_saved_again_where_it_is_already_and_no_other(tmp_path: Path) -> None:
    federation = umbel.scenario("rotated-digits", clients=4, seed=1)
    federation = replace(federation, attributes={"wrist": ("left", "right") * 2})
    federation.save(tmp_path)
    written = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    federation.save(tmp_path)
    assert written == {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    train = federation.train
    others = [
        umbel.scenario("rotated-digits", clients=4, seed=2),
        federation.pick([0, 1, 2]),
        replace(federation, groups=None),
        replace(federation, attributes={}),
        replace(federation, names=("a", "b", "c", "d")),
        replace(federation, train=replace(train, x=train.x.double())),
        umbel.scenario("rotated-digits", clients=4, seed=1, validation_fraction=0.2),
    ]
    for other in others:
        with pytest.raises(umbel.UsageError, match="not a folder without"):
            other.save(tmp_path)
    (tmp_path / "0.npz").write_bytes(b"damaged")
    with pytest.raises(umbel.UsageError, match="not a folder without"):
        federation.save(tmp_path)


def test_examples_of_all_clients_stand_one_after_another() -> None:
    federation = Federation.from_arrays(
        [(X[:2], Y[:2]), (X[2:], Y[2:])], [(X[:1], Y[:1]), (X[:0], Y[:0])], groups=[4, 4]
    )
    assert federation.num_clients == 2
    assert federation.train.sizes.tolist() == [2, 4]
    assert federation.train.of(1)[0].tolist() == X[2:].tolist()
    assert federation.train.of(1)[1].tolist() == [2, 0, 1, 2]
    assert federation.test.sizes.tolist() == [1, 0]
    assert federation.train.x.is_contiguous()
    assert federation.input_shape == (2,)
    assert federation.num_outputs == 3
    assert federation.names == ("0", "1")
    assert federation.objective is CLASSIFICATION


def test_without_test_examples_a_share_of_each_client_is_set_apart_by_the_seed() -> None:
    x, y = np.arange(100.0)[:, None], np.arange(100) % 3
    clients = [(x[:40], y[:40]), (x[40:], y[40:])]
    one = Federation.from_arrays(clients, test_fraction=0.25, seed=1)
    again = Federation.from_arrays(clients, test_fraction=0.25, seed=1)
    other = Federation.from_arrays(clients, test_fraction=0.25, seed=2)
    assert one.test.sizes.tolist() == [10, 15]
    assert torch.equal(one.test.x, again.test.x)
    assert not torch.equal(one.test.x, other.test.x)
    together = torch.cat([one.train.of(1)[0], one.test.of(1)[0]])[:, 0]
    assert sorted(together.tolist()) == list(range(40, 100))


def test_torch_datasets_give_the_same_federation_as_their_arrays() -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    datasets = [TensorDataset(x[:2], y[:2]), TensorDataset(x[2:], y[2:])]
    found = Federation.from_datasets(datasets, names=["a", "b"])
    expected = Federation.from_arrays([(x[:2], y[:2]), (x[2:], y[2:])])
    assert torch.equal(found.train.x, expected.train.x)
    assert torch.equal(found.test.y, expected.test.y)
    assert found.names == ("a", "b")


def test_floating_point_targets_are_regression() -> None:
    federation = Federation.from_arrays([(X, X[:, :1])])
    assert federation.num_classes is None
    assert federation.num_outputs == 1
    assert federation.objective is REGRESSION


def test_pixels_become_floats_and_token_numbers_stay_numbers() -> None:
    pixels = Federation.from_arrays([(np.full((4, 2), 7, dtype=np.uint8), Y[:4])])
    tokens = Federation.from_arrays([(np.full((4, 2), 7), Y[:4])])
    assert pixels.train.x.dtype == torch.float32
    assert tokens.train.x.dtype == torch.int64


@pytest.mark.parametrize(
    ("train", "settings", "message"),
    [
        ([], {}, "train: 'list' is not filled with clients: give at least one"),
        ([(X, Y), (X[:0], Y[:0])], {}, "client 1: 0 is not a positive number of training examples"),
        ([(X, Y[:2])], {}, "client 0: '(6, 2) inputs and (2,) targets' is not as many inputs"),
        ([(X, Y)], {"num_classes": 2}, "client 0: a label is above 1, and not in 0 to 1"),
        (
            [(X, 2 * (Y > 1) - 1)],
            {},
            f"client 0: {BELOW} 1; {FROM_SIGNS}",
        ),
        (
            [(X, Y), (X, Y - 100)],
            {},
            f"client 1: {BELOW} 2; leave examples",
        ),
        ([(X, Y), (X[:, :1], Y)], {}, "client 1: 'inputs of shape (1,) with labels"),
        ([(X, Y), (X, X)], {}, "client 1: 'inputs of shape (2,) with numbers of shape (2,)'"),
        ([(X * np.nan, Y)], {}, "client 0: x, column 0: row 0 is NaN; fill it in, or"),
        ([(X, X[:, 0] + np.inf)], {}, "client 0: y: row 0 is infinite; fill it in, or leave"),
        ([(X, Y)], {"test": []}, "test: 0 is not as many clients as 1"),
        ([(X, Y)], {"groups": [0, 1]}, "groups: 2 is not as many clients as 1"),
        ([(X, Y)], {"names": ["a", "b"]}, "names: '2 names' is not a name for each of 1 client"),
        ([(X, Y)], {"test_fraction": 0.99}, "test_fraction: 0.99 is not low enough: of the 6"),
        ([(X, X)], {"num_classes": 3}, "client 0: y: 'floating-point numbers' is not labels of 3"),
    ],
)
def test_bad_data_is_refused_with_the_client_and_the_fault(
    train: list[tuple[np.ndarray, np.ndarray]], settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        Federation.from_arrays(train, **settings)  # type: ignore[arg-type]
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("gap", [None, float("nan"), "", pd.NA])
def test_a_group_that_lacks_is_refused_as_a_gap_and_is_no_group(gap: object) -> None:
    with pytest.raises(UsageError, match=r"groups: client 1: .* is not the group of a client"):
        Federation.from_arrays([(X, Y)] * 3, groups=["a", gap, "b"])  # type: ignore[list-item]


def test_clients_by_name_come_in_the_order_of_the_names_that_are_given() -> None:
    train = {"Ava": (X, Y), "Ben": (X + 100, Y)}
    test = {"Ava": (X + 1, Y), "Ben": (X + 101, Y)}
    found = Federation.from_arrays(train, test, names=["Ben", "Ava"], groups={"Ava": 0, "Ben": 1})
    assert [found.train.of(n)[0][0, 0].item() for n in (0, 1)] == [100, 0]
    assert [found.test.of(n)[0][0, 0].item() for n in (0, 1)] == [101, 1]
    numbered = Federation.from_arrays({1: train["Ava"], 2: train["Ben"]}, names=[2, 1])  # type: ignore[dict-item,list-item]
    assert numbered.names == ("2", "1")
    assert float(numbered.train.of(0)[0].min()) >= 100
    with pytest.raises(UsageError, match="names: '1' is not the name of only one client"):
        Federation.from_arrays({1: train["Ava"], "1": train["Ben"]})  # type: ignore[dict-item]
    said = "names: 'Ben, Cleo' is not the names that train has, each of them once"
    with pytest.raises(UsageError, match=said):
        Federation.from_arrays(train, names=["Ben", "Cleo"])


def test_labels_that_count_from_1_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    shards = [(np.zeros((4, 2), np.float32), np.array([1, 2, 1, 2]))] * 2
    assert Federation.from_arrays(shards).num_classes == 3
    assert "no example has label 0" in caplog.text
    caplog.clear()
    Federation.from_arrays(shards, num_classes=3)
    Federation.from_arrays([(x, y - 1) for x, y in shards])
    assert not caplog.text


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are in other units elsewhere")
@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_of_many_examples_one_copy_is_made_and_no_more(kind: str) -> None:
    program = (
        "import numpy as np, resource, umbel\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "y = np.arange(8000) % 2\n"
        "make = umbel.Federation.from_arrays\n"
        f"make([(np.zeros((9, 200), '{kind}'), y[:9])])\n"
        f"clients = [(np.ones((8000, 200), '{kind}'), y) for _ in range(20)]\n"
        "before = peak()\n"
        "federation = make(clients)\n"
        "held = federation.train.x.nbytes + federation.test.x.nbytes\n"
        "assert peak() - before < 1.3 * held, (peak() - before) / held\n"
        "clients[0][0][:] = 0\n"
        "assert bool((federation.train.x == 1).all())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
