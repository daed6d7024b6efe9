"""Runs whose clients come, leave and come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.run.test_time import federation as over_time
from tests.run.test_time import net as small_net
from umbel import (
    CFLGP,
    FLACC,
    IFCA,
    Available,
    Event,
    FedAvg,
    FixedClusters,
    LocalOnly,
    LocalTraining,
    Membership,
    Oracle,
    RandomClusters,
    Run,
    Time,
    Weighted,
    load,
    resume,
    write_report,
)
from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.feddrift import FedDrift
from umbel.algorithms.ifca import IFCAState
from umbel.checks import UsageError
from umbel.engines import EngineSettings
from umbel.flow import Engine, Replies, Request
from umbel.run.participation import Participation
from umbel.run.records import Record
from umbel.testing import assert_same_state, blobs, mlp
from umbel.testing.federations import SIZES

ROUNDS = 8
LOCAL = LocalTraining(lr=0.2, epochs=2, batch_size=8)
CLIENTS = blobs((*SIZES, 9, 10))  # "0" to "9"
EVENTS = (
    Event(2, joins=("8",), leaves=("1",)),
    Event(4, joins=("1", "9"), leaves=("0", "2")),
    Event(6, joins=("0",)),
)
METHODS: list[Algorithm[Any]] = [
    FedAvg(local=LOCAL),
    IFCA(local=LOCAL),
    FLACC(local=LOCAL, n_sep=2),
    CFLGP(local=LOCAL),
    FedDrift(local=LOCAL),
    LocalOnly(local=LOCAL),
]


def run_of(method: Algorithm[Any], membership: Membership | None = None, **more: Any) -> Run:
    there = Membership(EVENTS, forget_after=1) if membership is None else membership
    return Run(method, CLIENTS, mlp(), **{"membership": there, "participation": 0.6, **more})


def rounds_of(run: Run) -> list[tuple[State, Record]]:
    return [(state, record.untimed()) for state, record in run.rounds(ROUNDS)]


class Noting:
    """An engine that notes who is asked in each round's requests."""

    beside = True

    def __init__(self, engine: Engine) -> None:
        self.engine, self.asked = engine, set[int]()

    def send(self, request: Request) -> Replies:
        self.asked |= set(request.clients.tolist())
        return self.engine.send(request)


