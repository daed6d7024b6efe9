"""Own data in every form that people have: what it becomes, and what is refused and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from umbel.checks import UsageError
from umbel.data.federation import Federation

pd = pytest.importorskip("pandas", reason="pandas is not installed")

SECRET = 1234.5
X = np.full((4, 2), SECRET, dtype=np.float32)
Y = np.array([0, 1, 2, 0])


def built(x: Any, y: Any = Y, **settings: Any) -> Federation:
    return Federation.from_arrays([(x, y)], [(x, y)], **settings)


def refusal(x: Any, y: Any = Y, **settings: Any) -> str:
    """The message, which holds no example."""
    with pytest.raises(UsageError) as refused:
        Federation.from_arrays({"Ava": (x, y)}, test_fraction=0, **settings)
    assert "1234" not in str(refused.value)
    return str(refused.value)


TABLE = pd.DataFrame({"age": [1, 2, 3, 4], "weight": [0.5, 1.5, 2.5, 3.5]})


@pytest.mark.parametrize(
    "x",
    [
        TABLE,
        TABLE.to_numpy(),
        TABLE.to_numpy().tolist(),
        TABLE.to_numpy().astype(object),
        TABLE.convert_dtypes(),
        TABLE.astype({"age": "uint8", "weight": "Float32"}),
        [torch.tensor(row, requires_grad=True) for row in TABLE.to_numpy()],
        torch.tensor(TABLE.to_numpy(), requires_grad=True),
        TABLE.to_numpy()[::-1][::-1],
    ],
    ids=lambda x: f"{type(x).__name__}-{getattr(x, 'dtype', '')}",
)
def test_the_same_numbers_in_any_form_are_the_same_inputs(x: Any) -> None:
    federation = built(x)
    assert federation.train.x.tolist() == TABLE.to_numpy().tolist()
    assert federation.train.x.is_floating_point()
    assert not federation.train.x.requires_grad


@pytest.mark.parametrize(
    "y",
    [
        Y,
        Y.tolist(),
        Y[:, None],
        torch.tensor(Y, dtype=torch.int32),
        [torch.tensor(label) for label in Y],
        pd.Series(Y),
        pd.Series(Y, name="label").to_frame(),
        pd.Series(Y, dtype="Int64"),
    ],
    ids=lambda y: f"{type(y).__name__}-{getattr(y, 'dtype', '')}",
)
def test_the_same_labels_in_any_form_are_the_same_classes(y: Any) -> None:
    federation = built(X, y)
    assert federation.train.y.tolist() == Y.tolist()
    assert federation.num_classes == 3


def test_yes_and_no_are_two_classes() -> None:
    for y in (Y > 0, (Y > 0).tolist(), pd.Series(Y > 0), pd.Series(Y > 0, dtype="boolean")):
        federation = built(X, y)
        assert federation.train.y.tolist() == [0, 1, 1, 0]
        assert federation.num_classes == 2


def test_one_number_an_example_is_one_input_and_one_token_stays_a_token() -> None:
    for x in (X[:, 0], X[:, 0].tolist(), pd.Series([1, 2, 3, 4])):
        assert built(x).input_shape == (1,)
    assert built(np.array([5, 6, 7, 8])).input_shape == ()


def test_floats_are_regression_even_where_they_are_whole() -> None:
    federation = built(X, Y.astype(float))
    assert federation.num_classes is None
    assert repr(federation).endswith("regression of one value")
    several = built(X, pd.DataFrame({"a": [0.5, 1, 2, 3], "b": [1, 2, 3, 4]}))
    assert several.train.y.shape == (4, 2)


def test_clients_may_be_a_mapping_or_any_iterable() -> None:
    train = {"Ava": (X, Y), 7: (X[:2], Y[:2])}
    test = {"7": (X[:1], Y[:1]), "Ava": (X[:3], Y[:3])}
    federation = Federation.from_arrays(train, test)  # type: ignore[arg-type]
    assert federation.names == ("Ava", "7")
    assert federation.test.sizes.tolist() == [3, 1]
    zipped = Federation.from_arrays(zip([X, X], [Y, Y], strict=True), test_fraction=0)  # type: ignore[arg-type]
    assert zipped.train.sizes.tolist() == [4, 4]


GAP = pd.DataFrame({"age": [SECRET, None, 2, 3], "weight": [1.0, 2, 3, 4]})
WORDS = ["Bern", "Rome", "Bern", "Rome"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (GAP, "client Ava: x, column 'age': row 1 is missing; fill it in, or leave that example"),
        (GAP.to_numpy(), "client Ava: x, column 0: row 1 is NaN"),
        (GAP.fillna(np.inf), "client Ava: x, column 'age': row 1 is infinite"),
        (
            TABLE.assign(city=WORDS),
            (
                "client Ava: x, column 'city': 'str' is not a type of numbers; write words and",
                "client Ava: x, column 'city', row 0: 'str' is not a type of numbers",  # pandas 2
            ),
        ),
        (
            TABLE.assign(city=pd.Series(WORDS, dtype="category")),
            "client Ava: x, column 'city': 'category' is not a type of numbers",
        ),
        (
            TABLE.assign(born=pd.Timestamp("1234-05-06")),
            "client Ava: x, column 'born': 'datetime64",
        ),
        ([[1.0, SECRET], [1.0]] * 2, "client Ava: x: examples have shapes (1,) and (2,), but"),
        (
            [torch.ones(n) for n in (2, 3, 2, 2)],
            "client Ava: x: examples have shapes (2,) and (3,)",
        ),
        (sparse.csr_array(X), "client Ava: x: 'csr_array' is not dense: write x.toarray()"),
        (np.ma.masked_greater(X, 0), "client Ava: x: 'MaskedArray' is not without gaps"),
        ([[2**70]] * 4, "client Ava: x: 'whole numbers beyond 2^63 - 1' is not a type of numbers"),
        ({"a": 1}, "client Ava: x: 'dict' is not a type of numbers"),
    ],
)
def test_inputs_that_are_no_numbers_are_refused_by_place(
    x: Any, message: str | tuple[str, str]
) -> None:
    assert refusal(x).startswith(message)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (WORDS, "client Ava: y: '<U4' is not a type of numbers; number the classes once for all"),
        (
            pd.Series(WORDS, name="city", dtype="category"),
            "client Ava: y, column 'city': 'category' is not a type of numbers; number the classes",
        ),
        (pd.Series([0, 1, None, 2], dtype="Int64"), "client Ava: y: row 2 is missing"),
    ],
)
def test_labels_that_are_no_numbers_of_classes_are_refused(y: Any, message: str) -> None:
    assert refusal(X, y).startswith(message)


def test_the_advice_for_words_works() -> None:
    classes = sorted(set(WORDS))
    assert "y = [classes.index(name) for name in y]" in refusal(X, WORDS)
    assert built(X, [classes.index(name) for name in WORDS]).num_classes == 2


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (TABLE[["weight", "age"]], "client Ben: x has its columns in another order, unlike x of"),
        (TABLE[["age"]], "client Ben: x lacks column 'weight', unlike x of client Ava"),
        (
            TABLE.rename(columns={"age": "years"}),
            "client Ben: x lacks column 'age' and has a column 'years', unlike x of client Ava",
        ),
    ],
)
def test_columns_that_differ_between_clients_are_refused(second: Any, message: str) -> None:
    for given in ({"train": {"Ava": (TABLE, Y), "Ben": (second, Y)}},
                  {"train": {"Ben": (TABLE, Y)}, "test": {"Ben": (second, Y)}}):  # fmt: skip
        with pytest.raises(UsageError) as refused:
            Federation.from_arrays(**given)  # type: ignore[arg-type]
        assert str(refused.value).startswith(message.replace("Ava", next(iter(given["train"]))))


def test_targets_in_another_order_of_rows_are_refused() -> None:
    labels = pd.Series(Y)
    assert "Ava: y has the rows of x in another order" in refusal(TABLE, labels[::-1])
    assert built(TABLE, labels[::-1].reset_index(drop=True)).num_classes == 3
    assert built(TABLE, labels.loc[TABLE.index]).num_classes == 3


@pytest.mark.parametrize("index", [[1, 2, 3, 4], [0, 0, 1, 9]])
def test_targets_of_which_only_some_are_of_rows_of_x_are_refused(index: list[int]) -> None:
    labels = pd.Series(Y, index=index)
    said = refusal(TABLE, labels)
    assert "rows of y are not rows of x, by their index" in said
    assert "y.reset_index(drop=True)" in said
    assert built(TABLE, labels.reset_index(drop=True)).num_classes == 3


@pytest.mark.parametrize(
    ("train", "settings", "message"),
    [
        (TABLE, {}, "train: 'DataFrame' is not a list, with an entry for each client"),
        (X, {}, "train: 'ndarray' is not a list, with an entry for each client"),
        ([TABLE], {}, "client 0: 'DataFrame' is not a pair (x, y)"),
        ([(X, Y, X)], {}, "client 0: 'tuple of 3' is not a pair (x, y)"),
        ((X, Y), {}, "client 0: 'ndarray' is not a pair (x, y)"),
        (
            [torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))],
            {},
            "client 0: 'TensorDataset' is not a pair (x, y); for datasets write umbel.Federation.",
        ),
        (
            {"Ava": (X, Y)},
            {"test": {"Ben": (X, Y)}},
            "test: lacks Ava and names Ben, not in train: it needs one entry for each client",
        ),
        ({"Ava": (X, Y)}, {"test": TABLE}, "test: 'DataFrame' is not a list or a mapping by"),
        ({"Ava": (X, Y)}, {"groups": TABLE}, "groups: 'DataFrame' is not a list or a mapping by"),
        ([(X, Y)] * 2, {"groups": [[0, 1], [1, 0]]}, "groups: client 0: 'list' is not one group"),
    ],
)
def test_clients_that_are_no_pairs_are_refused(
    train: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        Federation.from_arrays(train, **settings)
    assert str(refused.value).startswith(message)
    assert "1234" not in str(refused.value)


def test_sequences_that_each_client_padded_for_itself_are_refused() -> None:
    with pytest.raises(UsageError, match="if these are sequences, pad all clients' to one length"):
        Federation.from_arrays([(np.ones((4, 12)), Y), (np.ones((4, 57)), Y)])


def test_groups_are_numbers_or_words_in_a_list_or_by_name() -> None:
    train = {"Ava": (X, Y), "Ben": (X, Y), "Cleo": (X, Y)}
    for groups in (["b", "a", "b"], {"Cleo": "b", "Ben": "a", "Ava": "b"}, pd.Series([1, 0, 1])):
        found = Federation.from_arrays(train, groups=groups)
        assert found.groups is not None
        assert found.groups.tolist() == [1, 0, 1]
    with pytest.raises(UsageError, match="groups: lacks Ava and names Eve, not in train"):
        Federation.from_arrays(train, groups={"Eve": 0, "Ben": 1, "Cleo": 1})


def test_no_two_clients_have_one_name() -> None:
    with pytest.raises(UsageError, match="names: 'Ava' is not the name of only one client"):
        Federation.from_arrays([(X, Y), (X, Y)], names=["Ava", "Ava"])
