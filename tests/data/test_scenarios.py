from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch

import umbel
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.data.scenarios import LABEL_SWAPPED_DIGITS, ROTATED_DIGITS, SCENARIOS
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.folder import Folder
from umbel.data.scenarios.gu import ROTATED_MNIST_LCFL
from umbel.data.scenarios.mehta import ROTATED_MNIST
from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import LabelGroups, Rotate
from umbel.data.sources import Sources
from umbel.experiment.toml_file import plain, structured


def same(one: Federation, other: Federation) -> bool:
    return torch.equal(one.train.x, other.train.x) and torch.equal(one.test.y, other.test.y)


def test_rotated_digits_are_the_real_digits_turned_by_group(sources: Sources) -> None:
    federation = ROTATED_DIGITS.build(0, sources)
    assert federation.num_clients == 20
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [5, 5, 5, 5]
    assert federation.input_shape == (1, 8, 8)
    digits = {image.tobytes() for image in sources.load("digits").images(np.arange(1797))}
    for client in (0, 6, 12, 19):
        quarter = -int(federation.groups[client])
        images = federation.train.of(client)[0].numpy()
        upright = np.ascontiguousarray(np.rot90(images, quarter, axes=(2, 3)))
        assert all(image.tobytes() in digits for image in upright)


def test_a_scenario_is_a_function_of_its_seed(sources: Sources) -> None:
    assert same(ROTATED_DIGITS.build(3, sources), ROTATED_DIGITS.build(3, sources))
    assert not same(ROTATED_DIGITS.build(3, sources), ROTATED_DIGITS.build(4, sources))


def test_label_swapped_digits_keep_the_images_and_swap_two_labels(sources: Sources) -> None:
    swapped = LABEL_SWAPPED_DIGITS.build(0, sources)
    assert swapped.groups is not None
    assert len(set(swapped.groups.tolist())) == 4
    arrays = sources.load("digits")
    true = dict(zip((i.tobytes() for i in arrays.images(np.arange(1797))), arrays.y, strict=True))
    x, y = swapped.train.of(0)
    wrong = {
        (int(true[image.tobytes()]), int(label))
        for image, label in zip(x.numpy(), y, strict=True)
        if true[image.tobytes()] != label
    }
    (pair,) = {frozenset(names) for names in wrong}
    assert len(pair) == 2


def test_normalised_pixels_are_those_of_0_to_1_minus_mean_over_std(sources: Sources) -> None:
    plain = Shifted(clients=4)
    before = plain.build(0, sources)
    after = replace(plain, normalise=(0.1307, 0.3081)).build(0, sources)
    for raw, scaled in ((before.train, after.train), (before.test, after.test)):
        torch.testing.assert_close(scaled.x, (raw.x - 0.1307) / 0.3081)
        assert torch.equal(scaled.y, raw.y)


def test_grouped_labels_give_each_client_its_groups_labels(sources: Sources) -> None:
    scenario = Shifted(clients=10, examples=(50,), shift=LabelGroups(5, 2))
    federation = scenario.build(0, sources)
    for first in range(0, 10, 2):
        one, other = (set(federation.train.of(c)[1].tolist()) for c in (first, first + 1))
        assert one == other
        assert len(one) == 2


def test_dirichlet_skew_makes_clients_labels_uneven(sources: Sources) -> None:
    scenario = Shifted(clients=8, examples=(100,), label_alpha=0.1, shift=Rotate((0.0,)))
    federation = scenario.build(0, sources)
    most = [np.bincount(federation.train.of(c)[1]).max() for c in range(8)]
    assert np.mean(most) > 40


