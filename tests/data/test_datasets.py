"""Datasets of torch and of Hugging Face as clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

from umbel.checks import UsageError
from umbel.data.federation import Federation

X, Y = torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 2, 0])


class Pairs(Dataset[Any]):
    """Whatever it is given, as examples."""

    def __init__(self, *examples: Any) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, place: int) -> Any:
        return self.examples[place]


class Stream(IterableDataset[Any]):
    """Examples without numbers."""

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(X, Y, strict=True))


def test_examples_of_numbers_arrays_and_names_are_taken() -> None:
    rows = list(zip(X.tolist(), Y.tolist(), strict=True))
    arrays = Pairs(*[(np.array(x, dtype=np.float32), y) for x, y in rows])
    named = Pairs(*[{"x": x, "y": y, "who": "nobody"} for x, y in rows])
    renamed = Pairs(*[{"pixels": x, "label": y} for x, y in rows])
    for datasets, settings in (
        ([TensorDataset(X, Y)], {}),
        ([Pairs(*rows)], {}),
        ({"0": arrays}, {}),
        ([named], {}),
        ([renamed], {"columns": ("pixels", "label")}),
    ):
        federation = Federation.from_datasets(datasets, datasets, **settings)  # type: ignore[arg-type]
        assert federation.train.x.tolist() == X.tolist()
        assert federation.test.y.tolist() == Y.tolist()
        assert federation.names == ("0",)


def test_splits_of_hugging_face_are_no_clients() -> None:
    datasets = pytest.importorskip("datasets", reason="the extra umbel[data] is not installed")
    one = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()})
    splits = datasets.DatasetDict(train=one, test=one)
    with pytest.raises(
        UsageError, match=r"^train: train, test are splits of one data set, .* test="
    ):
        Federation.from_datasets(splits)
    several = datasets.DatasetDict(train=one, test_matched=one)
    with pytest.raises(UsageError, match="train, test_matched are splits"):
        Federation.from_datasets(several)
    clients = datasets.DatasetDict(north=one, south=one)
    assert Federation.from_datasets(clients).names == ("north", "south")


def test_each_clients_own_splits_are_kept() -> None:
    parts = [TensorDataset(X + n, Y) for n in range(3)]
    names = ("train", "test", "validation")
    by_name: dict[str, object] = dict(zip(names, parts, strict=True))
    alike = dict(zip(("Training", "test", "val"), parts, strict=True))
    for entry, validated in ((by_name, True), (alike, True), ((parts[0], parts[1]), False)):
        made = Federation.from_datasets({"a": entry, "b": entry})
        assert made.train.of(1)[0].tolist() == X.tolist()
        assert made.test.of(1)[0].tolist() == (X + 1).tolist()
        assert (made.validation is not None) == validated
    with pytest.raises(
        UsageError, match=r"client b: 'no splits' is not train, test, valid.* as oth"
    ):
        Federation.from_datasets({"a": by_name, "b": parts[0]})
    with pytest.raises(UsageError, match="test: 'given twice' is not given once"):
        Federation.from_datasets({"a": by_name}, {"a": parts[0]})
    with pytest.raises(
        UsageError, match=r"splits of a client: \['more'\] is not any of train, test"
    ):
        Federation.from_datasets({"a": by_name | {"more": parts[0]}})
    with pytest.raises(UsageError, match="is not one for each of train, test, validation"):
        Federation.from_datasets({"a": by_name | {"val": parts[0]}})


class Flipped(Pairs):
    """Examples that a transform flips at random, as those of torchvision do."""

    def __getitem__(self, place: int) -> Any:
        x, y = self.examples[place]
        return (x.flip(-1) if torch.rand(()) < 0.5 else x), y


def test_random_transforms_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    images = torch.rand(40, 1, 4, 4)
    examples = list(zip(images, torch.arange(40) % 2, strict=True))
    whole, plain = Flipped(*examples), Pairs(*examples)
    train, test = random_split(whole, [30, 10])
    Federation.from_datasets({"a": train, "b": plain}, {"a": test, "b": plain})
    first, second = caplog.messages
    assert first.startswith("train examples of client a: reading them twice gives different ones")
    assert "augment in the module's forward" in first
    assert second.startswith("test examples of client a: ")
    assert "random_split or Subset" in second
    caplog.clear()
    Federation.from_datasets([plain], [plain])
    assert not caplog.messages


def test_datasets_of_hugging_face_are_taken_with_their_images() -> None:
    datasets = pytest.importorskip("datasets", reason="the extra umbel[data] is not installed")
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    table = {"image": [image.fromarray(p) for p in pixels], "label": [1, 0]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    client = datasets.Dataset.from_dict(table, features)
    found = Federation.from_datasets([client], [client], columns=("image", "label"))
    assert found.train.x.tolist() == pixels.tolist()
    assert found.train.x.dtype == torch.float32
    as_tensors = client.with_format("torch")
    same = Federation.from_datasets([as_tensors], [as_tensors], columns=("image", "label"))
    assert same.train.x.flatten().tolist() == found.train.x.flatten().tolist()
    assert same.train.y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "client 0: 'Stream' is not a map-style dataset, with a length and examples by"),
        (DataLoader(TensorDataset(X, Y)), "client 0: 'DataLoader' is not a map-style dataset"),
        ({"north": TensorDataset(X, Y)}, "client 0: 'dict' is not one dataset: choose one of"),
        (Pairs(1.5), "client 0: an example of the dataset is a float, not a pair (x, y)"),
        (Pairs((X, Y, Y)), "client 0: an example of the dataset is a tuple of 3, not a pair (x, y"),
        (Pairs({"image": 1, "label": 2}), "client 0: columns: 'x' is not any of 'image', 'label'"),
        (Pairs(("1234", 1)), "client 0: x: '<U4' is not a type of numbers"),
        (Pairs((X[0], 1), (X[0, :1], 0)), "client 0: x: examples have shapes (1,) and (2,), but"),
        (Pairs(), "client 0: 0 is not a positive number of training examples"),
    ],
)
def test_what_gives_no_examples_is_refused(dataset: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Federation.from_datasets([dataset], test_fraction=0)
    assert str(refused.value).startswith(message)


def test_what_a_dataset_raises_says_which_example_of_whom_it_was() -> None:
    class Missing(Pairs):
        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise FileNotFoundError("no file 7.png")
            return super().__getitem__(index)

    whole, missing = (kind((X[0], 0), (X[1], 1)) for kind in (Pairs, Missing))
    with pytest.raises(FileNotFoundError, match=r"no file 7\.png") as raised:
        Federation.from_datasets({"Ava": whole, "Ben": missing})
    assert raised.value.__notes__ == ["This was example 1 of client Ben."]


class Named(Pairs):
    """A site's folder of images, as of torchvision: its classes are the folders that are there."""

    def __init__(self, *classes: str, targets: tuple[int, ...] | None = None) -> None:
        labels = range(len(classes)) if targets is None else targets
        super().__init__(*[(torch.ones(2) * n, label) for n, label in enumerate(labels)])
        self.classes = list(classes)


