"""Inputs and labels that clients write in ways of their own: refused, or warned of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import umbel
from umbel.checks import UsageError
from umbel.data.federation import Federation

Images = NDArray[Any]
Y = np.arange(40) % 4
RNG = np.random.default_rng(0)


def images() -> Images:
    return RNG.random((40, 1, 8, 8), dtype=np.float32)


def stored() -> Images:
    return (255 * images()).astype(np.uint8)


def patients() -> Images:
    values: Images = RNG.normal([50, 75, 120], [10, 10, 20], size=(40, 3))
    return values


def coloured() -> Images:
    shade = np.array([0.2, 0.5, 0.8])[:, None, None]
    values: Images = 0.2 * RNG.random((40, 3, 3, 3)) + shade
    return np.asarray(values, dtype=np.float32)


def steps() -> Images:
    return RNG.normal(size=(40, 6, 6)) + np.arange(6)


def wards() -> Images:
    return RNG.random((40, 3)) * [1, 100, 1] + [0.01, 20, 0.01]


BEYOND = (
    r'whole numbers beyond 1, and that of .* give all on one scale, .*astype\("float32"\) / 255'
)


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (images, stored),
        (images, lambda: stored().astype(np.float32)),
    ],
)
def test_bytes_beside_fractions_are_refused(
    usual: Callable[[], Any], odd: Callable[[], Any]
) -> None:
    with pytest.raises(UsageError, match=f"^client b: x has {BEYOND}"):
        Federation.from_arrays({"a": (usual(), Y), "b": (odd(), Y), "c": (usual(), Y)})
    with pytest.raises(UsageError, match=r"^client a: x has fractions of at most 1, and that of "):
        Federation.from_arrays({"a": (usual(), Y), "b": (odd(), Y), "c": (odd(), Y)})


def test_tests_on_another_scale_than_training_are_refused() -> None:
    train = {"a": (images(), Y), "b": (images(), Y)}
    with pytest.raises(UsageError, match=f"^the test examples of client b: x has {BEYOND}"):
        Federation.from_arrays(train, {"a": (images(), Y), "b": (stored(), Y)})
    with pytest.raises(
        UsageError, match=r"^the test examples: x has whole .* the training examples"
    ):
        Federation.from_arrays(train, {name: (stored(), Y) for name in train})


@pytest.mark.parametrize(
    ("usual", "odd", "said"),
    [
        (images, lambda: images() > 0.5, "x is true or false, and that of clients a and c has"),
        (lambda: RNG.normal(size=(40, 6)), lambda: RNG.integers(0, 9, (40, 6)), "x is of whole"),
        (patients, lambda: RNG.normal(size=(40, 3)), "times as small as that of clients"),
        (images, lambda: (images() - 0.5) / 0.3, "x has many negative values, and that of"),
        (images, lambda: 2 * images() - 1, "are only some standardised, or scaled to -1 to 1?"),
        (images, lambda: 100 * images(), "times as large as that of clients"),
        (coloured, lambda: np.moveaxis(coloured(), 1, -1), "np.moveaxis(x, -1, 1)"),
        (steps, lambda: steps().swapaxes(1, 2), "the axes of x seem to be in another order"),
        (wards, lambda: wards() * [1, 1, 100], "column 2 is at least"),
    ],
)
def test_what_is_likely_to_mean_something_else_is_a_warning(
    usual: Callable[[], Any], odd: Callable[[], Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    Federation.from_arrays({"a": (usual(), Y), "b": (odd(), Y), "c": (usual(), Y)})
    (warning,) = caplog.messages
    assert warning.startswith("client b: ")
    assert said in warning


def test_targets_in_other_units_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    x, y = images(), RNG.random(40)
    Federation.from_arrays({"a": (x, y), "b": (x, 100 * y), "c": (x, y)})
    assert "client b: y is on average at least" in caplog.text


def test_labels_numbered_from_1_by_some_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Federation.from_arrays({"a": (images(), Y), "b": (images(), Y + 1), "c": (images(), Y)})
    said = "client b: labels go from 1 to 4, and those of clients a and c from 0 to 3"
    assert caplog.messages[0].startswith(said)
    assert "; if some clients just lack a class, nothing is wrong" in caplog.messages[0]


@pytest.mark.parametrize(
    "clients",
    [
        [(images(), Y), (images(), Y)],
        [(stored(), Y), (np.where(stored() > 127, 255, 0).astype(np.uint8), Y)],
        [([[1.5, 2.0]] * 40, Y), ([[1, 2]] * 40, Y)],  # the numbers are whole by chance
        [(np.zeros((40, 5)), Y), (RNG.random((40, 5)), Y)],
        [(RNG.normal(-9, 3, (40, 1)), Y), (RNG.normal(25, 3, (40, 1)), Y)],  # winter and summer
        [
            (RNG.normal([n, 50], [0.1, 2], (40, 2)), Y) for n in range(0, 8, 4)
        ],  # longitude, latitude
        [(RNG.normal([n, 50], [1, 9], (40, 2)), Y) for n in (0, 8, 40)],  # degrees
        [(images(), [0, 1] * 20), (images(), [1, 2] * 20), (images(), [0, 2] * 20)],
        [(images(), np.full(40, n % 2)) for n in range(6)],
        [(np.rot90(images() * np.linspace(0, 1, 8), n, (2, 3)), Y) for n in range(4)],
        [(RNG.normal(n, 1 + n, (40, 6)), Y) for n in range(4)],
    ],
)
def test_clients_that_differ_by_nature_are_no_alarm(
    clients: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Federation.from_arrays(clients)
    assert not caplog.messages


def test_axes_in_another_order_are_named_where_shapes_differ() -> None:
    x = RNG.random((40, 3, 8, 8))
    with pytest.raises(UsageError, match=r"np\.moveaxis\(x, -1, 1\) puts channels first"):
        Federation.from_arrays([(x, Y), (np.moveaxis(x, 1, -1), Y)])


def test_a_column_of_a_table_in_percent_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pyarrow", reason="the extra umbel[tables] is not installed")
    for name, factor in (("north", 1), ("south", 100), ("west", 1)):
        share = factor * RNG.random(60)
        rows = [f"{s:.3f},{a},{'yn'[a % 2]}" for s, a in zip(share, range(60), strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["share,age,stays", *rows]))
    umbel.scenario("table", path=str(tmp_path), target="stays")
    (warning,) = [said for said in caplog.messages if "share" in said and "times" in said]
    assert warning.startswith("client south: column 'share' is at least")
    assert "percent beside fractions" in warning


def test_a_column_of_a_table_that_one_site_has_standardised_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pyarrow", reason="the extra umbel[tables] is not installed")
    for name in ("north", "south", "west"):
        ages = RNG.integers(20, 80, 60)
        given = (ages - 50) / 17 if name == "south" else ages
        rows = [f"{g:.3f},{'yn'[a // 50]}" for g, a in zip(given, ages, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,stays", *rows]))
    umbel.scenario("table", path=str(tmp_path), target="stays")
    (warning,) = caplog.messages
    assert warning == (
        "client south: column 'age' has many negative values, and that of clients north and west "
        "none: are only some standardised, or scaled to -1 to 1? Give all on one scale"
    )