def test_scenarios_are_called_by_name_with_some_settings_changed() -> None:
    federation = umbel.scenario("rotated-digits", clients=6, examples=[20, 30], seed=2)
    sizes = federation.train.sizes + federation.test.sizes
    assert federation.num_clients == 6
    assert sizes.min() >= 20
    assert sizes.max() <= 30
    with pytest.raises(UsageError, match="client: unknown key; did you mean clients"):
        umbel.scenario("rotated-digits", client=6)
    with pytest.raises(UsageError, match="name: 'rotated-digit' is not known; did you mean"):
        umbel.scenario("rotated-digit")


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_named_scenario_is_the_same_when_read_back_from_toml(name: str) -> None:
    scenario = structured({"name": name}, Scenario)
    written = tomli_w.dumps(plain(scenario))
    assert structured(tomllib.loads(written), Scenario) == scenario


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 3}, "clients: 3 is not at least one for each of 4 groups"),
        ({"shares": (1.0, 2.0)}, "shares: .* is not one for 4 groups"),
        ({"examples": (500,)}, "examples: 500 is not few enough"),
        ({"examples": (500,), "per_group": True}, "examples: 500 is not few enough: 5 clients"),
        ({"source": "mnist2"}, "source: 'mnist2' is not any of digits, mnist"),
        ({"split": "train+test"}, "split: 'test' is not \"train\", the only split of digits"),
    ],
)
def test_what_can_not_be_built_is_refused(
    change: dict[str, object], message: str, sources: Sources
) -> None:
    with pytest.raises(UsageError, match=message):
        replace(ROTATED_DIGITS, **change).build(0, sources)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"clients": 0},
        {"shares": (0.0, 1.0)},
        {"examples": (1, 2, 3)},
        {"examples": (5, 3)},
        {"test_fraction": 0.0},
        {"label_alpha": 0.0},
        {"test_split": "train"},
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
        replace(ROTATED_DIGITS, **change)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_rotated_mnist_is_the_papers(real_data: Sources) -> None:
    federation = ROTATED_MNIST.build(0, real_data)
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [10, 20, 30, 40]
    sizes = federation.train.sizes + federation.test.sizes
    assert sizes.min() >= 200
    assert sizes.max() <= 800
    np.testing.assert_allclose(federation.test.sizes / sizes, 0.15, atol=0.003)
    assert federation.input_shape == (1, 28, 28)
    assert federation.num_classes == 10
    assert float(federation.train.x.max()) == 1.0


def images(federation: Federation, clients: Iterable[int]) -> list[bytes]:
    """The upright images of these clients, of both splits, for angles that are quarter turns."""
    assert federation.groups is not None
    shards = [
        np.rot90(split.of(client)[0].numpy(), -int(federation.groups[client]), axes=(2, 3))
        for client in clients
        for split in (federation.train, federation.test)
    ]
    return [image.tobytes() for image in np.ascontiguousarray(np.concatenate(shards))]


def test_each_group_may_be_dealt_the_whole_source(sources: Sources) -> None:
    scenario = Shifted(clients=8, shares=(1.0, 1.0, 2.0, 4.0), per_group=True)
    federation = scenario.build(0, sources)
    whole = sources.load("digits").images(np.arange(1797))
    everything = Counter(image.tobytes() for image in whole)
    for clients in ([0], [1], [2, 3], range(4, 8)):
        held = images(federation, clients)
        assert len(held) == 1797 // len(clients) * len(clients)
        assert Counter(held) <= everything
    assert images(federation, [0])[:50] != images(federation, [1])[:50]


@pytest.mark.thorough
def test_the_test_split_is_dealt_in_proportion_to_training_sizes(real_data: Sources) -> None:
    scenario = replace(ROTATED_MNIST, test_split="test")
    federation = scenario.build(0, real_data)
    assert federation.train.sizes.min() >= 200  # nothing is set apart
    assert federation.test.sizes.sum() == 10_000
    exact = 10_000 * federation.train.sizes / federation.train.sizes.sum()
    assert np.abs(federation.test.sizes - exact).max() < 1
    dealt = images(federation, range(100))
    assert len(set(dealt)) == len(dealt)
    uneven = replace(scenario, label_alpha=0.5)
    with pytest.raises(UsageError, match="test_split: 'test' is not None, as some clients lack"):
        uneven.build(0, real_data)


