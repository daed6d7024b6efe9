"""Numbers that mean the same to everybody: groups, classes, dates, owners and pixels."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from umbel import testing
from umbel.checks import UsageError
from umbel.data.groups import read_groups
from umbel.data.recordings import Cut
from umbel.data.scenarios.windows import federation_of
from umbel.experiment.python_run import described
from umbel.folder.origin import check_origin, origin

LETTERS = "abcdefghijkl"


def one_each(groups: Any) -> umbel.Federation:
    """A client for each group, with a few examples."""
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(4, 2)).astype(np.float32), np.arange(4) % 2) for _ in groups]
    names = list(LETTERS[: len(groups)])
    return umbel.Federation.from_arrays(pairs, names=names, groups=groups, test_fraction=0.25)


@pytest.mark.parametrize("groups", [list(range(12)), [3, 7, 3], [-1, 0, -2]])
def test_numbers_of_groups_stay_what_they_are(groups: list[int], tmp_path: Path) -> None:
    federation = one_each(groups)
    federation.save(tmp_path)
    again = umbel.scenario("folder", path=str(tmp_path))
    assert again.groups is not None
    assert again.groups.tolist() == groups
    again.save(tmp_path)  # it is there already


def test_sites_agree_on_what_a_word_means(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("a,cold\nb,warm\n")
    (tmp_path / "south.csv").write_text("c,hot\nd,cold\n")
    north = read_groups(tmp_path / "north.csv", ["a", "b"], alone=True)
    south = read_groups(tmp_path / "south.csv", ["c", "d"], alone=True)
    assert north is not None
    assert south is not None
    assert north[0] == south[1]
    assert len({*north, *south}) == 3
    assert read_groups(tmp_path / "north.csv", ["a", "b"]) == ["cold", "warm"]


def test_sites_agree_on_what_a_number_means_beside_a_word(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("a,1\nb,2\n")
    (tmp_path / "south.csv").write_text("c,1\nd,cold\n")
    north = read_groups(tmp_path / "north.csv", ["a", "b"], alone=True)
    south = read_groups(tmp_path / "south.csv", ["c", "d"], alone=True)
    assert north == [1, 2]
    assert south is not None
    assert south[0] == 1
    (tmp_path / "west.csv").write_text("a,1\nb,01\n")
    assert read_groups(tmp_path / "west.csv", ["a", "b"]) == ["1", "01"]


def test_a_checkpoint_in_which_numbers_were_counted_as_words_is_of_the_same_groups() -> None:
    federation, net = one_each([1, 10, 2]), testing.mlp()
    run = umbel.Run(umbel.FedAvg(), federation, net)
    now = origin(described(run, "mine", 1, 1), federation, net)
    renumbered = replace(federation, groups=np.array([0, 1, 2]))
    before = origin(described(run, "mine", 1, 1), renumbered, net)
    check_origin(Path("checkpoint.safetensors"), before, now)
    made = origin(described(run, "mine", 1, 1), replace(federation, groups=np.zeros(3, int)), net)
    with pytest.raises(UsageError, match="planted groups: changed"):
        check_origin(Path("checkpoint.safetensors"), made, now)


def test_nodes_send_groups_as_they_are_in_their_files(tmp_path: Path) -> None:
    flower = pytest.importorskip("umbel.flower.client", reason="the extra umbel[flower] is missing")
    federation = one_each([0, 1, 2, 3])
    found = []
    for number, clients in enumerate(([0, 1], [2, 3])):
        federation.pick(clients).save(tmp_path / str(number))
        config = {"data": str(tmp_path / str(number))}
        found += flower.site_clients(SimpleNamespace(node_config=config)).groups.tolist()
    assert found == [0, 1, 2, 3]


def test_groups_of_others_are_not_taken_over(tmp_path: Path) -> None:
    one_each([0, 1]).save(tmp_path)
    for file in tmp_path.glob("*.npz"):
        file.unlink()
    unknown = umbel.Federation.from_arrays([([[1.0], [2.0]], [0, 1])], names=["a"])
    with pytest.raises(UsageError, match=r"groups\.csv.* is not there for these clients"):
        unknown.save(tmp_path)


def test_a_file_of_groups_or_attributes_made_by_hand_is_not_replaced(tmp_path: Path) -> None:
    federation = replace(one_each([0, 1, 0]), attributes={"city": ("x", "y", "z")})
    for name in ("groups.csv", "attributes.csv"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("client,group\na,warm\nb,cold\nc,cold\n")
        with pytest.raises(UsageError, match=rf"{name}' is not what these clients are saved with"):
            federation.save(folder)
        assert [file.name for file in folder.iterdir()] == [name]
        (folder / name).unlink()
        federation.save(folder)
        for file in folder.glob("*.npz"):
            file.unlink()
        federation.save(folder)


def test_a_file_of_groups_that_is_right_stays_as_it_is(tmp_path: Path) -> None:
    by_hand = b"a,0\r\nb,1\r\nc,0"
    (tmp_path / "groups.csv").write_bytes(by_hand)
    one_each([0, 1, 0]).save(tmp_path)
    assert (tmp_path / "groups.csv").read_bytes() == by_hand


def test_a_save_that_fails_leaves_nothing_of_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0.partial").touch()
    (tmp_path / "groups.csv").write_bytes("a,5\nb,6\nc,é".encode()[:-1])
    federation, plain = one_each([0, 1, 0]), np.savez

    def full(*_: Any, **__: Any) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        federation.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(np, "savez", plain)
    federation.save(tmp_path)


@pytest.mark.parametrize("grouped", [True, False])
def test_an_interrupted_save_is_not_read_as_fewer_clients(
    grouped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = np.savez
    written: list[Any] = []

    def once(file: Any, **arrays: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(file)
        plain(file, **arrays)

    whole = one_each([0, 1, 0])
    federation = whole if grouped else replace(whole, groups=None)
    monkeypatch.setattr(np, "savez", once)
    with pytest.raises(KeyboardInterrupt):
        federation.save(tmp_path / "some")
    with pytest.raises(UsageError, match=r"some"):
        umbel.scenario("folder", path=str(tmp_path / "some"))
    monkeypatch.setattr(np, "savez", plain)
    federation.save(tmp_path / "some")
    assert umbel.scenario("folder", path=str(tmp_path / "some")).num_clients == 3


def test_a_save_interrupted_among_its_last_steps_leaves_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.replace

    def until_the_second(file: Path, to: Path) -> Path:
        if file.name == "1.partial":
            raise KeyboardInterrupt
        return plain(file, to)

    monkeypatch.setattr(Path, "replace", until_the_second)
    with pytest.raises(KeyboardInterrupt):
        one_each([0, 1, 0]).save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "replace", plain)
    one_each([0, 1, 0]).save(tmp_path)
    assert umbel.scenario("folder", path=str(tmp_path)).num_clients == 3


def test_two_processes_that_save_the_same_clients_leave_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, federation = np.savez, one_each([0, 1, 0])
    with ThreadPoolExecutor() as others:
        second: list[Future[None]] = []

        def beside(file: Any, **arrays: Any) -> None:
            if not second:
                second.append(others.submit(federation.save, tmp_path))
                wait(second, timeout=0.2)  # it can't end before this one
            plain(file, **arrays)

        monkeypatch.setattr(np, "savez", beside)
        federation.save(tmp_path)
        second[0].result(timeout=60)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"a.npz", "b.npz", "c.npz", "groups.csv"}


def test_what_a_killed_save_left_is_not_read_as_fewer_clients(tmp_path: Path) -> None:
    federation = one_each([0, 1, 0])
    federation.save(tmp_path)
    max(tmp_path.glob("*.npz")).rename(tmp_path / "2.partial")
    for read in (lambda: umbel.scenario("folder", path=str(tmp_path)),
                 lambda: federation.save(tmp_path)):  # fmt: skip
        with pytest.raises(UsageError, match=r"holds 2\.partial of a save that did not end; empty"):
            read()
    for file in tmp_path.glob("*.npz"):
        file.unlink()
    federation.pick([0, 1]).save(tmp_path)
    assert umbel.scenario("folder", path=str(tmp_path)).num_clients == 2


@pytest.mark.parametrize("offset", [0.0, 5.4e6, 1.7e9])
def test_a_signal_survives_a_large_offset(offset: float) -> None:
    steps = np.random.default_rng(0).normal(0, 0.14, (400, 1)) + offset
    cut = Cut(20, 20, "most", (0.0, 0.25))
    parts = cut(steps, np.arange(400) // 20 % 2, np.zeros(400, dtype=np.int64), "a")
    clients = {name: [windows] for name, windows in parts.items()}
    made = federation_of(clients, ["a"], scale=True, num_classes=2, attributes={})
    assert made.train.x.dtype == torch.float32
    assert float(made.train.x.std()) == pytest.approx(1, abs=0.01)
    assert len(np.unique(made.train.x.numpy())) > 290


def test_every_group_has_a_client() -> None:
    shift = {"name": "rotate", "angles": [0, 90]}
    with pytest.raises(
        UsageError, match=r"shares: 1\.0 is not enough for a client of group 0 among"
    ):
        umbel.scenario("shifted", clients=20, shares=[1, 40], shift=shift)


def test_corners_of_turned_images_are_black_however_pixels_are_scaled() -> None:
    shift = {"name": "rotate", "angles": [45]}
    plain = umbel.scenario("shifted", clients=1, shift=shift)
    scaled = umbel.scenario("shifted", clients=1, shift=shift, normalise=[0.3, 0.5])
    torch.testing.assert_close(scaled.train.x, (plain.train.x - 0.3) / 0.5)
    assert float(plain.train.x[:, 0, 0, 0].abs().max()) == 0


datasets = pytest.importorskip("datasets", reason="the extra umbel[data] is not installed")
pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")


def pictures(
    folder: Path, split: str, names: list[str], owners: list[Any] | None = None, side: int = 8
) -> None:
    """Images of one shade each, whose classes have these names."""
    from PIL import Image

    labels = np.arange(12) % len(names)
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    columns: dict[str, Any] = {
        "image": [Image.fromarray(np.full((side, side), 20 * n, np.uint8)) for n in labels],
        "label": labels.tolist(),
    }
    if owners is not None:
        kinds["writer_id"], columns["writer_id"] = datasets.Value("string"), owners
    folder.mkdir(exist_ok=True)
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    made.to_parquet(str(folder / f"{split}.parquet"))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["dog", "cat", "ship"], "test_split: 'test' has other classes: 0 is 'cat' in the first"),
        (["dog", "ship"], "test_split: 'test' is not of 3 classes, as the first split: it has 2"),
    ],
)
def test_labels_of_the_test_mean_what_they_mean_in_training(
    names: list[str], said: str, tmp_path: Path
) -> None:
    pictures(tmp_path / "pets", "train", ["cat", "dog", "ship"])
    pictures(tmp_path / "pets", "test", names)
    settings: dict[str, Any] = {
        "source": "pets", "clients": 1, "shift": {"name": "rotate", "angles": [0]},
        "data_dir": tmp_path,
    }  # fmt: skip
    with pytest.raises(UsageError, match=said):
        umbel.scenario("shifted", test_split="test", **settings)
    if len(names) == 3:
        with pytest.raises(UsageError, match=r"split: 'train\+test' has other classes"):
            umbel.scenario("shifted", split="train+test", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "shifted", "shift": {"name": "rotate", "angles": [0]}},
        {"name": "overlapping-labels", "labels": [[0, 1]], "images_per_label": 2},
    ],
)
def test_images_of_the_test_have_the_shape_of_those_of_training(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    pictures(tmp_path / "pets", "train", ["cat", "dog"])
    pictures(tmp_path / "pets", "test", ["cat", "dog"], side=9)
    said = r"test_split: 'test' is not of images of shape \(1, 8, 8\), .* it has \(1, 9, 9\)"
    more: dict[str, Any] = {"source": "pets", "clients": 1, "data_dir": tmp_path}
    with pytest.raises(UsageError, match=said):
        umbel.scenario(test_split="test", **settings, **more)


@pytest.mark.parametrize("nobody", [None, ""])
def test_an_example_without_an_owner_is_refused(nobody: Any, tmp_path: Path) -> None:
    pictures(tmp_path / "own", "train", ["a", "b"], [nobody, "x", "y"] * 4)
    with pytest.raises(UsageError, match=r"source: row 1: writer_id: .* is not an owner"):
        umbel.scenario("femnist", source="own", clients=2, examples=(), data_dir=tmp_path)


def test_now_and_today_are_words(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "site": list("ab") * 20,
            "until": ["now", "now", "today", "today"] * 10,
            "y": ["p", "q"] * 20,
        }
    )
    table.to_csv(tmp_path / "now.csv", index=False)
    made = umbel.scenario("table", path=str(tmp_path / "now.csv"), client="site", target="y")
    assert made.encoding is not None
    assert made.encoding.features == ("until is now", "until is today")  # type: ignore[union-attr]


def test_texts_are_texts_however_a_file_stores_them(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    kinds = (pa.string(), pa.large_string(), pa.string_view(), None)
    for name, kind in zip("abcd", kinds, strict=True):
        words = pa.array(["p", "q"] * 5, pa.string())
        words = words.dictionary_encode() if kind is None else words.cast(kind)
        columns = {"x": pa.array(np.arange(10.0)), "y": words}
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    made = umbel.scenario("table", path=str(tmp_path), target="y")
    assert made.names == ("a", "b", "c", "d")
    assert made.num_classes == 2


def test_rows_that_nobody_keeps_are_not_asked_for(tmp_path: Path) -> None:
    table = pd.DataFrame({"site": list("ab") * 20, "x": np.arange(40.0), "y": ["p", "q"] * 20})
    table.to_csv(tmp_path / "few.csv", index=False)
    with pytest.raises(UsageError, match="least_rows: 6 is not at most train_rows = 5"):
        umbel.scenario(
            "table", path=str(tmp_path / "few.csv"), client="site", target="y",
            train_rows=5, least_rows=6,
        )  # fmt: skip
