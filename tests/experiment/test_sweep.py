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
        ("seed=1,2", "choose several seeds by --seeds and --first-seed"),
        ("name=a,b", "name takes one value"),
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


def test_keys_of_any_method_are_there_for_each(file: Path) -> None:
    for values in ("2", "1,2"):
        assert sweep(file, [f"algorithm.restarts={values}"]).lacking == ()
    assert len(sweep(file, ["algorithm.restarts=1,2"]).experiments) == 2


def test_a_value_that_does_not_fit_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match=r"participation: 2\.0 is not in \(0, 1\]"):
        sweep(file, ["participation=0.5,2.0"])
    with pytest.raises(UsageError, match="rounds: 0 is not"):
        sweep(file, ["rounds=0", "algorithm.lam=0.1,0.2"])
