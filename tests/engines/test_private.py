"""What leaves a client is clipped, noised, and accounted for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from scipy.stats import kstest, norm
from torch import nn

from tests.algorithms.test_contract import CASES, last_state, make_run
from tests.federations import SIZES, blobs, mlp
from umbel.algorithms import FedAvg, PerFedAvg
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.engines import EngineSettings, Sequential
from umbel.engines.clipping_and_noise import BLOCK, Private, key_of, released, standard_normal
from umbel.engines.privacy import Privacy
from umbel.flow import Engine, Replies, Request, Rows
from umbel.method import Context, Flow, State, train
from umbel.networks import Linear
from umbel.result.run import Experiment, Run

PRIVACY = Privacy(clip=1.0, noise_multiplier=0.5)
KEY = key_of(7)


def test_a_long_update_is_cut_to_the_norm_and_a_short_one_left() -> None:
    quiet = Privacy(clip=2.0, noise_multiplier=1e-12)
    long, short = torch.tensor([3.0, 4.0]), torch.tensor([0.6, 0.8])
    torch.testing.assert_close(released(long, quiet, KEY), torch.tensor([1.2, 1.6]))
    torch.testing.assert_close(released(short, quiet, KEY), short)


def test_the_noise_is_gaussian_with_the_spread_that_is_asked_for() -> None:
    update = torch.zeros(200_000)
    noised = released(update, Privacy(clip=3.0, noise_multiplier=0.5), KEY)
    assert float(noised.std()) == pytest.approx(1.5, rel=0.01)
    assert abs(float(noised.mean())) < 0.02
    assert kstest(noised.numpy(), norm(scale=1.5).cdf).pvalue > 1e-3
    torch.testing.assert_close(noised, released(update, Privacy(3.0, 0.5), KEY), rtol=0, atol=0)
    assert not torch.equal(noised, released(update, Privacy(3.0, 0.5), key_of(8)))


def test_no_two_blocks_of_noise_are_alike_and_short_noise_begins_long_noise() -> None:
    (one, other, rest) = standard_normal(KEY, 2 * BLOCK + 5)
    assert [len(one), len(other), len(rest)] == [BLOCK, BLOCK, 5]
    assert abs(float(one @ other)) / BLOCK < 0.02
    assert not torch.equal(rest, one[:5])
    (short,) = standard_normal(KEY, 7)
    torch.testing.assert_close(short, one[:7], rtol=0, atol=0)


def test_nobody_sees_whose_training_diverged_but_who_runs_it_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wild = FedAvg(LocalTraining(lr=1e38, epochs=3, batch_size=4))
    run = make_run(wild, privacy=replace(PRIVACY, noise_multiplier=1e-3))
    for state, record in run.rounds(3):
        assert state.models.isfinite().all()
        assert not record.refused
    (line,) = [line for line in caplog.messages if "diverged" in line]
    assert "noise without an update" in line


def exact_delta(epsilon: float, mu: float) -> float:
    """The delta of a Gaussian mechanism, mu = sensitivity / deviation (Balle & Wang 2018)."""
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


@pytest.mark.parametrize(("noise", "releases"), [(4.0, 1), (8.0, 10), (20.0, 100)])
def test_epsilon_is_that_of_the_gaussian_mechanism(noise: float, releases: int) -> None:
    privacy = Privacy(clip=1.0, noise_multiplier=noise)
    # Two updates of norm 1 are 2 apart, and n Gaussian mechanisms are one with sqrt(n) times that.
    mu = 2 * math.sqrt(releases) / noise
    found = privacy.epsilon(releases)
    assert exact_delta(found, mu) <= privacy.delta
    assert exact_delta(0.98 * found, mu) > privacy.delta


# In units of the distance of two updates in standard deviations; computed with 60 digits.
@pytest.mark.parametrize(
    ("noise", "delta", "exact"),
    [(1e6, 1e-100, 20.5021506), (1e12, 1e-100, 19.8202281), (1e12, 1e-20, 5.4259781)],
)
def test_epsilon_is_known_under_any_amount_of_noise_and_never_too_small(
    noise: float, delta: float, exact: float
) -> None:
    found = Privacy(clip=1.0, noise_multiplier=noise, delta=delta).epsilon(1) * noise / 2
    assert exact * (1 - 1e-8) <= found <= exact * 1.002


def test_newcomers_are_assigned_without_the_noise_of_training() -> None:
    run = Run(FedAvg(), blobs(), mlp(), privacy=PRIVACY)
    *_, (state, _) = run.rounds(1)
    newcomers = blobs([20] * 2)
    assigned = replace(run, federation=newcomers).assign(state)
    open_ = replace(run, federation=newcomers, privacy=Privacy()).assign(state)
    assert assigned.scores.equal(open_.scores)


def test_epsilon_is_that_of_a_library_that_composes_losses() -> None:
    accounting = pytest.importorskip("dp_accounting")
    accountant = pytest.importorskip("dp_accounting.pld").PLDAccountant()
    accountant.compose(accounting.GaussianDpEvent(8.0 / 2), 10)
    accountant.compose(accounting.GaussianDpEvent(4.0 / 2), 3)
    mixed = Privacy(clip=1.0, noise_multiplier=8.0).epsilon(10, {4.0: 3})
    assert mixed == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


@dataclass
class Mine:
    """An engine that no class of the package is, as of a Ray cluster or of a user's."""

    clients: Engine

    def send(self, request: Request) -> Replies:
        return self.clients.send(request)


