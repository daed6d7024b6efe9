"""A table becomes a federation whose statistics are those of its training rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import umbel
from umbel.checks import UsageError
from umbel.data.scenarios.table import Table
from umbel.data.sources import Sources
from umbel.data.tables.encoding import Encoding

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

ROWS = 200

BY_TIME = {"split": "time", "split_column": None}


def frame(rows: int = ROWS) -> Any:
    """Three sites; ages and wards have gaps, one ward is of the last rows only."""
    rng = np.random.default_rng(0)
    ward = rng.choice(["A", "B", "C"], rows).astype(object)
    ward[-2:] = "rare"
    table = pd.DataFrame(
        {
            "site": rng.choice(["north", "south", "west"], rows, p=[0.6, 0.3, 0.1]),
            "age": rng.integers(20, 80, rows).astype(float),
            "weight": rng.normal(75, 10, rows),
            "ward": ward,
            "day": pd.date_range("2013-01-01", periods=rows).strftime("%Y-%m-%d"),
            "outcome": rng.choice(["home", "stay"], rows),
        }
    )
    table.loc[3, "age"] = np.nan
    table.loc[5, "ward"] = None
    return table


def written(folder: Path, table: Any) -> str:
    file = folder / "table.csv"
    table.to_csv(file, index=False)
    return str(file)


def build(scenario: Table, seed: int = 0) -> umbel.Federation:
    return scenario.build(seed, Sources(None, Path("nowhere")))


def split_by_row(table: Any, test: int = 40) -> Any:
    parts = np.array(["train"] * (len(table) - test) + ["test"] * test)
    return table.assign(part=parts)


def fixed(folder: Path, table: Any, **settings: Any) -> Table:
    """The last 40 rows are for the test, as a column says."""
    named: dict[str, Any] = {"client": "site", "target": "outcome", "split": "column"}
    named |= {"split_column": "part", "path": written(folder, split_by_row(table)), **settings}
    return Table(**named)


def everything(federation: umbel.Federation) -> torch.Tensor:
    return torch.cat([federation.train.x, federation.test.x])


def test_features_are_those_of_scikit_learn_fitted_on_training_rows(tmp_path: Path) -> None:
    table = frame()
    federation = build(fixed(tmp_path, table, leave_out=("day",)))
    assert federation.names == ("north", "south", "west")
    train, test = table[:-40], table[-40:]
    numbers = train[["age", "weight"]]
    encoder = make_column_transformer(
        (StandardScaler(), ["age", "weight"]),
        (OneHotEncoder(handle_unknown="ignore"), ["ward"]),
        sparse_threshold=0,
    )
    filled = [part.fillna({"age": numbers["age"].mean(), "ward": "zz"}) for part in (train, test)]
    # The mean that is filled in must not make the deviation smaller.
    encoder.fit(filled[0])
    encoder.named_transformers_["standardscaler"].scale_ = numbers.std(ddof=0).to_numpy()
    for part, values, found in (
        (train, filled[0], federation.train),
        (test, filled[1], federation.test),
    ):
        x = encoder.transform(values)
        gaps = part["age"].isna().to_numpy(dtype=float)[:, None]
        expected = np.concatenate([x[:, :2], gaps, x[:, 2:]], axis=1)
        order = np.argsort(part["site"].to_numpy(), kind="stable")
        np.testing.assert_allclose(found.x.numpy(), expected[order], rtol=1e-4, atol=1e-5)
        labels = part["outcome"].map({"home": 0, "stay": 1}).to_numpy()
        assert found.y.tolist() == labels[order].tolist()


def test_a_category_of_test_rows_only_is_in_no_category(tmp_path: Path) -> None:
    table = frame()
    federation = build(fixed(tmp_path, table, columns=("ward",)))
    assert federation.input_shape == (4,)  # A, B, C and missing
    unseen = federation.test.x.sum(1) == 0
    assert int(unseen.sum()) == 2
    assert bool((federation.train.x.sum(1) == 1).all())


@pytest.mark.parametrize("least", [1, 2, 3])
def test_federated_statistics_agree_with_pooled_ones(tmp_path: Path, least: int) -> None:
    table = frame()
    table.loc[table["site"] == "north", "ward"] = "of the north"
    pooled = fixed(tmp_path, table, least_clients=least)
    one, other = build(pooled), build(replace(pooled, statistics="federated"))
    assert one.input_shape == other.input_shape
    torch.testing.assert_close(everything(one), everything(other), rtol=1e-5, atol=1e-6)


def test_a_category_that_few_clients_know_counts_among_the_others(tmp_path: Path) -> None:
    table = frame()
    table.loc[table["site"] == "north", "ward"] = "of the north"
    scenario = fixed(tmp_path, table, columns=("ward",), least_clients=2)
    for statistics in ("pooled", "federated"):
        federation = build(replace(scenario, statistics=statistics))
        north = federation.train.of(0)[0]
        assert bool((north[:, -1] == 1).all())  # the last feature is that of all others
        assert federation.input_shape == (4,)  # A, B, C and others


def test_test_rows_leave_no_trace_in_training_rows(tmp_path: Path) -> None:
    table = frame()
    before = build(fixed(tmp_path, table)).train.x
    table.loc[ROWS - 40 :, ["age", "weight"]] = 1e6
    table.loc[ROWS - 40 :, "ward"] = "new"
    assert torch.equal(build(fixed(tmp_path, table)).train.x, before)


def test_the_random_split_is_a_function_of_the_seed(tmp_path: Path) -> None:
    table = frame().assign(row=np.arange(ROWS))
    scenario = Table(
        path=written(tmp_path, table),
        client="site",
        target="outcome",
        columns=("row",),
        scale=False,
        test_fraction=0.25,
    )
    one, again, other = build(scenario), build(scenario), build(scenario, 1)
    assert torch.equal(one.train.x, again.train.x)
    assert not torch.equal(one.train.x, other.train.x)
    assert sorted(everything(one).flatten().tolist()) == list(range(ROWS))
    sizes = table["site"].value_counts().sort_index()
    assert one.test.sizes.tolist() == [round(0.25 * size) for size in sizes]


def test_in_time_the_last_rows_are_for_the_test_and_those_before_for_validation(
    tmp_path: Path,
) -> None:
    table = frame().sample(frac=1, random_state=1)
    days = pd.to_datetime(table["day"])
    table["month"], table["of_month"] = days.dt.month, days.dt.day
    scenario = Table(
        path=written(tmp_path, table),
        client="site",
        target="outcome",
        split="time",
        time=("day",),
        columns=("day",),
        scale=False,
        test_fraction=0.2,
        validation_fraction=0.1,
    )
    federation = build(scenario)
    assert federation.validation is not None
    for client in range(3):
        parts = (federation.train, federation.validation, federation.test)
        train, validation, test = (part.of(client)[0] for part in parts)
        assert train.max() < validation.min()
        assert validation.max() < test.min()
        assert bool((train.diff(dim=0) > 0).all())
    by_two = build(replace(scenario, time=("month", "of_month")))
    assert torch.equal(by_two.train.x, federation.train.x)
    with_day = replace(scenario, columns=("day", "age", "weight", "ward", "month", "of_month"))
    (width,) = build(with_day).input_shape
    assert build(replace(scenario, columns=())).input_shape == (width - 1,)  # no time unless named


def test_a_column_says_which_rows_are_for_what(tmp_path: Path) -> None:
    table = frame()
    table["part"] = np.resize(["train", "validation", "test", "train"], ROWS)
    table["row"] = np.arange(ROWS)
    settings: dict[str, Any] = {"client": "site", "target": "outcome", "columns": ("row",)}
    in_other_words = table.replace({"part": {"train": "Train", "validation": "val"}})
    settings |= {"path": written(tmp_path, in_other_words), "scale": False}
    scenario = Table(split="column", split_column="part", **settings)
    federation = build(replace(scenario, validation_fraction=0.5))  # the column decides
    assert federation.validation is not None
    found = {
        "train": federation.train,
        "validation": federation.validation,
        "test": federation.test,
    }
    for part, split in found.items():
        expected = table.loc[table["part"] == part, "row"]
        assert sorted(split.x.flatten().tolist()) == sorted(expected)
    table.loc[7, "part"] = "held out"
    written(tmp_path, table)
    with pytest.raises(UsageError, match="row 8, column 'part': is not train, validation or test"):
        build(scenario)


def test_validation_without_a_row_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, frame(30))
    table = Table(path=path, client="site", target="outcome", validation_fraction=0.01)
    with pytest.raises(UsageError, match=r"validation_fraction: 0\.01 is not 0, or enough"):
        build(table)


def test_training_rows_are_limited_at_random_and_small_clients_left_out(tmp_path: Path) -> None:
    scenario = fixed(tmp_path, frame(), train_rows=30, test_rows=5)
    federation = build(scenario)
    assert federation.train.sizes.tolist()[:2] == [30, 30]
    assert max(federation.test.sizes) == 5
    assert not torch.equal(build(scenario, 1).train.y, federation.train.y)
    large = build(replace(scenario, least_rows=30))
    assert large.names == ("north", "south")


def test_whole_numbers_words_and_bools_are_classes_and_others_are_regression(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(1)
    table = frame().assign(
        grade=rng.choice([2, 3, 7], ROWS),
        flag=rng.choice([True, False], ROWS),
        delay=rng.normal(3, 40, ROWS),
        late=1_600_000_000.5 + np.arange(ROWS),
        many=np.arange(ROWS),
        amount=[f"lot {number}, crowns" for number in range(ROWS)],
        mostly_twice=[f"kind {max(number // 2, number - 80)}" for number in range(ROWS)],
    )
    scenario = fixed(tmp_path, table)

    def of(target: str, **settings: Any) -> umbel.Federation:
        made = {"grade", "flag", "delay", "late", "many", "amount", "mostly_twice", "outcome"}
        others = tuple(made - {target})
        return build(replace(scenario, target=target, leave_out=others, **settings))

    grades = of("grade")
    assert grades.num_classes == 3
    expected = split_by_row(table)
    order = np.argsort(expected["site"][:-40].to_numpy(), kind="stable")
    ranked = expected["grade"][:-40].map({2: 0, 3: 1, 7: 2}).to_numpy()[order]
    assert grades.train.y.tolist() == ranked.tolist()
    assert of("flag").num_classes == 2
    assert of("delay").num_classes is None
    assert of("grade", task="regression").train.y[0] in (2.0, 3.0, 7.0)
    assert of("many", task="classification").num_classes == ROWS
    scaled = of("delay", scale_target=True)
    assert float(scaled.train.y.mean()) == pytest.approx(0, abs=1e-5)
    assert float(scaled.train.y.std(correction=0)) == pytest.approx(1, abs=1e-5)
    late = of("late", scale_target=True)
    assert len(set(late.train.y.tolist())) == len(late.train.y)
    federated = of("delay", scale_target=True, statistics="federated")
    torch.testing.assert_close(scaled.train.y, federated.train.y)
    with pytest.raises(UsageError, match=r'200 different whole numbers.* task = "regression"'):
        of("many")
    with pytest.raises(UsageError, match="200 different texts in 200 rows"):
        of("amount")
    assert of("amount", task="classification").num_classes == ROWS
    assert of("amount", categories=("amount",)).num_classes == ROWS
    assert of("mostly_twice").num_classes == 120
    with pytest.raises(UsageError, match="row 1, column 'delay': is not a whole number"):
        of("delay", task="classification")
    with pytest.raises(UsageError, match="'a column of texts' is not one of numbers"):
        of("outcome", task="regression")


def test_a_folder_has_a_file_for_each_client(tmp_path: Path) -> None:
    folder = tmp_path / "sites"
    folder.mkdir()
    table = frame()
    for site, rows in table.groupby("site"):
        rows.drop(columns="site").to_parquet(folder / f"{site}.parquet")
    federation = build(Table(path=str(folder), target="outcome", leave_out=("day",)))
    assert federation.names == ("north", "south", "west")
    whole = Table(path=written(tmp_path, table), client="site", target="outcome")
    alike = build(replace(whole, leave_out=("day",)))
    torch.testing.assert_close(federation.train.x, alike.train.x, rtol=1e-4, atol=1e-5)


def test_texts_count_words_by_their_hashes(tmp_path: Path) -> None:
    table = frame().assign(note=np.resize(["red car", "blue car", "a red, red bus"], ROWS))
    scenario = fixed(tmp_path, table, columns=("note",), texts=("note",), text_features=64)
    federation = build(scenario)
    assert federation.input_shape == (64,)
    assert len(np.unique(federation.train.x.numpy(), axis=0)) == 3
    lengths = federation.train.x.norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_attributes_are_known_and_not_learnt_from(tmp_path: Path) -> None:
    table = frame()
    table["region"] = table["site"].map({"north": "up", "south": "down", "west": "down"})
    scenario = fixed(tmp_path, table, attributes=("region",))
    federation = build(scenario)
    assert federation.attributes == {"region": ("up", "down", "down")}
    assert federation.input_shape == build(fixed(tmp_path, frame())).input_shape
    table.loc[table.index[table["site"] == "west"][-1], "region"] = "up"
    with pytest.raises(UsageError, match="column 'region': differs from an earlier value of clie"):
        build(fixed(tmp_path, table, attributes=("region",)))


def test_rows_without_a_target_are_refused_or_dropped(tmp_path: Path) -> None:
    table = frame()
    table.loc[11, "outcome"] = None
    scenario = fixed(tmp_path, table)
    with pytest.raises(UsageError, match="row 12, column 'outcome': is missing; drop_unlabelled"):
        build(scenario)
    federation = build(replace(scenario, drop_unlabelled=True))
    assert len(federation.train.y) == ROWS - 41


def test_clients_without_training_rows_or_without_a_name_are_refused(tmp_path: Path) -> None:
    table = frame()
    table.loc[table.index[-1], "site"] = "east"
    scenario = fixed(tmp_path, table)
    with pytest.raises(UsageError, match="client east: has no training rows; least_rows = 1"):
        build(scenario)
    assert build(replace(scenario, least_rows=1)).names == ("north", "south", "west")
    for nobody in (None, "  "):
        table.loc[4, "site"] = nobody
        with pytest.raises(UsageError, match="row 5, column 'site': names no client"):
            build(fixed(tmp_path, table))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client": None}, "which column says which client .* write --set scenario.client=COLUMN"),
        (
            {"target": "outcom"},
            "lacks the column 'outcom', did you mean 'outcome'.* --set scenario.target=outcome",
        ),
        ({"columns": ("weigth",)}, "lacks the column 'weigth', did you mean 'weight'"),
        ({"columns": ("empty",)}, "column 'empty': has no value in any training row"),
        ({"categories": ("wards",)}, "lacks the column 'wards', did you mean 'ward'"),
        ({"leave_out": ("Day",)}, "lacks the column 'Day', did you mean 'day'"),
        ({"numbers": ("ward",)}, "column 'ward': is not a number"),
        ({"dates": ("ward",)}, "column 'ward': is not a date"),
        ({"most_categories": 2, "leave_out": ("empty",)}, "column 'ward': '4 categories' is not"),
        ({"least_rows": 1000}, "least_rows: 1000 is not low enough"),
        ({"split_column": "parts"}, "lacks the column 'parts', did you mean 'part'"),
        ({"time": ("days",)}, "lacks the column 'days', did you mean 'day'"),
        ({**BY_TIME, "time": ("ward",)}, "is not columns of numbers or dates"),
        ({**BY_TIME, "time": ("age",)}, "row 4, column 'age': the time is missing"),
        ({"leave_out": (*frame().columns, "empty")}, "is not enough to predict from"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    table = frame().assign(empty=np.nan)
    with pytest.raises(UsageError, match=message):
        build(fixed(tmp_path, table, **settings))


def test_features_that_memory_can_not_hold_are_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = fixed(tmp_path, frame(), texts=("ward",), text_features=10**5)
    monkeypatch.setattr("umbel.checks.free_memory", lambda: 2**20)
    with pytest.raises(UsageError, match=r"table: the features of all rows: .* GiB is more than"):
        build(scenario)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation_fraction": 1.0}, "validation_fraction: 1.0 is not"),
        ({"test_fraction": 1.0}, "test_fraction: 1.0 is not"),
        ({"train_rows": -1}, "train_rows: -1 is not 0 or more"),
        ({"least_clients": 0}, "least_clients: 0 is not 1 or more"),
        ({"split": "time"}, "time: .* is not filled"),
        ({"split": "column"}, "split_column: None is not a column"),
        ({"separator": ", "}, "separator: ', ' is not one ASCII character"),
        ({"separator": "§"}, "separator: '§' is not one ASCII character"),
        ({"numbers": ("a",), "texts": ("a",)}, "is not limited to one kind each"),
        ({"columns": ("a",), "leave_out": ("a",)}, "leave_out: .* is not allowed"),
    ],
)
def test_settings_that_can_not_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Table(**settings)


def test_a_few_whole_numbers_that_one_site_writes_as_floats_need_a_task(tmp_path: Path) -> None:
    for site, kind in (("north", int), ("south", float)):
        table = pd.DataFrame({"x": np.arange(40.0), "y": (np.arange(40) % 2).astype(kind)})
        table.to_csv(tmp_path / f"{site}.csv", index=False)
    both = Table(path=str(tmp_path), target="y")
    with pytest.raises(UsageError, match=r"written as 1\.0. is not clearly classes"):
        build(both)
    assert build(replace(both, task="classification")).num_classes == 2
    assert build(replace(both, target="x")).num_classes is None


def test_numbers_beyond_single_precision_are_refused_by_row_and_column(tmp_path: Path) -> None:
    table = frame()
    table["delay"] = np.arange(ROWS) / 3
    table.loc[ROWS - 7, "weight"] = 1e300  # of a test row, which the scale does not know
    scenario = fixed(tmp_path, table)
    with pytest.raises(UsageError, match=f"row {ROWS - 6}, column 'weight': is too large for mod"):
        build(scenario)
    table["delay"] *= 1e37
    fixed(tmp_path, table)
    other = replace(scenario, target="delay", leave_out=("weight",))
    with pytest.raises(UsageError, match=r"row \d+, column 'delay': is too large for models"):
        build(other)
    assert build(replace(other, scale_target=True)).num_classes is None


def test_the_client_can_not_be_predicted() -> None:
    with pytest.raises(UsageError, match="target: 'site' is not another column than client"):
        Table(path="t.csv", client="site", target="site")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"columns": ("age", "outcome")}, r"columns: \['outcome'\] is not allowed: the target"),
        ({"columns": ("age", "site")}, r"columns: \['site'\] is not allowed: the target"),
        ({"texts": ("outcome",)}, "texts: 'outcome' is not allowed: it"),
    ],
)
def test_what_is_predicted_is_no_input(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Table(path="table.csv", client="site", target="outcome", **setting)


def test_a_file_that_holds_the_rows_of_others_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = frame()
    for site, rows in table.groupby("site"):
        rows.drop(columns="site").to_csv(tmp_path / f"{site}.csv")
    build(Table(path=str(tmp_path), target="outcome"))
    assert not caplog.messages
    table.drop(columns="site").to_csv(tmp_path / "all.csv", index=False)
    build(Table(path=str(tmp_path), target="outcome"))
    assert "client all has the rows of all others together" in caplog.text
    (tmp_path / "all.csv").unlink()
    (tmp_path / "north (1).csv").write_text((tmp_path / "north.csv").read_text())
    build(Table(path=str(tmp_path), target="outcome"))
    assert "clients with the same rows: 'north', 'north (1)'" in caplog.text


def test_a_table_has_a_step_for_each_value_of_its_first_time_column(tmp_path: Path) -> None:
    table = frame().assign(month=np.arange(ROWS) // 50)
    table = table[(table.site != "west") | (table.month > 0)]
    path = written(tmp_path, table)
    columns = ("age", "weight", "ward", "month")
    scenario = Table(
        path=path, client="site", target="outcome", time=("month", "day"), columns=columns
    )
    federation = scenario.built_over_time(0, Sources(None, Path("nowhere")), None, "")
    assert federation.names == ("north", "south", "west")
    assert federation.num_steps == 3
    counts = table.groupby(["site", "month"]).size().unstack(fill_value=0)
    assert federation.train.steps is not None
    assert federation.train.steps.tolist() == counts.to_numpy().tolist()
    # The scale is that of the first month, and the month itself is no input.
    assert isinstance(federation.encoding, Encoding)
    first = table[table.month == 0]
    assert federation.encoding.columns[0].mean == pytest.approx(first.age.mean())
    assert "month" not in federation.encoding.features
    assert "ward is rare" not in federation.encoding.features
    mine = table[(table.site == "south") & (table.month == 1)].sort_values("day")
    assert (federation.encoding.columns[1].name, federation.encoding.columns[1].kind) == (
        "weight",
        "number",
    )
    scale = federation.encoding.columns[1]
    weights = federation.at(1, 1).train.of(1)[0][:, 1] * scale.deviation + scale.mean
    torch.testing.assert_close(
        weights, torch.tensor(mine.weight.to_numpy()).float(), rtol=1e-4, atol=1e-3
    )


def test_limits_of_rows_are_those_of_a_step(tmp_path: Path) -> None:
    table = frame().assign(month=np.arange(ROWS) // 50)
    scenario = Table(
        path=written(tmp_path, table),
        client="site",
        target="outcome",
        time=("month",),
        train_rows=10,
        least_rows=20,
    )
    nowhere = Sources(None, Path("nowhere"))
    federation = scenario.built_over_time(0, nowhere, 2, "")
    assert federation.train.steps is not None
    assert federation.train.steps.shape[1] == 3
    assert federation.train.steps.max() == 10
    assert (federation.train.steps[:, :2].sum(axis=1) >= 20).all()
    assert federation.num_clients < 3
    for change, message in (
        ({"least_rows": 21}, "least_rows: 21 is not low enough"),
        ({"time": ()}, "time: .* is not filled: its first column gives the steps"),
    ):
        with pytest.raises(UsageError, match=message):
            replace(scenario, **change).over_time(0, nowhere, 2, "")
    with pytest.raises(UsageError, match="schedule: 'A' is not left out: the rows of the table"):
        scenario.over_time(0, nowhere, 2, "A")
