"""Ways whose training diverges: no rate, some clients, or one way alone."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from rich.console import Console

import umbel
from umbel.advice.advice import sentences
from umbel.advice.gain_per_client import fates
from umbel.advice.race import Allowance
from umbel.advice.summary import Summary, summary
from umbel.advice.trial import DIVERGED, TIME_UP, waiting
from umbel.cli.advise import contenders_table

SHORT = 5
LOCAL = umbel.LocalTraining(lr=0.03)
LOCAL_SLOW = umbel.LocalTraining(lr=1e-6, epochs=1)


def regressions(*scales: float) -> umbel.Federation:
    """Clients of one regression, whose inputs and targets are on these scales."""
    rng = np.random.default_rng(0)
    pairs = []
    for scale in scales:
        x = scale * rng.normal(size=(30, 4))
        pairs.append((x, x.sum(1)))
    return umbel.Federation.from_arrays(pairs)


@pytest.mark.thorough
def test_limits_engine_and_faults_are_those_that_are_given() -> None:
    federation = regressions(*[200.0] * 6)
    net = umbel.Net(lambda: torch.nn.Linear(4, 1), umbel.REGRESSION)
    asked = partial(umbel.advise, federation, net, local=LOCAL_SLOW, budget=2)
    with pytest.raises(umbel.UsageError, match="diverged"):
        asked(limits=umbel.Limits(max_value=1e-9))
    assert asked(limits=umbel.Limits(max_value=1e9)).verdict.one.trained.all()
    with pytest.raises(umbel.UsageError, match="cuda:77"):
        asked(engine=umbel.EngineSettings(device="cuda:77"))
    with pytest.raises(umbel.QuorumError, match="0 of 6 clients gave a usable reply"):
        asked(faults=umbel.Faults(not_finite=1.0))


@pytest.mark.thorough
def test_clients_that_are_silent_are_not_said_to_diverge() -> None:
    net = umbel.Net(lambda: torch.nn.Linear(4, 1), umbel.REGRESSION)
    asked = partial(umbel.advise, regressions(*[1.0] * 10), net, faults=umbel.Faults(drop=0.3))
    for local in (None, LOCAL):
        with pytest.raises(umbel.QuorumError, match=r"round 0: 0 of 1 clients .* did not answer"):
            asked(budget=2, participation=0.1, local=local)
        advice = asked(budget=20, participation=0.2, local=local)
        reason = "round 5: 0 of 2 clients gave a usable reply"
        assert advice.verdict.one.stopped.startswith(reason)
        assert f"Training in the advised way was stopped: {reason}" in str(advice)
        for wrong in ("diverged", "more rounds", "budget"):
            assert wrong not in str(advice)


def advised(*scales: float, local: umbel.LocalTraining | None = None) -> umbel.Advice:
    net = umbel.Net(lambda: torch.nn.Linear(4, 1), umbel.REGRESSION)
    return umbel.advise(regressions(*scales), net, local=local, budget=SHORT)


def turned(groups: int) -> umbel.Federation:
    """Clients of two labels, whose rule is turned by a right angle from group to group."""
    rng = np.random.default_rng(0)
    pairs = []
    for client in range(16):
        x = rng.normal(size=(60, 4)).astype(np.float32)
        angle = np.pi * (client % groups) / 2
        pairs.append((x, (np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1] > 0).astype(int)))
    return umbel.Federation.from_arrays(pairs, num_classes=2)


def test_no_way_is_begun_after_the_time_is_up() -> None:
    net, told = umbel.Net(lambda: torch.nn.Linear(4, 2)), list[str]()
    local = umbel.LocalTraining(lr=0.3, epochs=2)
    advice = umbel.advise(turned(2), net, local=local, budget="0.001s", progress=told.append)
    one, *others = advice.standings
    assert one.stopped == TIME_UP
    assert one.course
    assert {(each.rounds, each.stopped) for each in others} == {(0, TIME_UP)}
    assert "Training alone was stopped before it was evaluated: the time was up." in str(advice)
    assert told[0] == "budget: 0 seconds for all ways together"


def test_a_budget_says_how_it_was_read() -> None:
    assert str(Allowance.of("5")) == "budget: 5 rounds for each way; write 5m for five minutes"
    assert str(Allowance.of("5m")) == "budget: 5 minutes for all ways together"


@pytest.mark.parametrize("local", [None, LOCAL])
def test_training_that_diverges_at_every_rate_is_refused(
    local: umbel.LocalTraining | None,
) -> None:
    with pytest.raises(umbel.UsageError, match=r"diverged at .*learning rate.*: scale the inputs"):
        advised(*[1e3] * 6, local=local)


@pytest.fixture(scope="module")
def half() -> umbel.Advice:
    """Advice for clients of which every other one never trains."""
    return advised(*[1.0, 1e3] * 3, local=LOCAL)


def test_clients_that_never_trained_are_named(half: umbel.Advice) -> None:
    assert half.verdict.one.trained.tolist() == [True, False] * 3
    second = sentences(half)[1]
    assert "3 of 6 clients never trained (1, 3, 5)" in second
    assert "No clustering is surely better" not in str(half)


@pytest.mark.parametrize(("share", "rounds"), [(0.5, 6), (1 / 8, 2)])
def test_clients_that_were_not_asked_neither_trained_nor_diverged(
    share: float, rounds: int
) -> None:
    net = umbel.Net(lambda: torch.nn.Linear(4, 1), umbel.REGRESSION)
    federation = regressions(*[1.0] * 3, 1e12, *[1.0] * 4)
    advice = umbel.advise(federation, net, local=LOCAL, budget=rounds, participation=share)
    run = umbel.Run(umbel.FedAvg(local=LOCAL), federation, net, participation=share)
    asked = {n for number in range(rounds) for n in run.context(number, rounds).cohort.tolist()}
    one = advice.verdict.one
    assert set(np.flatnonzero(one.trained)) == asked - {3}
    assert set(np.flatnonzero(one.never_trained)) == asked & {3}
    assert ("1 of 8 clients never trained (3)" in str(advice)) == (3 in asked)


@pytest.fixture(scope="module")
def without_one(half: umbel.Advice) -> umbel.Advice:
    """The same where training alone diverged before it was judged."""
    alone = half.verdict.alone
    never = replace(waiting(alone.contender, 6), stopped=DIVERGED)
    standings = tuple(never if each is alone else each for each in half.standings)
    return replace(half, standings=standings, verdict=replace(half.verdict, alone=never))


def test_a_way_that_diverged_has_no_gain_and_says_why(without_one: umbel.Advice) -> None:
    told = summary(without_one)
    row = next(each for each in told.contenders if each.name == "train alone")
    assert (row.loss, row.gain, row.low, row.stopped) == (None, None, None, DIVERGED)
    assert "Training alone diverged." in told.sentences
    assert f"train alone: {DIVERGED}" in " ".join(printed(told, 120).split())
    verdict = without_one.verdict
    silent = replace(verdict, alone=replace(verdict.alone, stopped="round 0: nobody answered"))
    assert "Training alone was stopped before it was evaluated: round 0: nobody answered." in (
        sentences(replace(without_one, verdict=silent))
    )


def test_clients_have_no_gain_over_training_alone_where_that_diverged(
    without_one: umbel.Advice,
) -> None:
    net = umbel.Net(lambda: torch.nn.Linear(4, 1), umbel.REGRESSION)
    found = fates(net, regressions(*[1.0] * 6), without_one.verdict)
    assert all(np.isnan(each.over_alone) for each in found)
    assert all(each.gain == 0 for each in found)


def printed(told: Summary, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(contenders_table(told))
    return console.export_text()