def test_an_engine_of_ones_own_in_this_process_is_private_too() -> None:
    net, federation = mlp(), blobs()
    states = []
    mine = Sequential(net, federation)
    for engine in (mine, Mine(mine), EngineSettings("sequential", device="cpu")):
        run = Run(FedAvg(), federation, net, engine=engine, privacy=PRIVACY)
        states += [state.models for state, _ in run.rounds(2)][-1:]
    torch.testing.assert_close(states[0], states[1])
    torch.testing.assert_close(states[0], states[2])


def test_networks_with_running_statistics_are_refused() -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    Run(FedAvg(), blobs(), net)
    with pytest.raises(UsageError, match=r"privacy\.clip: .* statistics, as \['1\.running_mean'\]"):
        Run(FedAvg(), blobs(), net, privacy=PRIVACY)


@pytest.mark.parametrize("name", ["fedavg", "flacc", "sattler", "fl-hc", "local-only", "oracle"])
def test_methods_that_need_updates_alone_run_with_privacy(name: str) -> None:
    noisy = last_state(make_run(CASES[name], privacy=PRIVACY), 2)
    assert noisy.models.isfinite().all()
    assert not torch.equal(noisy.models, last_state(make_run(CASES[name]), 2).models)


@pytest.mark.parametrize("name", ["ifca", "lcfl", "cfl-gp", "joint", "fedem", "pfedme", "pacfl"])
def test_methods_whose_clients_send_more_are_refused_before_the_run(name: str) -> None:
    expected = (
        r"privacy\.clip: 1\.0 is not (for|allowed).*: its clients send more|as privacy.clip needs"
    )
    with pytest.raises(UsageError, match=expected):
        make_run(CASES[name], privacy=PRIVACY)


@pytest.mark.parametrize("given", [{"noise_multiplier": 2.0}, {"max_epsilon": 3.0}])
def test_noise_without_a_clip_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="is not used without clip"):
        Privacy(**given)


def test_methods_that_adapt_models_for_evaluation_are_refused_before_the_run() -> None:
    expected = r"privacy\.clip: 1\.0 is not for PerFedAvg: its clients send in evaluations"
    with pytest.raises(UsageError, match=expected):
        make_run(PerFedAvg(), privacy=PRIVACY)
    with pytest.raises(UsageError, match=expected):
        Experiment(ROTATED_DIGITS, Linear(), PerFedAvg(), privacy=PRIVACY)


def test_two_answers_of_one_client_in_a_round_have_noise_of_their_own() -> None:
    @dataclass(frozen=True)
    class AskingTwice(FedAvg):
        def round(self, state: State, ctx: Context) -> Flow[State]:
            for _ in range(2):
                theta = Rows(state.models, state.labels[ctx.cohort])
                trained = yield from train(theta, ctx, self.local)
                noised.append(trained.update)
            return state

    noised: list[torch.Tensor] = []
    whole = Privacy(clip=1e-6, noise_multiplier=1e6)  # nothing but noise
    for _ in range(2):
        last_state(make_run(AskingTwice(), privacy=whole), 1)
    first, second, *again = noised
    assert not torch.isclose(first, second, atol=1e-3).any(1).all()
    for one, other in zip((first, second), again, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_every_client_says_that_it_has_one_example_however_many_it_has() -> None:
    net, clients = mlp(), torch.arange(len(SIZES))
    theta = Rows(net.new(0)[None], torch.zeros_like(clients))
    asked = Request(LocalTraining(epochs=1), clients, range(len(SIZES)), each={"theta": theta})
    engine = Sequential(net, blobs(SIZES))
    assert engine.send(asked).columns["num_examples"].tolist() == list(SIZES)
    told = Private(engine, PRIVACY).send(asked).columns["num_examples"]
    assert told.tolist() == [1] * len(SIZES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip": 0.0}, "clip: 0.0 is not more than 0"),
        ({"noise_multiplier": 0.0}, "noise_multiplier: 0.0 is not more than 0"),
        ({"delta": 1.0}, r"delta: 1.0 is not in \(0, 1\)"),
        ({"max_epsilon": -1.0}, "max_epsilon: -1.0 is not more than 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Privacy(**settings)
