from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from umbel.algorithms import (
    ALGORITHMS,
    FLACC,
    IFCA,
    FedAvg,
)
from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError
from umbel.client.optimizers import SGD, Adam
from umbel.client.work import LocalTraining
from umbel.data.scenarios import SCENARIOS
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.mehta import ROTATED_MNIST
from umbel.data.shifts import LabelGroups
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.experiment.layers import merged, parse_setting
from umbel.experiment.library import (
    experiments_in,
    find_comparison,
    find_experiment,
    shipped_comparisons,
    shipped_experiments,
)
from umbel.experiment.toml_file import plain, structured, write
from umbel.networks import CNN, MLP
from umbel.result.run import Experiment, read

TWO_PARTS = "scenario={name='together', parts=[{}, {source='nowhere'}]}"

BASE = """
rounds = 7
[scenario]
name = "rotated-digits"
[model]
name = "mlp"
[algorithm]
name = "ifca"
num_clusters = 3
[algorithm.local]
batch_size = 10
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(BASE)
    return path


def test_an_experiment_is_read_with_its_defaults_and_named_after_its_file(file: Path) -> None:
    experiment = read(file)
    assert experiment.name == "mine"
    assert experiment.rounds == 7
    assert experiment.model == MLP()
    assert experiment.algorithm == IFCA(num_clusters=3, local=LocalTraining(batch_size=10))
    assert experiment.scenario == SCENARIOS["rotated-digits"]


def test_the_mark_that_some_editors_begin_files_with_is_no_part_of_them(file: Path) -> None:
    plainly = read(file)
    file.write_text(BASE, encoding="utf-8-sig")
    assert read(file) == plainly


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_reads_back_the_same(name: str) -> None:
    entry = SCENARIOS[name]
    scenario = entry() if isinstance(entry, type) else entry
    assert structured(plain(scenario), Scenario) == scenario


def test_what_toml_can_t_say_is_refused_when_it_is_written() -> None:
    @dataclass(frozen=True)
    class Limited:
        most: int | None = 5

    assert plain(Limited()) == {"most": 5}
    with pytest.raises(UsageError, match="most: None is not a value that TOML can hold"):
        plain(Limited(None))


def test_what_is_written_reads_back_the_same(file: Path, tmp_path: Path) -> None:
    experiment = replace(
        read(file),
        algorithm=FLACC(local=LocalTraining(steps=3, batch_size="all", optimizer=Adam())),
        scenario=replace(ROTATED_MNIST, label_alpha=0.5, shift=LabelGroups(2, 3)),
        model=CNN(channels=(4,)),
        engine=EngineSettings("vectorised", "cpu", 12.5),
    )
    copy = tmp_path / "copy.toml"
    copy.write_text(write(experiment))
    assert read(copy) == experiment


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_has_defaults_that_can_be_written(name: str) -> None:
    needed = {"fl-hc": {"threshold": 0.5}, "pacfl": {"threshold": 20.0}}  # they have no default
    made = structured({"name": name, **needed.get(name, {})}, Algorithm)
    table = plain(made)
    # A name that stands for settings of a method is written as these.
    assert table["name"] == name or ALGORITHMS[name] == made
    assert structured(tomllib.loads(tomli_w.dumps(table)), Algorithm) == made


def test_every_shipped_experiment_reads_and_is_described() -> None:
    experiments = shipped_experiments()
    assert {"flacc-digits", "fedavg-digits", "ifca-digits", "local-only-digits"} <= set(experiments)
    for name, path in experiments.items():
        experiment = read(path)
        assert experiment.name == name
        assert experiment.description


def test_a_comparison_differs_in_nothing_but_the_method() -> None:
    for folder in shipped_comparisons().values():
        experiments = [read(path) for path in experiments_in(folder)]
        # What a method needs may be its own: a full cohort, another learning rate or batch.
        alike = {
            replace(
                e,
                name="any",
                description="",
                algorithm=FedAvg(),
                participation=1.0,
                personal=None,
                # What is kept of the past is of the method.
                time=None if e.time is None else replace(e.time, keep="all"),
            )
            for e in experiments
        }
        assert len(alike) == 1
        assert len({e.participation for e in experiments} - {1.0}) <= 1
        methods = {
            str((plain(e.algorithm), plain(e.personal), e.time and e.time.keep))
            for e in experiments
        }
        assert len(methods) == len(experiments)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("algorithm.num_cluster=6", "algorithm.num_cluster: unknown key; did you mean num_clus"),
        ("rouns=6", "rouns: unknown key; did you mean rounds?"),
        ("algorithm.num_clusters=six", "algorithm.num_clusters: 'six' is not a whole number"),
        ("algorithm.num_clusters=0", "algorithm.num_clusters: 0 is not 1 or more"),
        ("algorithm.local.lr=true", "algorithm.local.lr: True is not a number"),
        ("algorithm.local.batch_size=some", "'some' is not a whole number or \"all\""),
        ("algorithm.send=all", 'algorithm.send: \'all\' is not "update" or "gradient"'),
        ("algorithm.name=ifka", "algorithm.name: 'ifka' is not known; did you mean ifca?"),
        (
            "algorithm.name=nowhere:Method",
            "'nowhere:Method' can't be imported: No module named 'nowhere'; ",
        ),
        (
            "algorithm.local.optimizer.lr=1",
            "optimizer.lr: unknown key; did you mean algorithm.local.lr",
        ),
        ("model.hidden=5", "model.hidden: 5 is not a list; write [5]"),
        ("participation=0", "participation: 0.0 is not in (0, 1]"),
        ("name=a/b", "name: 'a/b' is not a name for a folder"),
        ("faults.drop=2", "faults.drop: 2.0 is not a probability"),
        ("engine.device=abacus", "engine.device: 'abacus' is not a device"),
    ],
)
def test_a_wrong_setting_is_named_with_its_path(setting: str, message: str, file: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        read(file, [setting])
    assert str(refusal.value).startswith("--set ")
    assert str(refusal.value).endswith(f" (over {file})")
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["restart=3"], "algorithm.restart: unknown key; did you mean restarts?"),
        (["restarts=3", "trial_round=2"], "trial_round: unknown key; did you mean trial_rounds?"),
        (["trial_rounds=2"], "algorithm.trial_rounds: unknown key; it needs restarts beside it"),
    ],
)
def test_keys_that_any_method_may_have_are_meant_by_those_like_them(
    settings: list[str], message: str, file: Path
) -> None:
    file.write_text(BASE.replace("num_clusters = 3\n", ""))
    with pytest.raises(UsageError) as refusal:
        read(file, [f"algorithm.{setting}" for setting in settings])
    assert message in str(refusal.value)


def test_a_mistake_in_the_file_is_not_laid_to_the_settings(file: Path) -> None:
    file.write_text(BASE.replace("rounds = 7", "rounds = 0"))
    said = 'rounds: 0 is not 1 or more, or "until-stopped"'
    with pytest.raises(UsageError) as refusal:
        read(file)
    assert str(refusal.value) == f"{file}: {said}"
    with pytest.raises(UsageError) as refusal:
        read(file, ["seed=3"])
    assert str(refusal.value) == f"{file} with --set seed=3: {said}"


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        read(file, ["algorithm.local.lrr=1", "model.hiden=[1]", "sed=3"])
    message = str(refusal.value)
    assert "algorithm.local.lrr" in message
    assert "model.hiden" in message
    assert "sed: unknown key; did you mean seed?" in message


def test_a_missing_table_and_a_file_that_is_no_toml_are_named(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("rounds = 3\n")
    with pytest.raises(UsageError, match="scenario: missing; model: missing; algorithm: missing"):
        read(file)
    file.write_text("rounds = = 3\n")
    with pytest.raises(UsageError, match=r"a\.toml: not TOML: .*line 1"):
        read(file)
    with pytest.raises(UsageError, match=r"b\.toml: can't be read: No such file"):
        read(tmp_path / "b.toml")


def test_a_file_takes_from_the_one_it_extends_what_it_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "_base.toml").write_text(BASE)
    over = tmp_path / "over.toml"
    over.write_text('extends = "_base.toml"\nrounds = 9\n[algorithm.local]\nlr = 0.5\n')
    assert read(over).rounds == 9
    assert read(over).algorithm == IFCA(num_clusters=3, local=LocalTraining(lr=0.5, batch_size=10))
    over.write_text('extends = "_base.toml"\n[algorithm]\nname = "fedavg"\n')
    assert read(over).algorithm == FedAvg()  # nothing of the other method is left
    assert experiments_in(tmp_path) == [over]
    unnamed = BASE.replace('name = "ifca"\nnum_clusters = 3\n', "")
    (tmp_path / "_unnamed.toml").write_text(unnamed)
    over.write_text('extends = "_unnamed.toml"\n[algorithm]\nname = "fedavg"\n')
    assert read(over).algorithm == FedAvg(LocalTraining(batch_size=10))
    over.write_text('extends = "gone.toml"\n')
    with pytest.raises(UsageError, match=r"gone\.toml: can't be read: .*over\.toml extends it"):
        read(over)
    over.write_text("extends = 3\n")
    with pytest.raises(UsageError, match="extends: 3 is not the path of a TOML file"):
        read(over)
    over.write_text(f'extends = "{over.name}"\n')
    with pytest.raises(UsageError, match="extends itself"):
        read(over)


@pytest.mark.parametrize(
    ("name", "table", "key", "value"),
    [
        ("lcfl", "local", "epochs", 3),
        ("joint", "averaging", "shared", ("trunk.*",)),
        ("cfl-gp", "averaging", "shared", ("trunk.*",)),
        ("cfl-gp", "gradient", "batch_size", "all"),
    ],
)
def test_a_table_within_a_method_leaves_what_it_does_not_say_as_the_method_has_it(
    name: str, table: str, key: str, value: Any
) -> None:
    given = list(value) if isinstance(value, tuple) else value
    method = structured({"name": name, table: {key: given}}, Algorithm)
    default = structured({"name": name}, Algorithm)
    assert getattr(method, table) == replace(getattr(default, table), **{key: value})


def test_a_table_without_a_name_is_of_what_the_method_has(file: Path) -> None:
    local = read(file, ["algorithm.local.optimizer.momentum=0.9"]).algorithm.local  # type: ignore[attr-defined]
    assert local.optimizer == SGD(momentum=0.9)
    with pytest.raises(UsageError, match=r"optimizer\.beta1: unknown key; a setting of adam"):
        read(file, ["algorithm.local.optimizer.beta1=0.5"])


def test_epochs_that_are_set_later_take_the_place_of_steps(file: Path) -> None:
    by_epochs = structured({"name": "joint", "local": {"epochs": 3}}, Algorithm)
    assert by_epochs.local == LocalTraining(epochs=3)
    both = structured({"name": "joint", "local": {"epochs": 3, "steps": 7}}, Algorithm)
    assert both.local == LocalTraining(epochs=3, steps=7)
    assert structured(plain(by_epochs), Algorithm) == by_epochs
    by_steps = ["algorithm.local.steps=7"]
    assert read(file, by_steps).algorithm.local.steps == 7  # type: ignore[attr-defined]
    again = read(file, [*by_steps, "algorithm.local.epochs=3"]).algorithm.local  # type: ignore[attr-defined]
    assert (again.epochs, again.steps) == (3, None)


def test_what_can_not_run_is_refused_when_it_is_read(file: Path) -> None:
    with pytest.raises(UsageError, match="num_clusters: 30 is not at most the number of clients"):
        read(file, ["algorithm.num_clusters=30"])
    with pytest.raises(UsageError, match="exactly one of the two"):
        read(file, ["algorithm.name=fl-hc"])
    settings = ["algorithm.name=sattler", "participation=0.5"]
    file.write_text(BASE.replace("num_clusters = 3", ""))
    with pytest.raises(UsageError, match=r"participation: 0\.5 is not 1"):
        read(file, settings)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (["scenario.split=foo"], "scenario.split: 'foo' is not"),
        (["scenario.clients=1", "algorithm.num_clusters=1"], "scenario.clients: 1 is not"),
        (
            ["scenario.shift.name=swap-labels", "scenario.shift.groups=60"],
            "scenario.shift.groups: 60 is not",
        ),
        (
            [TWO_PARTS, "scenario.clients=6"],
            "scenario.clients: 6 gives parts[0] 3, which is not at least one for each of 4 groups",
        ),
        (['model.freeze=["zz"]'], "model.freeze: 'zz' is not"),
        (['algorithm.averaging.shared=["zz"]'], "algorithm.averaging.shared: 'zz' is not"),
        (["algorithm.name=cfl-gp", 'algorithm.parameters=["zz"]'], "algorithm.parameters: 'zz' is"),
    ],
)
def test_what_is_refused_when_a_run_is_built_is_named_with_its_path(
    settings: list[str], path: str, file: Path
) -> None:
    file.write_text(BASE.replace("num_clusters = 3\n", ""))
    with pytest.raises(UsageError) as refusal:
        read(file, settings).open(Sources.default())
    assert str(refusal.value).removeprefix("--set ").startswith(path)


def test_settings_are_toml_values_or_else_strings() -> None:
    assert parse_setting("a.b=3") == {"a": {"b": 3}}
    assert parse_setting("a = [1, 2]") == {"a": [1, 2]}
    assert parse_setting("a=true") == {"a": True}
    assert parse_setting("a=some words") == {"a": "some words"}
    for text in ("a", "=3", "a..b=3"):
        with pytest.raises(UsageError, match="is not of the form"):
            parse_setting(text)


trees = st.recursive(
    st.integers(), lambda t: st.dictionaries(st.sampled_from("abc"), t, max_size=3), max_leaves=8
)
tables = st.dictionaries(st.sampled_from("abc"), trees, max_size=3)


@given(base=tables, over=tables)
def test_merging_keeps_what_is_set_and_changes_neither(
    base: dict[str, object], over: dict[str, object]
) -> None:
    kept = repr(base), repr(over)
    result = merged(base, over)
    assert set(result) == set(base) | set(over)
    assert merged(result, over) == result
    assert (repr(base), repr(over)) == kept


def test_methods_and_scenarios_of_the_users_are_named_by_module(file: Path) -> None:
    own = "examples.my_algorithm:OneShotKMeans"
    experiment = read(file, [f"algorithm.name={own}"])
    assert plain(experiment.algorithm)["name"] == own
    assert structured(plain(experiment), Experiment) == experiment
    value = structured({"name": "umbel.data.scenarios:ROTATED_MNIST", "clients": 40}, Scenario)
    assert value == replace(ROTATED_MNIST, clients=40)


def test_experiments_and_comparisons_are_found_by_name_or_path(tmp_path: Path, file: Path) -> None:
    assert find_experiment("flacc-digits").name == "flacc-digits.toml"
    assert find_experiment(str(file)) == file
    assert find_comparison("rotated-digits").is_dir()
    assert find_comparison(str(tmp_path)) == tmp_path
    with pytest.raises(UsageError, match="'flac-digits' is not known; did you mean flacc-digits"):
        find_experiment("flac-digits")
    with pytest.raises(UsageError, match="'rotated' is not known; did you mean rotated-"):
        find_comparison("rotated")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="holds no experiment"):
        find_comparison(str(empty))


def test_a_number_of_many_digits_is_no_name() -> None:
    for key in ("algorithm.name", "algorithm.local.scheme.name"):
        with pytest.raises(UsageError, match="name: "):
            read(find_experiment("ditto-digits"), [f"{key}=0x{'f' * 5000}"])
