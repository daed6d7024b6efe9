"""Advice from the examples to the answer, in Python and on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from sklearn.metrics import adjusted_rand_score

import umbel
from umbel.advice import gain_per_client as fate
from umbel.advice.advice_folder import read_summary
from umbel.advice.adviser import for_selection, next_experiment
from umbel.advice.gains import ahead, gain, lead
from umbel.advice.race import Allowance
from umbel.advice.summary import summary
from umbel.cli import app
from umbel.testing import blobs, mlp

SHORT = 10
LOCAL = umbel.LocalTraining(lr=0.3, epochs=2)


def tables(groups: int, clients: int = 16, examples: int = 60, seed: int = 0) -> umbel.Federation:
    """Clients of two labels, whose rule is turned by a right angle from group to group."""
    rng = np.random.default_rng(seed)
    pairs = []
    for client in range(clients):
        x = rng.normal(size=(examples, 4)).astype(np.float32)
        angle = np.pi * (client % groups) / 2
        y = (np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1] > 0).astype(np.int64)
        pairs.append((x, y))
    of = [client % groups for client in range(clients)]
    return umbel.Federation.from_arrays(pairs, groups=of, num_classes=2, seed=seed)


def net() -> umbel.Net:
    return umbel.Net(lambda: torch.nn.Linear(4, 2))


@pytest.fixture(scope="module")
def two() -> umbel.Advice:
    """Advice for two planted groups."""
    return umbel.advise(tables(2), net(), local=LOCAL, budget=SHORT)


def test_groups_that_contradict_each_other_get_a_model_each(two: umbel.Advice) -> None:
    assert two.verdict.answer == "clusters"
    assert adjusted_rand_score(tables(2).groups, list(two.clusters.values())) == 1
    found = {each.kind: each.found for each in two.structure.differences}
    assert found == {"inputs": False, "labels": False, "labels given inputs": True}
    assert "Train 2 models" in str(two)


def test_clients_that_get_models_of_their_own_are_not_said_to_be_alike(two: umbel.Advice) -> None:
    unseen = tuple(replace(each, p_value=0.5) for each in two.structure.differences)
    said = str(replace(two, structure=replace(two.structure, differences=unseen)))
    assert "do not differ" not in said
    assert "their examples alone do not show it" in said


@pytest.mark.thorough
def test_only_ways_that_were_trained_as_long_are_compared() -> None:
    rotated = umbel.scenario("rotated-digits", clients=12)
    network = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    advice = umbel.advise(rotated, network, local=LOCAL, budget=40)
    verdict = advice.verdict
    assert verdict.alone.rounds == verdict.one.rounds == verdict.chosen.rounds == 40
    rows = summary(advice).contenders
    stopped = [row for row in rows if row.stopped]
    assert stopped  # two clusters for four angles, at the least
    assert all(row.rounds == 20 and row.gain is row.low is row.high is None for row in stopped)
    known = [row for row in rows if not row.stopped and row.name != "one model"]
    assert all(row.gain is not None for row in known)


def test_alike_clients_get_one_model() -> None:
    advice = umbel.advise(tables(1), net(), local=LOCAL, budget=SHORT)
    assert advice.verdict.answer == "one model"
    assert set(advice.clusters.values()) == {0}
    assert not advice.structure.found


def several_labels(deviation: float) -> umbel.Federation:
    """Clients with three labels of yes and no, whose rules deviate from a common one by this."""
    rng = np.random.default_rng(100)
    common, pairs = 2 * rng.normal(size=(4, 3)), []
    for _ in range(10):
        x, rule = rng.normal(size=(50, 4)), common + deviation * rng.normal(size=(4, 3))
        pairs.append((x.astype(np.float32), (x @ rule > 0).astype(np.float32)))
    return umbel.Federation.from_arrays(pairs)


@pytest.mark.parametrize("deviation", [0.0, 1.0])
def test_fine_tuning_is_advised_for_clients_that_differ_and_not_for_a_short_budget(
    deviation: float,
) -> None:
    binary = umbel.Net(lambda: torch.nn.Linear(4, 3), umbel.BINARY)
    slow = replace(LOCAL, lr=0.1)
    advice = umbel.advise(several_labels(deviation), binary, local=slow, budget=2 * SHORT)
    one, tuned = (
        next(each for each in advice.standings if each.contender.name == name)
        for name in ("one model", "one model, fine-tuned")
    )
    assert ahead(tuned, one)  # as ten more epochs are enough for
    assert ahead(tuned, tuned.rivals[0]) == advice.verdict.tuned == (deviation > 0)
    assert advice.verdict.answer == "one model"
    assert "allow more rounds" in str(advice)
    assert ("one model for all trained for as many epochs" in str(advice)) == (deviation > 0)


@pytest.mark.parametrize("examples", [3, 30])
def test_by_chance_few_clients_are_said_to_gain_or_to_be_hurt(examples: int) -> None:
    rng = np.random.default_rng(0)
    alike = rng.normal(size=(2000, 2, examples))
    found = [fate.fate_of(new, old, old) for new, old in alike]
    assert np.mean([each.gains for each in found]) < 0.02
    assert np.mean([each.hurt for each in found]) < 0.02
    flips = rng.choice([-0.1, 0.1], size=(2000, examples))
    zeros = np.zeros(examples)
    found = [fate.fate_of(zeros, gains, zeros) for gains in flips]
    assert np.mean([each.gains for each in found]) < 0.02
    same = np.full(examples, 0.1)
    assert not fate.fate_of(same, same + 1e-12, same).gains
    assert fate.fate_of(same, same + 0.01, same).gains == (examples >= fate.FEWEST_EXAMPLES)


def test_planted_groups_and_test_examples_are_not_in_what_is_chosen_by() -> None:
    federation = tables(2)
    trial = for_selection(federation, seed=0)
    assert trial.groups is None
    rows = {tuple(row) for row in federation.test.x.tolist()}
    assert not rows & {tuple(row) for split in trial.splits for row in split.x.tolist()}


def test_given_validation_examples_are_what_ways_are_compared_by() -> None:
    federation = tables(2)
    given = replace(federation, validation=federation.test)
    trial = for_selection(given, seed=0)
    assert trial.test is federation.test
    assert trial.validation is None
    assert len(trial.train.x) == len(federation.train.x)


def test_the_same_question_has_the_same_answer(two: umbel.Advice) -> None:
    again = umbel.advise(tables(2), net(), local=LOCAL, budget=SHORT)
    assert summary(again) == summary(two)


@pytest.mark.thorough
def test_regressions_and_clients_with_few_examples_are_advised_on() -> None:
    rng = np.random.default_rng(0)
    pairs = []
    for client in range(12):
        x = rng.normal(size=(3 if client == 0 else 40, 4)).astype(np.float32)
        pairs.append((x, x[:, 0] * (1 if client % 2 else -1)))
    federation = umbel.Federation.from_arrays(pairs)
    regression = umbel.Net(lambda: torch.nn.Linear(4, 1), umbel.REGRESSION)
    local = umbel.LocalTraining(lr=0.03, epochs=2)
    advice = umbel.advise(federation, regression, local=local, budget=SHORT)
    assert advice.verdict.answer == "clusters"
    assert [advice.clusters[str(client)] % 2 for client in range(1, 12)] == [0, 1] * 5 + [0]


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ((2, 2, 2), "No client has enough training examples to set any apart for validation: "),
        ((1, 1, 5, 5), "No client has more than one validation example: "),
    ],
)
def test_clients_of_next_to_nothing_are_too_few_examples_to_tell(
    sizes: tuple[int, ...], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    advice = umbel.advise(blobs(sizes), mlp(), local=LOCAL, budget=2)
    assert advice.verdict.answer == "too few examples to tell"
    assert str(advice).count(why) == 1
    assert "can be compared" not in str(advice)
    assert "1 training examples" not in str(advice)
    assert caplog.text == ""


@pytest.mark.filterwarnings("error")
def test_inputs_that_are_all_equal_say_nothing_and_warn_of_nothing() -> None:
    clients = [(np.zeros((10, 6), dtype=np.float32), np.arange(10) % 3)] * 6
    advice = umbel.advise(umbel.Federation.from_arrays(clients, clients, num_classes=3), mlp())
    assert advice.verdict.answer == "one model"


@pytest.mark.filterwarnings("error")
def test_clients_of_one_label_each_get_as_many_groups_as_there_are_labels() -> None:
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(20, 4)), np.full(20, client % 2)) for client in range(12)]
    advice = umbel.advise(umbel.Federation.from_arrays(pairs), net(), local=LOCAL, budget=SHORT)
    assert advice.structure.num_groups == 2
    assert [advice.clusters[str(client)] for client in range(12)] == [0, 1] * 6


def test_few_clients_that_contradict_each_other_do_not_get_one_model() -> None:
    few = tables(2, clients=2, examples=200)
    advice = umbel.advise(few, net(), local=LOCAL, budget=SHORT)
    assert advice.verdict.answer in ("clusters", "train alone")
    assert advice.verdict.over_one.low > 0
    assert "need not hold for others" in str(advice)
    assert "do not differ" not in str(advice)
    assert [each.kind for each in advice.structure.differences if each.found]
    assert summary(advice).interval_over == "examples"


def test_losses_and_gains_of_few_clients_are_means_over_the_same_clients() -> None:
    rng = np.random.default_rng(0)
    pairs = []
    for client, examples in enumerate((1, 2, 300, 5)):  # none, none, 60 and 1 to judge by
        x = rng.normal(size=(examples, 4)).astype(np.float32)
        pairs.append((x, x @ np.arange(1, 5) * (-1) ** client))
    network = umbel.Net(lambda: torch.nn.Linear(4, 1), umbel.REGRESSION)
    local = umbel.LocalTraining(lr=0.03)
    advice = umbel.advise(umbel.Federation.from_arrays(pairs), network, local=local, budget=8)
    one, *others = [each for each in advice.standings if not each.contender.tuned]
    for each in others:
        assert lead(each, one).mean == pytest.approx(one.mean - each.mean, abs=1e-6)
    left_out = "3 clients with fewer than two validation examples are left out of the mean"
    assert left_out in str(advice)


def test_two_clients_that_are_alike_get_one_model() -> None:
    advice = umbel.advise(tables(1, clients=2, examples=200), net(), local=LOCAL, budget=SHORT)
    assert advice.verdict.answer == "one model"


def test_a_single_client_is_not_advised_on() -> None:
    with pytest.raises(umbel.UsageError, match="two clients or more"):
        umbel.advise(tables(1, clients=1), net())


@pytest.mark.parametrize("share", [0, 1.5])
def test_a_share_that_is_none_is_refused_before_clients_are_compared(share: float) -> None:
    begun: list[str] = []
    with pytest.raises(umbel.UsageError, match=r"participation: .* is not in \(0, 1\]"):
        umbel.advise(tables(1), net(), participation=share, progress=begun.append)
    assert not begun


def test_the_command_prints_writes_and_names_the_run_to_make_next(tmp_path: Path) -> None:
    tables(2).save(tmp_path / "sites")
    out = tmp_path / "advice"
    asked = ["advise", str(tmp_path / "sites"), "--budget", "20", "--out", str(out)]
    said = CliRunner().invoke(app, [*asked, "--set", "model.hidden=[8]"])
    assert said.exit_code == 0, said.output
    assert "Train 2 models, one for each cluster of clients" in said.output
    assert read_summary(out).num_clusters == 2
    assert json.loads((out / "advice.json").read_text())["answer"] == "clusters"
    experiment = umbel.read(out / "experiment.toml")
    assert isinstance(experiment.algorithm, umbel.FixedClusters)
    written = (out / "report.html").read_text()
    assert f"Where umbel advise was used, umbel run {out}/experiment.toml runs" in written
    made = ["run", str(out / "experiment.toml"), "--runs-dir", str(tmp_path / "runs")]
    assert CliRunner().invoke(app, made).exit_code == 0
    shown = CliRunner().invoke(app, ["show", str(out)])
    assert "Train 2 models, one for each cluster of clients" in shown.output
    judged = CliRunner().invoke(app, ["show", str(out), "--judge", "loss"])
    assert "--judge: compares methods, and" in str(judged.exception)
    page = CliRunner().invoke(app, ["report", str(out)])
    assert page.exit_code == 0, page.output
    assert "should I cluster?" in (out / "report.html").read_text(encoding="utf-8")


def test_a_gain_that_ranks_alone_make_sure_is_said_to_be_sure_by_them(two: umbel.Advice) -> None:
    losses = np.array([*np.linspace(0.5, 0.6, 11), 9.0])  # the last client would hide all others
    found = gain(losses - [*np.linspace(0.01, 0.02, 11), 0.6], losses)
    assert found.low < 0 < found.mean
    assert found.sure
    said = str(replace(two, verdict=replace(two.verdict, over_one=found)))
    assert "significant by Wilcoxon's signed-rank test, p = 0.00024)." in said
    assert "Wilcoxon" not in str(two)


def test_a_folder_of_advice_is_taken_for_no_run(tmp_path: Path) -> None:
    advice = tmp_path / "advice"
    advice.mkdir()
    (advice / "advice.json").write_text("{}")
    (advice / "experiment.toml").write_bytes(umbel.find_experiment("fedavg-digits").read_bytes())
    there = sorted(advice.iterdir())
    for asked in (["resume"], ["finish"], ["assign", str(tmp_path)], ["show", "--json"]):
        refused = CliRunner().invoke(app, [asked[0], str(advice), *asked[1:]]).exception
        assert "advice: holds advice and no run; `umbel report" in str(refused)
        assert "`umbel run " in str(refused)
    with pytest.raises(umbel.UsageError, match="the folder of a run, or a folder"):
        umbel.results(tmp_path)
    with pytest.raises(umbel.UsageError, match="holds advice and no run"):
        umbel.Run(umbel.FedAvg(), tables(1), net()).save(advice, 1)
    assert sorted(advice.iterdir()) == there


@pytest.mark.parametrize("tuned", [True, False])
def test_the_run_to_make_next_fine_tunes_where_that_is_advised(
    two: umbel.Advice, tuned: bool
) -> None:
    plain = next(each.contender for each in two.standings if each.contender.kind == "clusters")
    chosen = replace(plain, base=plain if tuned else None)
    verdict = replace(two.verdict, chosen=replace(two.verdict.chosen, contender=chosen))
    asked = umbel.read(umbel.find_experiment("fedavg-digits"), ["scenario.clients=16"])
    local = replace(LOCAL, optimizer=umbel.SGD(momentum=0.9))
    following = next_experiment(replace(two, verdict=verdict, local=local), asked)
    assert isinstance(following.algorithm, umbel.FixedClusters)
    assert following.algorithm.clients == two.names
    personal = umbel.Personal(lr=LOCAL.lr, optimizer=local.optimizer, validation_fraction=0.2)
    expected = personal if tuned else None
    assert following.personal == expected


def test_an_answer_for_other_data_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    said = CliRunner().invoke(app, ["advise", "rotated-digits", "--out", str(tmp_path)])
    assert "a new folder, or one with advice in it" in str(said.exception)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["notes.txt"]


def test_data_that_are_nowhere_are_refused_with_what_is_near(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["advise", "rotated-digit", "--out", str(tmp_path / "a")])
    assert "rotated-digits" in str(said.exception)
    assert not (tmp_path / "a").exists()


def test_damaged_advice_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "advice.json").write_text('{"answer": 3}')
    said = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(said.exception, umbel.UsageError)
    assert "advice.json" in str(said.exception)


def test_budgets_are_rounds_or_time() -> None:
    assert Allowance.of("40") == Allowance(rounds=40)
    assert Allowance.of("5m").seconds == 300
    assert Allowance.of(40) == Allowance.of("40")
    assert Allowance.of("2.5m").seconds == 150
    for wrong in ("0", "five", "-1", "9999999999", 0, -1, "2.5", 2.5, "1e2"):
        with pytest.raises(umbel.UsageError, match=f"budget: {wrong!r} is not rounds, 1 or more"):
            umbel.advise(tables(1), net(), budget=wrong)  # type: ignore[arg-type]


@pytest.mark.long
def test_clusters_are_not_passed_over_for_fine_tuning_that_clusters_as_long_would_beat() -> None:
    federation = umbel.scenario("rotated-digits", clients=12, seed=0)
    linear = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    local = umbel.LocalTraining(lr=0.05, epochs=1)
    advice = umbel.advise(federation, linear, local=local, budget=3)
    tuned = [each for each in advice.standings if each.contender.tuned]
    # Each clustering that is fine-tuned has one model and itself as rivals, one model has all.
    count = len(tuned)
    assert count in (2, 3)
    rivals = [len({r.contender.name for r in each.rivals}) for each in tuned]
    assert rivals == [count, *[2] * (count - 1)]
    assert advice.verdict.answer == "clusters"
    assert adjusted_rand_score(federation.groups, list(advice.clusters.values())) == 1.0


@pytest.mark.thorough
def test_ways_are_compared_with_the_participation_that_the_run_to_make_next_has(
    tmp_path: Path,
) -> None:
    whole, few = (
        umbel.advise(tables(2), net(), local=LOCAL, budget=6, participation=share)
        for share in (1.0, 0.25)
    )
    assert whole.standings[0].all_megabytes == pytest.approx(4 * few.standings[0].all_megabytes)
    asked = ["rotated-digits", "--budget", "2", "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, ["advise", *asked, "--set", "privacy.clip=1"])
    assert "privacy.clip: 1.0 is not allowed" in str(refused.exception)
    assert not (tmp_path / "out").exists()