class TestWhoIsThere:
    def test_records_say_who_came_and_left(self) -> None:
        records = [record for _, record in rounds_of(run_of(IFCA(local=LOCAL)))]
        moves = {n: (each.joined, each.left) for n, each in enumerate(records)}
        assert moves == dict.fromkeys(range(ROUNDS), ((), ())) | {
            2: ((8,), (1,)),
            4: ((1, 9), (0, 2)),
            6: ((0,), ()),
        }
        assert [Record.from_json(each.to_json()) for each in records] == records

    def test_records_say_who_moved(self) -> None:
        run, before, found = run_of(IFCA(local=LOCAL)), dict[int, int](), list[tuple[int, ...]]()
        for number, (state, record) in enumerate(rounds_of(run)):
            members, labels = run.members(number), state.labels.tolist()
            now = dict(zip(members.clients.tolist(), labels, strict=True))
            stayed = members.clients[: len(members.kept)].tolist()
            moved = tuple(client for client in stayed if now[client] != before.get(client, -1))
            assert record.moved == (moved if number else ())
            before, found = now, [*found, moved]
        assert any(found[1:])

    def test_nobody_else_is_asked(self) -> None:
        run = run_of(IFCA(local=LOCAL), participation=1.0)
        engine = Noting(run.clients)
        away = {0: {8, 9}, 2: {1, 9}, 4: {0, 2}, 6: {2}}
        for number, _ in enumerate(replace(run, engine=engine).rounds(ROUNDS)):
            assert engine.asked == set(range(10)) - away[number // 2 * 2]
            engine.asked.clear()

    def test_a_state_has_rows_of_members_alone(self) -> None:
        for forget_after, sizes in (
            (1, [8, 8, 9, 8, 10, 8, 9, 9]),
            (3, [8, 8, 9, 9, 10, 10, 10, 9]),
        ):
            run = run_of(FLACC(local=LOCAL), Membership(EVENTS, forget_after=forget_after))
            assert [len(state.labels) for state, _ in run.rounds(ROUNDS)] == sizes

    def test_who_comes_back_in_time_has_its_place_and_later_it_is_new(self) -> None:
        for forget_after, known in ((2, True), (1, False)):
            membership = Membership(
                (Event(3, leaves=("1",)), Event(5, joins=("1",))), forget_after=forget_after
            )
            run = run_of(LocalOnly(local=LOCAL), membership, participation=1.0)
            before, *_, after = [state for state, _ in run.rounds(6)][2:5]
            members = run.members(5)
            assert (1 in members.clients[: len(members.kept)]) == known
            if known:  # its own model is as it was
                assert torch.equal(before.models[1], after.models[1])
                assert not torch.equal(before.models[0], after.models[0])

    @pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
    def test_without_a_change_all_is_as_without_membership(self, method: Algorithm[Any]) -> None:
        plain = rounds_of(replace(run_of(method), membership=None))
        for (state, record), (other, same) in zip(
            rounds_of(run_of(method, Membership())), plain, strict=True
        ):
            assert_same_state(state, other)
            assert replace(record, joined=None, left=None, moved=None) == same

    def test_all_that_ever_come_are_one_federation_from_the_start_of_their_time(self) -> None:
        """Until a client comes, the run is that of a federation without it."""
        membership = Membership((Event(3, joins=("9",)),))
        for method in METHODS:
            run = run_of(method, membership)
            without = replace(run, federation=CLIENTS.pick(range(9)), membership=None)
            for number in range(3):
                state, other = (rounds_of(each)[number][0] for each in (run, without))
                assert_same_state(state, other)


class TestNewcomers:
    def test_ifca_lets_them_choose(self) -> None:
        *_, (state, record) = run_of(IFCA(local=LOCAL), participation=1.0).rounds(ROUNDS)
        assert isinstance(state, IFCAState)
        assert record.ari == 1.0
        assert (state.choices >= 0).all()

    def test_flacc_places_them_after_it_has_separated(self) -> None:
        run = run_of(
            FLACC(local=LOCAL, n_sep=1, n_merge=4),
            Membership((Event(6, joins=("8", "9")),)),
            participation=1.0,
        )
        states = [state for state, _ in run.rounds(7)]
        labels, groups = states[-1].labels, CLIENTS.groups
        assert len(states[5].models) > 1  # it has separated
        assert groups is not None
        for newcomer in (8, 9):
            alike = [
                int(labels[client]) for client in range(8) if groups[client] == groups[newcomer]
            ]
            assert int(labels[newcomer]) in alike

    def test_local_models_stay_with_their_clients(self) -> None:
        run = run_of(LocalOnly(local=LOCAL), participation=1.0)
        states = [state for state, _ in run.rounds(4)]
        alone = Run(LocalOnly(local=LOCAL), CLIENTS, mlp())
        expected = [state for state, _ in alone.rounds(2)]
        assert torch.equal(states[1].models, expected[1].models[:8])
        assert torch.equal(states[2].labels, torch.arange(9))

    def test_clusters_by_name_are_theirs(self) -> None:
        named = FixedClusters(tuple(n % 3 for n in range(10)), LOCAL, clients=CLIENTS.names)
        run = run_of(named)
        for number, (state, _) in enumerate(run.rounds(ROUNDS)):
            members = run.members(number)
            assert state.labels.tolist() == (members.clients % 3).tolist()

    def test_the_oracle_gives_a_group_that_comes_later_a_model(self) -> None:
        federation = replace(CLIENTS, groups=np.array([0, 1] * 4 + [2, 1]))
        run = replace(run_of(Oracle(local=LOCAL)), federation=federation)
        for number, (state, _) in enumerate(run.rounds(ROUNDS)):
            members = run.members(number)
            assert federation.groups is not None
            assert state.labels.tolist() == federation.groups[members.clients].tolist()
            assert len(state.models) == 2 + (number >= 2)


class TestRates:
    RATES = Membership(joining=0.2, leaving=0.2, share=0.5, forget_after=2)

    def test_they_are_a_function_of_the_seed(self) -> None:
        run = run_of(IFCA(local=LOCAL), self.RATES)
        first, again = rounds_of(run), rounds_of(run_of(IFCA(local=LOCAL), self.RATES))
        assert [record for _, record in first] == [record for _, record in again]
        assert any(record.joined for _, record in first)
        other = rounds_of(run_of(IFCA(local=LOCAL), self.RATES, seed=1))
        assert [r.joined for _, r in other] != [r.joined for _, r in first]
        # A run that goes on knows who was there.
        state, following = first[4][0], list(run.rounds(ROUNDS, first[4][0], 5))
        assert len(state.labels) == len(run.members(4).clients)
        assert_same_state(following[-1][0], first[-1][0])

    def test_about_as_many_come_as_leave(self) -> None:
        attendance = Membership(joining=0.1, leaving=0.1, share=0.5).attendance(
            tuple(map(str, range(1000))), 0
        )
        sizes = [len(attendance.at(number).here) for number in range(50)]
        assert sizes[0] == 500
        assert min(sizes) > 400
        assert max(sizes) < 600

    def test_everybody_may_leave_and_others_come(self) -> None:
        everyone = CLIENTS.names
        events = (Event(2, leaves=everyone[:8]), Event(4, joins=everyone[8:]))
        for method in METHODS:
            run = run_of(method, Membership(events, forget_after=1))
            sizes = [len(state.labels) for state, _ in run.rounds(6)]
            assert sizes == [8, 8, 8, 8, 2, 2]


class TestEngines:
    @pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
    def test_give_the_same(self, method: Algorithm[Any]) -> None:
        kinds = [EngineSettings(name=n) for n in ("vectorised", "sequential")]
        double = replace(run_of(method), net=mlp(dtype=torch.float64))
        each = (*kinds, EngineSettings(workers=2))
        first, *others = [rounds_of(replace(double, engine=engine)) for engine in each]
        for other in others:
            for (one, record), (same, there) in zip(first, other, strict=True):
                assert_same_state(one, same, tolerance=1e-6)
                assert record.gradient_evaluations == there.gradient_evaluations


class TestWithTime:
    def test_clients_come_when_their_data_do(self) -> None:
        membership = Membership((Event(2, joins=("c5",)), Event(6, leaves=("c3",))), forget_after=1)
        for method in (FedDrift(local=LOCAL), IFCA(local=LOCAL), Oracle(local=LOCAL)):
            run = Run(method, over_time(), small_net(), time=Time(rounds=2), membership=membership)
            records = [record for _, record in run.rounds(8)]
            ends = [record.clusters for record in records if record.clusters is not None]
            assert [[place for place, c in enumerate(each) if c < 0] for each in ends] == [
                [5],
                [],
                [],
                [3],
            ]

    def test_feddrift_gives_a_newcomer_a_model_within_a_step(self) -> None:
        membership = Membership((Event(3, joins=("c5",)),))
        run = Run(
            FedDrift(local=LOCAL),
            over_time(),
            small_net(),
            time=Time(rounds=2),
            membership=membership,
        )
        states = [state for state, _ in run.rounds(8)]
        assert states[3].owners[5, 1] >= 0  # type: ignore[attr-defined]


class TestFolders:
    def test_a_run_that_was_killed_goes_on_with_its_members(self, tmp_path: Path) -> None:
        for method in METHODS[:4]:
            name = type(method).__name__
            whole = list(run_of(method).rounds(ROUNDS, folder=tmp_path / name))
            begun = run_of(method).rounds(ROUNDS, folder=tmp_path / f"{name}-killed")
            for _ in range(5):
                next(begun)
            del begun  # its folder is free again
            resumed = resume(tmp_path / f"{name}-killed", run_of(method))
            assert [r.untimed() for r in resumed.records] == [r.untimed() for _, r in whole]
            assert_same_state(resumed.state, whole[-1][0])

    def test_results_are_of_the_members_in_the_end(self, tmp_path: Path) -> None:
        for method in (IFCA(local=LOCAL), LocalOnly(local=LOCAL)):
            folder = tmp_path / type(method).__name__
            *_, (state, _) = run_of(method).rounds(ROUNDS, folder=folder)
            result = load(folder, mlp())
            assert sorted(result.clusters) == ["0", "1", "3", "4", "5", "6", "7", "8", "9"]
            assert [client.number for client in result.clients] == [0, 1, *range(3, 10)]
            for name in result.clusters:
                assert result.model_for(name) is not None
            assert write_report(folder).is_file()
        # Row 0 is client "3": those before it have left, and came back as others.
        model = result.net.layout.tensors(state.models[0])
        found = dict(load(folder, mlp()).model_for("3").state_dict())
        assert all(torch.equal(found[name], tensor) for name, tensor in model.items())

    def test_settings_are_read_back(self, tmp_path: Path) -> None:
        run_of(IFCA(local=LOCAL)).save(tmp_path / "run", ROUNDS)
        assert load(tmp_path / "run").experiment.membership == Membership(EVENTS, forget_after=1)


class TestRefused:
    @pytest.mark.parametrize(
        ("membership", "message"),
        [
            (Membership((Event(2, joins=("nobody",)),)), "membership.events: no client 'nobody'"),
            (Membership(present=("x",)), "membership.present: no client 'x'"),
            (
                Membership((Event(2, leaves=("1",)), Event(3, leaves=("1",)))),
                "leaves of round 3: '1' is not a client that is there before the round",
            ),
            (
                Membership((Event(2, joins=("1",)),), present=("0", "1")),
                "joins of round 2: '1' is not a client that is not there before the round",
            ),
        ],
    )
    def test_before_the_first_round(self, membership: Membership, message: str) -> None:
        with pytest.raises(UsageError) as error:
            run_of(IFCA(local=LOCAL), membership).rounds(ROUNDS)
        assert message in str(error.value)

    @pytest.mark.parametrize(
        "settings",
        [{"joining": 1.0}, {"leaving": -0.1}, {"share": 0.0}, {"forget_after": -1}],
        ids=str,
    )
    def test_rates_out_of_range(self, settings: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match=next(iter(settings))):
            Membership(**settings)

    def test_an_event_before_the_first_round(self) -> None:
        with pytest.raises(UsageError, match="round: 0 is not 1 or more"):
            Event(0, joins=("a",))

    @pytest.mark.parametrize(
        "method",
        [FixedClusters((0, 1) * 5), RandomClusters(sizes=(4, 6)), CFLGP(clusters=(0, 1) * 5)],
    )
    def test_clusters_of_a_fixed_list_of_clients(self, method: Algorithm[Any]) -> None:
        with pytest.raises(UsageError, match=r"left out with \[membership\]"):
            run_of(method)

    @pytest.mark.parametrize(
        "participation", [Available(rounds=(("1",), ("2",))), Weighted(weights=(1.0,) * 10)]
    )
    def test_whom_to_ask_of_a_fixed_list_of_clients(self, participation: Participation) -> None:
        with pytest.raises(UsageError, match=r"participation\..*left out with \[membership\]"):
            run_of(IFCA(local=LOCAL), participation=participation)
