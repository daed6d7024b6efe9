"""Settings with several values, and the experiments they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell import SMALL
from umbel.checks import UsageError
from umbel.experiment.sweep import parts_of, sweep, values_of
from umbel.folder.run_folder import RunFolder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment called "joint-digits"."""
    path = tmp_path / "joint-digits.toml"
    path.write_text(SMALL.format(name="joint"))
    return path


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("a.b=1", ["a.b=1"]),
        ("a.b=0.1,0.2, 0.5", ["a.b=0.1", "a.b=0.2", "a.b=0.5"]),
        ("model.hidden=[64,32]", ["model.hidden=[64,32]"]),
        ("model.hidden=[64,32],[64]", ["model.hidden=[64,32]", "model.hidden=[64]"]),
        ('description="one, two"', ['description="one, two"']),
        ("scenario={name='shifted', clients=4}", ["scenario={name='shifted', clients=4}"]),
        ("a=[1,2", ["a=[1,2"]),
        ("a", ["a"]),
    ],
)
def test_commas_divide_values_but_not_lists_tables_and_quotes(
    setting: str, values: list[str]
) -> None:
    assert values_of(setting) == values


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("a=1,,2", "a list without empty values"),
        ("a=1,", "a list without empty values"),
        ("seed=1,2", "choose several seeds by --seeds and --first-seed"),
        ("name=a,b", "name takes one value"),
        ("description=a, b", "in quotes"),
    ],
)
def test_what_can_not_be_swept_is_refused(setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        values_of(setting)


def test_each_combination_is_an_experiment_with_a_name_of_its_own(file: Path) -> None:
    found = sweep(file, ["algorithm.lam=0.1,0.5", "rounds=3", "algorithm.num_clusters=2,4"])
    assert not found.lacking
    assert [e.name for e in found.experiments] == [
        f"joint-digits,algorithm.lam={lam},algorithm.num_clusters={k}"
        for lam in (0.1, 0.5)
        for k in (2, 4)
    ]
    assert {e.rounds for e in found.experiments} == {3}
    assert len({repr(e.algorithm) for e in found.experiments}) == 4
    reversed_ = sweep(file, ["algorithm.num_clusters=4,2", "algorithm.lam=0.5,0.1", "rounds=3"])
    assert set(reversed_.experiments) == set(found.experiments)
    assert parts_of(found.experiments[0].name) == (
        "joint-digits",
        {"algorithm.lam": "0.1", "algorithm.num_clusters": "2"},
    )
    assert parts_of("joint-digits") == ("joint-digits", {})


def test_values_written_otherwise_are_the_same_variant(file: Path) -> None:
    names = [e.name for e in sweep(file, ["algorithm.lam=0.10,1e-1,1,1.0"]).experiments]
    assert names == ["joint-digits,algorithm.lam=0.1", "joint-digits,algorithm.lam=1"]


def test_names_are_safe_for_file_systems_and_distinct(file: Path) -> None:
    hidden = ",".join(str(list(range(1, n))) for n in (3, 80, 81))
    found = sweep(file, [f"model.hidden={hidden}", 'scenario.source="mine","Mine","a/b"'])
    names = [e.name for e in found.experiments]
    assert len({name.lower() for name in names}) == 9
    for experiment, name in zip(found.experiments, names, strict=True):
        assert len(RunFolder.of(Path(), experiment).path.name.encode()) < 200
        assert not set(name) & set('/\\:*?"<>|')
    assert names[0] == "joint-digits,model.hidden=1_2,scenario.source=mine"


def test_an_experiment_without_the_setting_is_there_once(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "fedavg-digits.toml"
    other.write_text(SMALL.format(name="fedavg"))
    found = sweep(other, ["algorithm.lam=0.1,0.5", "algorithm.local.lr=0.1,0.2"])
    assert found.lacking == ("algorithm.lam",)
    assert [e.name for e in found.experiments] == [
        "fedavg-digits,algorithm.local.lr=0.1",
        "fedavg-digits,algorithm.local.lr=0.2",
    ]
    methods = sweep(file, ["algorithm.name=fedavg,ifca", "algorithm.num_clusters=2,3"])
    assert [e.name for e in methods.experiments] == [
        "joint-digits,algorithm.name=fedavg",
        "joint-digits,algorithm.name=ifca,algorithm.num_clusters=2",
        "joint-digits,algorithm.name=ifca,algorithm.num_clusters=3",
    ]


@pytest.mark.parametrize("values", ["2", "2,3"])
def test_one_value_is_left_out_where_several_are(values: str, tmp_path: Path) -> None:
    other = tmp_path / "fedavg-digits.toml"
    other.write_text(SMALL.format(name="fedavg"))
    found = sweep(other, [f"algorithm.num_clusters={values}", f"rouns={values}", "rounds=3"])
    assert found.lacking == ("algorithm.num_clusters", "rouns")
    assert [(e.name, e.rounds) for e in found.experiments] == [("fedavg-digits", 3)]


def test_keys_of_any_method_are_there_for_each(file: Path) -> None:
    for values in ("2", "1,2"):
        assert sweep(file, [f"algorithm.restarts={values}"]).lacking == ()
    assert len(sweep(file, ["algorithm.restarts=1,2"]).experiments) == 2


def test_an_empty_list_has_a_name_and_no_other_value_has_it(file: Path) -> None:
    names = [e.name for e in sweep(file, ['metrics=[],["macro-f1"]']).experiments]
    assert names == ["joint-digits,metrics=none", "joint-digits,metrics=macro-f1"]
    lists = sweep(file, ['algorithm.averaging.shared=[],["none"]']).experiments
    assert len({e.name for e in lists}) == 2


def test_a_value_that_does_not_fit_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match=r"participation: 2\.0 is not in \(0, 1\]"):
        sweep(file, ["participation=0.5,2.0"])
    with pytest.raises(UsageError, match="rounds: 0 is not"):
        sweep(file, ["rounds=0", "algorithm.lam=0.1,0.2"])


def test_a_value_that_the_experiment_keeps_elsewhere_is_named_as_it_was_given(
    file: Path, tmp_path: Path
) -> None:
    once = [e.name for e in sweep(file, ["algorithm.restarts=1,3"]).experiments]
    assert once == ["joint-digits,algorithm.restarts=1", "joint-digits,algorithm.restarts=3"]
    mixed = tmp_path / "fedem-digits.toml"
    mixed.write_text(SMALL.format(name="fedem"))
    former = [e.name for e in sweep(mixed, ["algorithm.num_components=2,3"]).experiments]
    assert former == [f"fedem-digits,algorithm.num_components={k}" for k in (2, 3)]


def test_names_of_many_settings_keep_their_values(file: Path) -> None:
    lists = [f"algorithm.local.{name}" for name in ("batch_size", "epochs", "lr", "lr_decay")]
    values = ["8,16", "1,2", "0.1,0.05", "1.0,0.99"]
    settings = [f"{path}={value}" for path, value in zip(lists, values, strict=True)]
    settings += ["algorithm.num_clusters=2,4", "algorithm.local.optimizer.momentum=0.0,0.9"]
    found = sweep(file, settings).experiments
    assert len({e.name for e in found}) == len(found) == 64
    for experiment in found:
        _, told = parts_of(experiment.name)
        assert told["num_clusters"] in ("2", "4")
        assert told["lr_decay"] in ("1", "0.99")
