"""Own data in every form that people have: what it becomes, and what is refused and how."""

from __future__ import annotations

import re
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
        TABLE.astype({"age": object}),
        list(TABLE.to_numpy()),
        [torch.tensor(row, requires_grad=True) for row in TABLE.to_numpy()],
        torch.tensor(TABLE.to_numpy(), requires_grad=True),
        TABLE.to_numpy().astype(">f8"),
        TABLE.to_numpy()[::-1][::-1],
        np.flip(np.flip(TABLE.to_numpy())),
        np.ma.masked_array(TABLE.to_numpy(), mask=False),
        TABLE.set_index(pd.Index([9, 9, 8, 7])),
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
        Y.astype(np.uint8),
        Y.astype(object),
        torch.tensor(Y, dtype=torch.int32),
        [torch.tensor(label) for label in Y],
        pd.Series(Y),
        pd.Series(Y, name="label").to_frame(),
        pd.Series(Y, dtype="Int64"),
        pd.Series(Y, dtype=object),
        pd.Series(Y, index=[3, 3, 3, 3]),
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


def test_yes_and_no_of_arrow_are_taken_as_those_of_pandas() -> None:
    pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")
    positive = pd.Series(Y > 0, dtype="bool[pyarrow]")
    federation = built(positive.to_frame("positive"), positive)
    assert federation.train.x.tolist() == [[0], [1], [1], [0]]
    assert federation.train.y.tolist() == [0, 1, 1, 0]


def test_columns_of_whole_numbers_and_of_yes_and_no_are_inputs_as_others() -> None:
    x = pd.DataFrame({"count": [1, 2, 3, 4], "smokes": [True, False, True, False]})
    assert built(x).train.x.tolist() == [[1, 1], [2, 0], [3, 1], [4, 0]]
    assert built(x).train.x.dtype == torch.float32


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
        (GAP.convert_dtypes(), "client Ava: x, column 'age': row 1 is missing"),
        (GAP.astype(object), "client Ava: x, column 'age': row 1 is missing"),
        (GAP.to_numpy(), "client Ava: x, column 0: row 1 is NaN"),
        (GAP.to_numpy().tolist(), "client Ava: x, column 0: row 1 is NaN"),
        (GAP.astype(object).to_numpy(), "client Ava: x, column 0: row 1 is missing"),
        (GAP.fillna(np.inf), "client Ava: x, column 'age': row 1 is infinite"),
        (GAP["age"], "client Ava: x, column 'age': row 1 is missing"),
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
            TABLE.assign(city=pd.Series([1, 2, "1234", 3], dtype=object)),
            "client Ava: x, column 'city', row 2: 'str' is not a type of numbers",
        ),
        (
            TABLE.assign(born=pd.Timestamp("1234-05-06")),
            "client Ava: x, column 'born': 'datetime64",
        ),
        (np.array([[1, "1234"]] * 4, dtype=object), "client Ava: x, column 1, row 0: 'str' is not"),
        (TABLE[[]], "client Ava: x: a table without columns"),
        ([[1.0, SECRET], [1.0]] * 2, "client Ava: x: examples have shapes (1,) and (2,), but"),
        (
            [np.ones(2), np.ones(3), np.ones(4), np.ones(5)],
            "client Ava: x: examples have shapes (2,)",
        ),
        (
            [torch.ones(n) for n in (2, 3, 2, 2)],
            "client Ava: x: examples have shapes (2,) and (3,)",
        ),
        (
            np.array([np.ones(2), np.ones(3)] * 2, dtype=object),
            "client Ava: x: examples have shapes (2,) and (3,), but all must have the same; pad",
        ),
        (sparse.csr_array(X), "client Ava: x: 'csr_array' is not dense: write x.toarray()"),
        (torch.tensor(X).to_sparse(), "client Ava: x: 'torch.sparse_coo' is not dense: write"),
        (np.ma.masked_greater(X, 0), "client Ava: x: 'MaskedArray' is not without gaps"),
        (torch.tensor(X).to(torch.float8_e4m3fn), "client Ava: x: 'torch.float8_e4m3fn' is not a"),
        (torch.tensor(X).to(torch.float8_e5m2), "client Ava: x: 'torch.float8_e5m2' is not a type"),
        (
            torch.tensor([2**64 - 1] * 4, dtype=torch.uint64),
            "client Ava: x: 'torch.uint64 beyond 2^63 - 1' is not a type of numbers",
        ),
        (
            pd.Series([2**64 - 1] * 4, dtype="uint64", name="a"),
            "client Ava: x, column 'a': 'uint64 beyond 2^63 - 1' is not a type of numbers",
        ),
        ([[2**70]] * 4, "client Ava: x: 'whole numbers beyond 2^63 - 1' is not a type of numbers"),
        ([[10**400, 0.5]] * 4, "client Ava: x: a number is beyond double precision"),
        ({"a": 1}, "client Ava: x: 'dict' is not a type of numbers"),
        (None, "client Ava: x: 'NoneType' is not a type of numbers"),
        ({SECRET}, "client Ava: x: 'set' is not a type of numbers"),
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
        (
            pd.Series(WORDS, name="city").to_frame(),
            (
                "client Ava: y, column 'city': 'str' is not a type of numbers",
                "client Ava: y, column 'city', row 0: 'str' is not a type of numbers",  # pandas 2
            ),
        ),
        (pd.Series([0, 1, None, 2], dtype="Int64"), "client Ava: y: row 2 is missing"),
        (torch.tensor(Y).to(torch.float8_e4m3fn), "client Ava: y: 'torch.float8_e4m3fn' is not a"),
        (
            torch.tensor([2**64 - 1] * 4, dtype=torch.uint64),
            "client Ava: y: 'torch.uint64 beyond 2^63 - 1' is not a type of numbers",
        ),
    ],
)
def test_labels_that_are_no_numbers_of_classes_are_refused(
    y: Any, message: str | tuple[str, str]
) -> None:
    assert refusal(X, y).startswith(message)