FULL = Named("ant", "bee", "cat")


@pytest.mark.parametrize(
    "other",
    [
        Named("bee", "cat"),
        Named("cat", "bee", "ant"),
        Subset(Named("bee", "cat"), [1]),
        ConcatDataset([FULL, Named("bee", "cat")]),
        {"train": FULL, "test": Named("bee", "cat")},
    ],
)
def test_classes_with_other_numbers_at_one_client_are_refused(other: Any) -> None:
    first = {"train": FULL, "test": FULL} if isinstance(other, dict) else FULL
    with pytest.raises(UsageError) as refused:
        Federation.from_datasets({"north": first, "south": other})
    assert "classes: client north has ant, bee, cat, and client south " in str(refused.value)
    assert " is label " in str(refused.value)


def test_classes_of_hugging_face_with_other_numbers_are_refused() -> None:
    datasets = pytest.importorskip("datasets", reason="the extra umbel[data] is not installed")

    def site(names: list[str]) -> Any:
        kind = {"x": datasets.Sequence(datasets.Value("float32"))}
        features = datasets.Features(kind | {"kind": datasets.ClassLabel(names=names)})
        rows = {"x": X.tolist(), "kind": Y.tolist()}
        return datasets.Dataset.from_dict(rows, features=features)

    sites = [site(["a", "b", "c"]), site(["c", "b", "a"])]
    with pytest.raises(UsageError, match=r"client 0 has a, b, c, and client 1 c, b, a, so that"):
        Federation.from_datasets(sites, columns=("x", "kind"))


def test_classes_of_another_task_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Federation.from_datasets([FULL, Named("shoe", "shirt", "hat")])
    assert "client 0 has ant, bee, cat, and client 1 shoe, shirt, hat: do equal" in caplog.text


def test_classes_that_number_no_labels_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    there = Named("bee", "cat", targets=(1, 2))  # those that occur, with labels as elsewhere
    mapped: Any = Named("bee", "cat", targets=(1,))
    mapped.target_transform = lambda label: label + 1
    fewer = Named("ant", "bee")  # without the last
    worded = Named("bee", "cat", targets=(1, 2))
    worded.classes = [1, 2]  # type: ignore[list-item]
    Federation.from_datasets([FULL, there, mapped, fewer, worded])
    assert "classes" not in caplog.text
