"""What nodes fail to do costs a round their clients, and a server what it has to do again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import ERRORS, MemoryGrid
from tests.flower.small import SMALL, engine_of, fated, grid_of, last_state
from umbel.algorithms import FedAvg, FedEM
from umbel.checks import UsageError
from umbel.data.sources import Sources
from umbel.engines.replies.guarded import QuorumError
from umbel.flower import Settings, serve
from umbel.flower.exchange import WITHOUT_ANSWER, WORK
from umbel.folder.run_folder import RunFolder
from umbel.result.run import Result
from umbel.testing import assert_same_state


@pytest.mark.parametrize("fate", ["silent", "late", "gone", "dead"])
def test_clients_of_a_node_without_an_answer_are_missing(
    fate: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, record, _ = fated(tmp_path, {1: fate})
    assert record.missing == (1, 4, 7)
    assert not record.refused
    if fate in ERRORS:  # what umbel knows about it is said, in its own words
        assert f"node 993: {WITHOUT_ANSWER[ERRORS[fate]]}: clients '1', '4', '7' are" in caplog.text


def test_clients_of_a_node_that_is_gone_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=r"8 did not answer \(node 1000: not connected, node 993"):
        fated(tmp_path, dict.fromkeys(range(3), "gone"), quorum=0.1)


def test_clients_of_a_node_that_answers_with_an_error_are_refused(tmp_path: Path) -> None:
    _, record, _ = fated(tmp_path, {2: "raised"})
    why = f"node 986: error {ERRORS['raised']}: raised; this node's log says more"
    assert record.refused == dict.fromkeys((2, 5), why)
    assert not record.missing


def test_what_comes_twice_counts_once(tmp_path: Path) -> None:
    found, record, _ = fated(tmp_path, {0: "twice", 1: "twice"})
    expected, _, _ = fated(tmp_path / "other", {})
    assert_same_state(found, expected)
    assert not record.missing


def test_what_comes_late_is_not_taken_for_a_later_round(tmp_path: Path) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=3)
    grid = grid_of(experiment, tmp_path)
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    late = list(grid.apps)[1]
    grid.fate[late] = "late"
    states = run.rounds(3)
    state, record = next(states)
    assert record.missing == (1, 4, 7)
    grid.fate.clear()  # from here on, the late reply comes with every other one
    found, record = next(states)
    assert not record.missing
    ((expected, _),) = experiment.open(Sources.default()).rounds(2, state, first=1)
    assert_same_state(found, expected, 1e-5)


def test_no_reply_at_all_is_no_round(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match="round 0: 0 of 8 clients gave a usable reply"):
        fated(tmp_path, {0: "silent", 1: "silent", 2: "silent"}, quorum=0.1)


def test_a_node_that_comes_back_under_another_id_is_found_again(tmp_path: Path) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=3)
    grid = grid_of(experiment, tmp_path)
    engine = engine_of(grid, release_after=0.0)
    run = replace(experiment.open(Sources.default()), engine=engine)
    states = run.rounds(3)
    next(states)
    old = list(grid.apps)[1]
    grid.fate[old] = "gone"
    assert next(states)[1].missing == (1, 4, 7)
    grid.apps = {**grid.apps, 5: grid.apps[old]}
    grid.configs = {**grid.configs, 5: grid.configs[old]}
    assert next(states)[1].missing == ()


def test_what_clients_keep_is_not_sent_to_them_again_but_for_those_that_lost_it(
    tmp_path: Path,
) -> None:
    experiment = replace(SMALL, algorithm=FedEM(local=LOCAL), participation=1.0, evaluate_every=9)
    expected = last_state(experiment, None)
    sizes = {}
    for way in "kept", "lost":
        grid = grid_of(experiment, tmp_path / way)
        run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
        for after, _ in run.rounds(experiment.rounds):
            state = after
            if way == "lost":
                for file in (tmp_path / way).glob("*.safetensors"):
                    file.unlink()
        assert_same_state(state, expected, 1e-4)
        sizes[way] = len(grid.asked)
    assert sizes["lost"] > sizes["kept"]


def test_a_server_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    experiment = replace(SMALL, checkpoint_every=2)
    settings = Settings(8, patience=5, time_limit=5, runs_dir=str(tmp_path / "runs"))
    grid = grid_of(experiment, tmp_path)
    whole = serve(grid, experiment, replace(settings, runs_dir=str(tmp_path / "whole")))

    class KilledError(Exception):
        pass

    class Dying(MemoryGrid):
        def push_messages(self, messages: Any) -> list[str]:
            if self.asked.count("query.work") > 15:
                raise KilledError
            return super().push_messages(messages)

    with pytest.raises(KilledError):
        serve(Dying(grid.apps, grid.configs), experiment, settings)
    folder = RunFolder(tmp_path / "runs" / "small-seed0")
    assert folder.begun
    assert not folder.finished
    folder = serve(MemoryGrid(grid.apps, grid.configs), experiment, settings)
    assert [r.untimed() for r in folder.records()] == [r.untimed() for r in whole.records()]
    assert folder.file("clusters.csv").read_bytes() == whole.file("clusters.csv").read_bytes()


def test_too_few_clients_are_said_with_the_nodes_that_gave_no_answer(tmp_path: Path) -> None:
    grid = grid_of(SMALL, tmp_path)
    grid.fate[next(iter(grid.apps))] = "silent"
    settings = Settings(8, patience=0.5, runs_dir=str(tmp_path / "runs"))
    expected = "clients: 5 is not at least 8 after 0.5 s, .* node gave no answer yet: node 1000"
    with pytest.raises(UsageError, match=expected):
        serve(grid, SMALL, settings)


class SilentOnce(MemoryGrid):
    """Nodes are silent for one exchange of work, counted from 1; the first may do another thing."""

    silent_for = 0
    exchanges = 0
    first = "silent"

    def push_messages(self, messages: Any) -> list[str]:
        messages = list(messages)
        works = messages[0].metadata.message_type == WORK
        self.exchanges += works
        silent = works and self.exchanges == self.silent_for
        fates = {**dict.fromkeys(self.apps, "silent"), next(iter(self.apps)): self.first}
        self.fate = fates if silent else {}
        return super().push_messages(messages)


def test_a_last_evaluation_that_nobody_answers_is_asked_for_again(
    tmp_path: Path,
) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=2)
    settings = Settings(8, patience=5, time_limit=0.5, runs_dir=str(tmp_path / "runs"))
    plain = grid_of(experiment, tmp_path)
    whole = serve(plain, experiment, replace(settings, runs_dir=str(tmp_path / "whole")))
    grid = SilentOnce(plain.apps, plain.configs)
    grid.silent_for = 4  # training and evaluation take turns
    expected = "round 1: no usable answer .* 8 did not answer.*; .* the same `flwr run` asks again"
    with pytest.raises(QuorumError, match=expected):
        serve(grid, experiment, settings)
    assert not RunFolder(tmp_path / "runs" / "small-seed0").finished
    folder = serve(grid, experiment, settings)
    assert grid.exchanges == 5  # nothing is trained again
    assert folder.file("clusters.csv").read_bytes() == whole.file("clusters.csv").read_bytes()
    last = folder.records()[-1]
    assert last.accuracy == whole.records()[-1].accuracy
    assert not last.missing


def test_a_run_ends_without_test_scores_if_its_last_evaluation_lacks_the_same_clients_again(
    tmp_path: Path,
) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=2)
    settings = Settings(8, patience=5, time_limit=0.5, runs_dir=str(tmp_path / "runs"))
    plain = grid_of(experiment, tmp_path)
    grid = SilentOnce(plain.apps, plain.configs)
    said = "ends without test scores if it is the same again"
    for grid.silent_for, grid.first in (4, "silent"), (5, "silent"), (6, "raised"):
        with pytest.raises(QuorumError, match="no usable answer to the last evaluation") as error:
            serve(grid, experiment, settings)
        assert (said in str(error.value)) == (grid.first == "raised")
    grid.silent_for = 7
    folder = serve(grid, experiment, settings)
    assert folder.finished
    assert folder.records()[-1].accuracy is None
    assert Result(folder).model(cluster=0) is not None


def test_an_evaluation_before_the_last_goes_without_answers(tmp_path: Path) -> None:
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=2)
    settings = Settings(8, patience=5, time_limit=0.5, runs_dir=str(tmp_path / "runs"))
    plain = grid_of(experiment, tmp_path)
    grid = SilentOnce(plain.apps, plain.configs)
    grid.silent_for = 2
    first, last = serve(grid, experiment, settings).records()
    assert (first.accuracy, len(first.missing)) == (None, 8)
    assert last.accuracy is not None