def test_masked_values_in_lists_are_refused() -> None:
    row = np.ma.array([SECRET, 1.0], mask=[True, False])
    cells = np.empty(4, dtype=object)
    cells[:] = [row] * 4
    for x in ([row] * 4, [[row, row]] * 4, cells, pd.DataFrame({"pair": cells})):
        assert "without gaps: fill them in" in refusal(x)
    assert built([np.ma.array(row.data, mask=False)] * 4).train.x.tolist() == [[SECRET, 1.0]] * 4


def test_the_advice_for_words_works() -> None:
    classes = sorted(set(WORDS))
    assert "y = [classes.index(name) for name in y]" in refusal(X, WORDS)
    assert built(X, [classes.index(name) for name in WORDS]).num_classes == 2


def test_zeros_and_ones_are_taken() -> None:
    several = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]])
    assert built(X, several).num_classes == 2
    steps = np.eye(3, dtype=int)[Y]  # one word of three is marked, and two classes are meant
    assert built(X, steps, num_classes=2).train.y.shape == (4, 3)


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


@pytest.mark.parametrize("index", [[1, 2, 3, 4], [0, 2, 5, 7], [3, 4, 5, 6], [0, 0, 1, 9]])
def test_targets_of_which_only_some_are_of_rows_of_x_are_refused(index: list[int]) -> None:
    labels = pd.Series(Y, index=index)
    said = refusal(TABLE, labels)
    assert "rows of y are not rows of x, by their index" in said
    assert "y.reset_index(drop=True)" in said
    assert built(TABLE, labels.reset_index(drop=True)).num_classes == 3


@pytest.mark.parametrize(
    ("of_x", "of_y"), [([0, 0, 1, 1], [0, 1, 0, 1]), ([0, 1, 2, 3], [0, 0, 0, 0])]
)
def test_labels_of_rows_that_repeat_in_another_order_are_refused(
    of_x: list[int], of_y: list[int]
) -> None:
    x, y = TABLE.set_index(pd.Index(of_x)), pd.Series(Y, index=of_y)
    said = refusal(x, y)
    assert "Ava: labels of rows repeat, and x and y differ in them, by their index" in said
    assert "y.reset_index(drop=True)" in said
    assert built(x.reset_index(drop=True), y.reset_index(drop=True)).num_classes == 3
    assert built(x, pd.Series(Y, index=of_x)).num_classes == 3


def test_targets_whose_index_has_nothing_of_that_of_x_are_taken_row_by_row() -> None:
    assert built(TABLE, pd.Series(Y, index=[*"abcd"])).num_classes == 3


