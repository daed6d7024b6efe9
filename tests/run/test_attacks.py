"""Simulated attackers, and the quarantine of suspicious clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.federations import blobs, mlp
from tests.flower.small import SMALL, grid_of, last_state
from umbel.algorithms import FLACC, IFCA, FedAvg, Restarts
from umbel.algorithms.watched import Watched, of_steps, suspicion_after
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.sources import Sources
from umbel.engines.choice import EngineSettings
from umbel.engines.privacy import Privacy
from umbel.engines.replies.attacks import Attack, Kind
from umbel.engines.replies.validation import Limits
from umbel.flow import Replies, Request, Rows
from umbel.result.run import Run, resume
from umbel.server.aggregation import Averaging
from umbel.server.averaging_rules import Mean
from umbel.server.robust_rules import Median
from umbel.testing import assert_same_state

LOCAL = LocalTraining(lr=0.1, epochs=2, batch_size=8)
FEDERATION = replace(blobs((12,) * 10), names=tuple("abcdefghij"))
HONEST = torch.tensor([[1.0, 0.0], [3.0, 4.0], [2.0, 2.0]])
KINDS = [kind for kind in Kind.__args__ if kind != "none"]  # type: ignore[attr-defined]


def told(attack: Attack, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    """What is sent by three honest clients of a cluster, and by attackers at (2, -2), (0, 1)."""
    rows = torch.cat([HONEST, torch.tensor([[2.0, -2.0], [0.0, 1.0]])])
    columns = {"update": rows, "num_examples": torch.arange(5) + 10, **more}
    everyone = torch.arange(5)
    request = Request(
        LOCAL, everyone, [0] * 5, each={"theta": Rows(torch.zeros(1, 2), 0 * everyone)}
    )
    draw = torch.Generator().manual_seed(1)
    return attack.lies(request, Replies(everyone, columns), everyone > 2, draw, victim=1)


@pytest.mark.parametrize(
    ("kind", "strength", "expected"),
    [
        ("sign-flip", 2.0, [[-4.0, 4.0], [0.0, -2.0]]),
        ("scaling", None, [[20.0, -20.0], [0.0, 10.0]]),
        ("free-rider", None, [[0.0, 0.0], [0.0, 0.0]]),
        ("ipm", 0.5, [[-1.0, -1.0]] * 2),
        # mean (2, 2); standard deviations (sqrt(2/3), sqrt(8/3))
        ("alie", 1.5, [[2 - 1.5 * (2 / 3) ** 0.5, 2 - 1.5 * (8 / 3) ** 0.5]] * 2),
        ("sybils", None, [[-2.0, 2.0]] * 2),
        ("hijack", 3.0, [[-6.0, 6.0], [0.0, -3.0]]),
        ("false-alarm", None, [[2.0, -2.0], [0.0, 1.0]]),
    ],
)
def test_attackers_send(kind: Kind, strength: float | None, expected: Any) -> None:
    sent = told(Attack(kind, strength=strength))
    torch.testing.assert_close(sent["update"][:3], HONEST)
    torch.testing.assert_close(sent["update"][3:], torch.tensor(expected))
    assert sent["num_examples"].tolist() == [10, 11, 12, 13, 14]


def test_noise_and_fragments_have_the_length_of_the_own_step() -> None:
    noise = told(Attack("noise", strength=3))["update"][3:] - torch.tensor([[2.0, -2], [0, 1]])
    torch.testing.assert_close(noise.norm(dim=1), torch.tensor([3 * 8**0.5, 3.0]))
    fragments = told(Attack("fragment"))["update"][3:]
    torch.testing.assert_close(fragments.norm(dim=1), torch.tensor([8**0.5, 1.0]))


def test_attackers_of_the_clustering_say_what_others_say() -> None:
    losses = torch.tensor([[1.0, 2], [3, 4], [5, 6], [7, 8], [9, 10]])
    chosen = torch.tensor([0, 1, 0, 0, 1])
    hijack = told(Attack("hijack"), losses=losses, chosen=chosen)
    assert hijack["losses"][3:].tolist() == [[3.0, 4.0]] * 2  # those of client 1
    assert hijack["chosen"].tolist() == [0, 1, 0, 1, 1]
    fragment = told(Attack("fragment"), losses=losses, chosen=chosen)
    assert {*map(tuple, fragment["losses"][3:].sort(1).values.tolist())} <= {(1, 2), (3, 4), (5, 6)}
    # What contradicts itself would be refused.
    assert torch.equal(fragment["chosen"][3:], fragment["losses"][3:].argmin(1))
    vectors = torch.eye(3)[:, :2].repeat(5, 1, 1)
    sent = told(Attack("fragment"), vectors=vectors)["vectors"]
    torch.testing.assert_close(sent.transpose(1, 2) @ sent, torch.eye(2).expand(5, 2, 2))
    alarms = told(Attack("false-alarm"), losses=losses)["losses"][3:] / losses[3:]
    assert {*alarms.flatten().tolist()} in ({1.0}, {10.0})


def test_claims_change_nothing_else() -> None:
    sent = told(Attack(claims=10**9))
    assert sent["num_examples"].tolist() == [10, 11, 12, 10**9, 10**9]
    torch.testing.assert_close(sent["update"][3:], torch.tensor([[2.0, -2], [0, 1]]))


def test_attackers_are_a_share_of_each_group() -> None:
    groups = np.repeat([0, 1, 2, 3], [16, 12, 8, 4])
    names = tuple(map(str, range(40)))
    found = Attack("noise", share=0.25).attackers(names, groups, seed=5)
    assert np.bincount(groups[found]).tolist() == [4, 3, 2, 1]
    assert (
        found.tolist() == Attack("noise", share=0.25, seed=5).attackers(names, groups, 9).tolist()
    )
    named = Attack("noise", clients=("7", "3")).attackers(names, groups, 0)
    assert named.tolist() == [3, 7]


def test_poisoned_examples() -> None:
    x = torch.rand(8, 5)
    each = [(x[:4], np.array([0, 1, 2, 2])), (x[4:], np.array([0, 1, 2, 0]))]
    fed = Federation.from_arrays(each, each, num_classes=3)
    flipped = Attack("label-flip", clients=(fed.names[1],)).poisoned(fed, 0)
    assert flipped.train.y.tolist() == [0, 1, 2, 2, 2, 1, 0, 2]
    assert fed.train.y.tolist() == [0, 1, 2, 2, 0, 1, 2, 0]
    backdoor = Attack("backdoor", clients=(fed.names[0],), strength=1).poisoned(fed, 0)
    assert backdoor.train.y.tolist() == [0, 0, 0, 0, 0, 1, 2, 0]
    assert (backdoor.train.x[:4, -3:] == fed.train.x.max()).all()
    assert torch.equal(backdoor.train.x[4:], fed.train.x[4:])
    triggered = Attack("backdoor").triggered(fed)
    assert triggered.test.sizes.tolist() == [3, 2]
    assert not triggered.test.y.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [FedAvg(LOCAL), IFCA(2, LOCAL), FLACC(LOCAL)], ids=repr)
def test_attacks_are_the_same_on_every_engine_and_do_not_end_a_run(kind: Any, method: Any) -> None:
    attack = Attack(kind, share=0.3)
    run = Run(method, FEDERATION, mlp(dtype=torch.float64), seed=3, attack=attack)
    states = []
    for engine in ("sequential", "vectorised"):
        *_, (state, record) = replace(run, engine=EngineSettings(engine)).rounds(4)
        states.append(state)
        assert "honest_accuracy" in record.measures
    torch.testing.assert_close(states[0].models, states[1].models)
    *_, (honest, _) = replace(run, attack=Attack()).rounds(4)
    said = kind == "false-alarm" or (kind == "label-flip" and method == FLACC(LOCAL))
    assert said or not torch.allclose(honest.models, states[0].models)


def test_sleepers_are_honest_before_they_begin() -> None:
    run = Run(FedAvg(LOCAL), FEDERATION, mlp(), seed=3, attack=Attack("sign-flip", begin=2))
    honest = [s.models for s, _ in replace(run, attack=Attack()).rounds(3)]
    found = [s.models for s, _ in run.rounds(3)]
    assert torch.equal(honest[1], found[1])
    assert not torch.equal(honest[2], found[2])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "noise", "share": 2}, "share: 2 is not in"),
        ({"kind": "label-flip", "begin": 1}, "begin: 1 is not 0"),
        ({"kind": "backdoor", "strength": 2}, "strength: 2 is not at most 1"),
        ({"kind": "noise", "clients": ("x",)}, "attack.clients: 'x' is not a client"),
        ({"kind": "hijack", "victim": "x"}, "attack.victim: 'x' is not a client"),
    ],
)
def test_impossible_attacks_are_refused(settings: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        list(Run(FedAvg(LOCAL), FEDERATION, mlp(), attack=Attack(**settings)).rounds(1))


def test_evidence_is_what_is_unusual_in_a_cluster() -> None:
    drawn = torch.Generator().manual_seed(0)
    rows = torch.ones(20, 500) + torch.randn(20, 500, generator=drawn)
    rows[0], rows[1], rows[2] = -rows[0], 10 * rows[1], 0
    rows[4] = rows[3]
    found, cosines = of_steps(rows, torch.zeros(20, dtype=torch.long), rows[:, 0] < torch.inf)
    assert found[:5].min() > 3
    assert found[5:].max() < 1
    assert cosines[0] < -0.5 < 0.5 < cosines[5:].min()
    # Beside their own cluster, other directions are usual.
    both, _ = of_steps(torch.cat([rows[5:], -rows[5:]]), torch.arange(30) // 15, torch.ones(30) > 0)
    assert both.max() < 1
    assert of_steps(rows[:2], torch.tensor([0, 0]), torch.ones(2) > 0)[0].isnan().all()


def test_suspicion_rises_faster_than_it_falls() -> None:
    evidence = torch.tensor([10.0, 0.0, torch.nan])
    found = suspicion_after(torch.tensor([0.0, 10.0, 2.0]), evidence)
    torch.testing.assert_close(found, torch.tensor([4.0, 9.0, 2.0]))


@pytest.mark.parametrize("method", [FedAvg(LOCAL), IFCA(2, LOCAL), FLACC(LOCAL)], ids=repr)
def test_liars_are_set_aside_named_and_let_back(method: Any, tmp_path: Path) -> None:
    attack, limits = Attack("sign-flip", strength=10, share=0.2), Limits(quarantine=3.5)
    run = Run(method, FEDERATION, mlp(), seed=3, attack=attack, limits=limits)
    result = run.save(tmp_path / "run", rounds=6)
    bad = attack.attackers(FEDERATION.names, FEDERATION.groups, 3).tolist()
    record = result.records[-1]
    assert [*record.refused] == bad
    assert "suspicion" in record.refused[bad[0]]
    assert record.suspicion is not None
    assert min(record.suspicion[n] or 0 for n in bad) > 3.5
    exposed = [*replace(run, limits=Limits()).rounds(6)][-1][1]
    assert (record.loss or 0) < 0.8 * (exposed.loss or 0)
    # A run that was cut short goes on with the same suspicion.
    for _, each in run.rounds(6, folder=tmp_path / "part"):
        if each.round == 2:
            break
    again = resume(tmp_path / "part", run)
    assert [r.untimed() for r in again.records] == [r.untimed() for r in result.records]


def test_only_replies_to_this_round_are_set_aside() -> None:
    attack, limits = Attack("sign-flip", strength=10, share=0.2), Limits(quarantine=3.5)
    run = Run(FedAvg(LOCAL), FEDERATION, mlp(), attack=attack, limits=limits, participation=0.5)
    records = [record for _, record in run.rounds(8)]
    cohorts = [set(run.context(n, 8).cohort.tolist()) for n in range(8)]
    assert any(record.quarantined for record in records)
    for record, cohort in zip(records, cohorts, strict=True):
        assert cohort.issuperset(record.quarantined)


def test_each_start_has_a_suspicion_of_its_own() -> None:
    """Numbers of models mean nothing between starts, so that nobody seems to move there."""
    method = Restarts(IFCA(2, LOCAL), restarts=3, trial_rounds=8)
    run = Run(method, FEDERATION, mlp(), seed=3, limits=Limits(quarantine=1.5))
    alone = replace(run, algorithm=IFCA(2, LOCAL))
    found = [
        max(each or 0 for _, record in some.rounds(6) for each in record.suspicion or ())
        for some in (run, alone)
    ]
    assert found[0] < found[1] + 0.5
    assert run.algorithm == Restarts(Watched(IFCA(2, LOCAL), 1.5), restarts=3, trial_rounds=8)
    *_, (_, record) = replace(run, attack=Attack("sign-flip", strength=10)).rounds(4)
    assert len(record.quarantined) >= 2


def test_nobody_is_set_aside_among_the_honest() -> None:
    run = Run(FedAvg(LOCAL), FEDERATION, mlp(), seed=3)
    watched = replace(run, limits=Limits(quarantine=3.5))
    *_, (plain, _) = run.rounds(4)
    *_, (state, record) = watched.rounds(4)
    assert not record.refused
    torch.testing.assert_close(state.models, plain.models)
    assert isinstance(watched.algorithm, Watched)
    assert replace(watched, limits=Limits()).algorithm == FedAvg(LOCAL)


@pytest.mark.parametrize("kind", ["alie", "hijack", "label-flip"])
def test_over_flower_attacks_and_quarantine_are_those_of_a_simulation(
    kind: Any, tmp_path: Path
) -> None:
    names = SMALL.federation(Sources.default()).names
    experiment = replace(
        SMALL,
        algorithm=IFCA(2, LOCAL),
        attack=Attack(kind, clients=(names[1], names[6]), strength=5),
        # Nodes have this bound unless it is given, and runs in one process have none.
        limits=Limits(quarantine=3.5, max_norm_ratio=4),
    )
    expected = last_state(experiment, None)
    assert_same_state(last_state(experiment, grid_of(experiment, tmp_path)), expected, 1e-4)


def test_a_node_draws_no_attackers() -> None:
    with pytest.raises(UsageError, match=r"attack\.clients: .* names of clients"):
        Attack("label-flip").poisoned(FEDERATION, 0, part=True)


def test_noise_for_privacy_hides_no_liar_that_leaves_it_out() -> None:
    """Noise widens the room of A Little Is Enough; equal replies, or longer ones, stand out."""
    private = Privacy(clip=1.0, noise_multiplier=0.1)
    method = FedAvg(LOCAL, Averaging("equal"))
    run = Run(method, FEDERATION, mlp(), seed=3, privacy=private, limits=Limits(quarantine=3.5))
    three = [Attack("alie"), Attack("sign-flip", strength=10), Attack("free-rider")]
    for attack in (replace(each, share=0.3) for each in three):
        *_, (_, record) = replace(run, attack=attack).rounds(6)
        assert [*record.refused] == attack.attackers(
            FEDERATION.names, FEDERATION.groups, 3
        ).tolist()
    *_, (_, record) = run.rounds(6)
    assert not record.refused


def test_a_median_of_private_updates_bounds_liars_as_without_noise() -> None:
    private, attack = Privacy(clip=1.0, noise_multiplier=0.02), Attack("sign-flip", strength=10)
    losses = []
    for rule in (Mean(), Median()):
        method = FedAvg(LOCAL, Averaging("equal", rule=rule))
        run = Run(method, FEDERATION, mlp(), seed=3, privacy=private, attack=attack)
        *_, (state, record) = run.rounds(6)
        assert state.models.isfinite().all()
        losses.append(record.loss or 0)
    assert losses[1] < 0.8 * losses[0]


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_claimed_examples_move_a_model_by_their_bounded_share(share: float) -> None:
    name = FEDERATION.names[0]
    run = Run(FedAvg(LOCAL), FEDERATION, mlp(dtype=torch.float64), seed=3)
    start = run.start(1).models
    liar = Attack("scaling", clients=(name,), strength=10, claims=10**9)
    found, honest, alone = (
        next(iter(each.rounds(1)))[0].models - start
        for each in (
            replace(run, attack=liar, limits=Limits(max_share=share)),
            replace(run, attack=replace(liar, strength=0, claims=None)),
            replace(run, attack=liar, limits=Limits(max_share=1)),
        )
    )
    # `alone` is the liar's own step, but for 1 in 10^7, and `honest` the mean with nine of ten.
    expected = (1 - share) * honest * 10 / 9 + share * alone
    torch.testing.assert_close(found, expected, rtol=0.02, atol=1e-3)