@pytest.mark.thorough
def test_lcfls_clients_hold_200_images_of_a_group_that_holds_them_all(real_data: Sources) -> None:
    federation = ROTATED_MNIST_LCFL.build(0, real_data)
    assert federation.groups is not None
    assert np.bincount(federation.groups).tolist() == [300] * 4
    assert set(federation.train.sizes) == {200}
    assert set(federation.test.sizes) == {33, 34}
    first, last = (set(images(federation, clients)) for clients in (range(300), range(900, 1200)))
    assert len(first) == 70_000  # each image once
    assert first == last


def write_client(folder: Path, name: str, size: int, label: int = 0) -> None:
    x = np.random.default_rng(0).normal(size=(size, 4)).astype(np.float32)
    np.savez(folder / f"{name}.npz", x=x, y=np.full(size, label))


def test_a_folder_of_arrays_is_a_federation(tmp_path: Path, sources: Sources) -> None:
    write_client(tmp_path, "north", 20, 0)
    write_client(tmp_path, "south", 40, 2)
    (tmp_path / "groups.csv").write_text("south,warm\nnorth,cold\n")
    federation = Folder(str(tmp_path)).build(0, sources)
    assert federation.names == ("north", "south")
    assert federation.train.sizes.tolist() == [17, 34]
    assert federation.num_classes == 3
    assert federation.groups is not None
    assert federation.groups.tolist() == [0, 1]


def test_a_folder_may_bring_its_own_test_examples(tmp_path: Path, sources: Sources) -> None:
    x, y = np.zeros((20, 4), np.float32), np.zeros(20, np.int64)
    np.savez(tmp_path / "north.npz", x=x, y=y, x_test=x[:3], y_test=y[:3])
    federation = Folder(str(tmp_path)).build(0, sources)
    assert federation.train.sizes.tolist() == [20]
    assert federation.test.sizes.tolist() == [3]
    assert federation.groups is None


def test_a_bad_folder_is_refused_with_the_file(tmp_path: Path, sources: Sources) -> None:
    scenario = Folder(str(tmp_path))
    with pytest.raises(UsageError, match=r"holds no \.npz files"):
        scenario.build(0, sources)
    with pytest.raises(UsageError, match="gone: there is no such folder or file"):
        Folder(str(tmp_path / "gone")).build(0, sources)
    np.save(tmp_path / "array.npy", np.zeros(3))
    array = (tmp_path / "array.npy").read_bytes()
    for garbage in (b"no arrays", b"", b"PK\x03\x04 nor this", array):
        (tmp_path / "a.npz").write_bytes(garbage)
        with pytest.raises(UsageError, match=r"a\.npz: not a \.npz file of plain arrays, as numpy"):
            scenario.build(0, sources)
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(UsageError, match=r"a\.npz: not a \.npz file of plain arrays"):
        scenario.build(0, sources)
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(UsageError, match=r"a\.npz: lacks y: arrays x and y are needed"):
        scenario.build(0, sources)


def test_groups_may_have_a_header_and_the_mark_of_spreadsheets(
    tmp_path: Path, sources: Sources
) -> None:
    for name in ("a", "b"):
        write_client(tmp_path, name, 5)
    (tmp_path / "groups.csv").write_text("\ufeffclient,group\na,old\nb,new\n", encoding="utf-8")
    groups = Folder(str(tmp_path)).build(0, sources).groups
    assert groups is not None
    assert groups.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b,1\n", r"groups\.csv: 'a' is not in the file"),
        ("\na\n", r"groups\.csv: line 2: '1 value' is not of the form"),
        ("a,1\nb,1\nzz,1\n", r"groups\.csv: line 3: 'zz' is not a client; known: a, b"),
        ("a,1\nclient,group\nb,1\n", r"groups\.csv: line 2: 'client' is not a client"),
        ("a,1\nb,1\na,1\n", r"groups\.csv: line 3: 'a' is not named only once"),
    ],
)
def test_bad_groups_are_refused_with_the_line(
    tmp_path: Path, sources: Sources, text: str, message: str
) -> None:
    for name in ("a", "b"):
        write_client(tmp_path, name, 5)
    (tmp_path / "groups.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        Folder(str(tmp_path)).build(0, sources)