@pytest.mark.parametrize(
    ("train", "settings", "message"),
    [
        (TABLE, {}, "train: 'DataFrame' is not a list, with an entry for each client"),
        (X, {}, "train: 'ndarray' is not a list, with an entry for each client"),
        (torch.tensor(X), {}, "train: 'Tensor' is not a list, with an entry for each client"),
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
        ({"Ava": (X, Y)}, {"test": {}}, "test: lacks Ava: it needs one entry"),
        ({"Ava": (X, Y)}, {"test": {"Ava": (X, Y), "Eve": 1}}, "test: names Eve, not in train: it"),
        ({"Ava": (X, Y)}, {"test": TABLE}, "test: 'DataFrame' is not a list or a mapping by"),
        ({"Ava": (X, Y)}, {"groups": TABLE}, "groups: 'DataFrame' is not a list or a mapping by"),
        ([(X, Y)] * 2, {"groups": [[0, 1], [1, 0]]}, "groups: client 0: 'list' is not one group"),
        ([(X, Y)] * 2, {"groups": np.eye(2)}, "groups: client 0: 'ndarray' is not one group"),
    ],
)
def test_clients_that_are_no_pairs_are_refused(
    train: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        Federation.from_arrays(train, **settings)
    assert str(refused.value).startswith(message)
    assert "1234" not in str(refused.value)


def test_labels_of_some_and_numbers_of_others_are_told_from_sequences() -> None:
    with pytest.raises(UsageError, match=r"client 1: .* with labels .*; y must be whole numbers"):
        Federation.from_arrays([(np.ones((4, 2)), np.ones(4)), (np.ones((4, 2)), Y)])


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


def test_a_series_that_names_clients_is_by_name_whatever_its_order() -> None:
    train = {"west": (X, Y), "east": (X, Y), "mid": (X, Y)}
    kinds = pd.Series({"east": "cold", "mid": "cold", "west": "warm"})  # as a groupby orders it
    found = Federation.from_arrays(train, groups=kinds, attributes={"kind": kinds})
    assert found.groups is not None
    assert found.groups.tolist() == [1, 0, 0]
    assert found.attributes["kind"] == ("warm", "cold", "cold")
    for wrong, said in [
        (kinds.iloc[:2], "groups: lacks west: it needs one entry"),
        (kinds.rename({"mid": "centre"}), "groups: lacks mid and names centre, not in train"),
        (kinds.rename({"mid": "east"}), "groups: index: 'east' is not unique"),
        (kinds.rename(str.upper), "groups: index: 'EAST, MID, WEST' is not clients' names"),
    ]:
        with pytest.raises(UsageError, match="^" + re.escape(said)):
            Federation.from_arrays(train, groups=wrong)
    in_their_order = Federation.from_arrays(train, groups=kinds.reset_index(drop=True))
    assert in_their_order.groups is not None
    assert in_their_order.groups.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "mask", [[True, False], np.array([True, False]), torch.tensor([True, False])], ids=type
)
def test_a_mask_is_no_numbers_of_clients(mask: Any) -> None:
    found = Federation.from_arrays([(X, Y)] * 2)
    with pytest.raises(UsageError, match="clients: 'truth values' is not numbers of clients"):
        found.pick(mask)
    assert found.pick(n for n in (1,)).names == ("1",)


def test_no_two_clients_have_one_name() -> None:
    with pytest.raises(UsageError, match="names: 'Ava' is not the name of only one client"):
        Federation.from_arrays([(X, Y), (X, Y)], names=["Ava", "Ava"])


@pytest.mark.parametrize(("half", "whole"), [(torch.float16, 70_000), (torch.bfloat16, 257)])
def test_whole_numbers_beside_half_precision_keep_their_values(
    half: torch.dtype, whole: int
) -> None:
    x = torch.zeros(8, 2)
    x[0] = whole
    clients = [(torch.ones(8, 2, dtype=half), [0, 1] * 4), (x.long(), [0, 1] * 4)]
    federation = Federation.from_arrays(clients, test_fraction=0.5)
    assert whole in torch.cat([federation.train.x, federation.test.x]).flatten().tolist()


def test_a_tensor_without_values_is_refused() -> None:
    with pytest.raises(UsageError, match="client 0: x: 'a tensor on the meta device' is not"):
        built(torch.empty(4, 2, device="meta"))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_of_tensors_of_several_shapes_is_refused() -> None:
    with pytest.raises(UsageError, match="client 0: x: 'a nested tensor' is not one block"):
        built(torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]))
