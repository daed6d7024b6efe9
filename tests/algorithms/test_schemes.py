"""Schemes of local training, against rounds worked by hand, and inside every clustering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import umbel
from umbel.algorithms import ALGORITHMS, FeSEM
from umbel.algorithms.base import Algorithm, KeptState, Setup
from umbel.algorithms.fedem import FedEM
from umbel.client.layout import NORMS
from umbel.client.objectives import Objective
from umbel.client.work import Gradient, LocalTraining
from umbel.client.work.schemes import (
    Contrast,
    ControlVariates,
    DynamicPenalty,
    HeadFirst,
    MixedModel,
    PersonalModel,
    Plain,
    Scheme,
)
from umbel.engines import Sequential
from umbel.flow import drive
from umbel.run.wrappers import completed
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context
from umbel.server.averaging_rules import FedAdam
from umbel.testing import blobs, check_method, mlp

HALF_SQUARED = Objective(
    losses=lambda outputs, y: 0.5 * (outputs - y).flatten() ** 2,
    correct=lambda outputs, y: (outputs - y).flatten().abs() < 0.5,
)
TWO = LocalTraining(lr=0.25, steps=2, batch_size="all")
EQUAL = Averaging("equal")


class Toy:
    """Clients with F_i(w) = a_i / 2 (w - b_i)^2 for one weight, or a chain of several."""

    def __init__(
        self,
        targets: list[float],
        counts: list[int] | None = None,
        weights: int = 1,
        scales: list[float] | None = None,
    ) -> None:
        scales = scales or [1.0] * len(targets)
        counts = counts or [1] * len(targets)
        # a/2 (w - b)^2 = 1/2 (w x - y)^2 with x = sqrt a and y = b sqrt a.
        examples = [
            (torch.full((n, 1), a**0.5), torch.full((n, 1), b * a**0.5))
            for b, n, a in zip(targets, counts, scales, strict=True)
        ]
        layers = [nn.Linear(1, 1, bias=False) for _ in range(weights)]
        self.net = umbel.Net(lambda: nn.Sequential(*layers), HALF_SQUARED)
        self.federation = umbel.Federation.from_arrays(examples, examples)
        self.ctx = Context(
            round=0,
            num_rounds=9,
            cohort=torch.arange(len(targets)),
            num_clients=len(targets),
            seed=0,
            layout=self.net.layout,
        )

    def start(self, method: Algorithm[Any], *model: float) -> Any:
        return completed(method).init(
            Setup(
                num_clients=self.ctx.num_clients,
                num_rounds=9,
                participation=1.0,
                layout=self.net.layout,
                new_model=lambda number: torch.tensor(model) + 0 * number,
            )
        )

    def after(self, method: Algorithm[Any], state: Any, rounds: int = 1, **changes: Any) -> Any:
        engine = Sequential(self.net, self.federation)
        for _ in range(rounds):
            ctx = replace(self.ctx, **changes)
            state = drive(completed(method).round(state, ctx), engine)
        return state

    def served(self, method: Algorithm[Any], state: Any) -> Tensor:
        served = drive(
            completed(method).serve(state, self.ctx), Sequential(self.net, self.federation)
        )
        return served.models.table[served.models.index]


def near(found: Tensor, *expected: float) -> None:
    torch.testing.assert_close(found.flatten(), torch.tensor([float(each) for each in expected]))


def fedavg(scheme: Scheme, weights: Any = "equal", local: LocalTraining = TWO) -> umbel.FedAvg:
    return umbel.FedAvg(replace(local, scheme=scheme), Averaging(weights))


def test_a_personal_model_is_pulled_towards_the_received_one() -> None:
    toy, method = Toy([0, 4], [1, 3]), fedavg(PersonalModel(1.0), "examples")
    state = toy.start(method, 1.0)
    near(state.kept, 1, 1)
    state = toy.after(method, replace(state, kept=torch.tensor([[3.0], [0.0]])))
    near(state.kept, 9 / 8, 15 / 8)
    near(state.models, 15 / 8)
    near(toy.served(method, state), 9 / 8, 15 / 8)


def test_one_step_of_the_right_length_lands_on_the_fixed_point_of_the_pull() -> None:
    toy = Toy([0, 4])
    method = fedavg(PersonalModel(1.0), local=LocalTraining(lr=0.5, steps=1, batch_size="all"))
    near(toy.after(method, toy.start(method, 1.0)).kept, 1 / 2, 5 / 2)


def test_controls_correct_the_steps_and_their_mean_is_over_all_clients() -> None:
    toy, method = Toy([0, 4, 7], [1, 3, 1]), fedavg(ControlVariates())
    state = replace(toy.start(method, 1.0), kept=torch.tensor([[1.0], [-1.0], [0.0]]))
    state = toy.after(method, state, cohort=torch.tensor([0, 1]))
    near(state.models, 23 / 16)
    near(state.kept, 1, -11 / 4, 0)
    near(state.kept.mean(), -7 / 12)


@pytest.mark.parametrize(
    ("scheme", "fixed"),
    [(Plain(), 30 / 11), (ControlVariates(), 3), (DynamicPenalty(0.5), 3)],
    ids=["plain", "scaffold", "feddyn"],
)
def test_corrected_clients_agree_on_the_minimum_of_the_mean(scheme: Scheme, fixed: Any) -> None:
    toy, method = Toy([0, 4], scales=[1, 3]), fedavg(scheme)
    state = toy.after(method, toy.start(method, 1.0), rounds=200)
    torch.testing.assert_close(state.models, torch.tensor([[float(fixed)]]), atol=1e-3, rtol=0)


def test_a_model_is_mixed_with_one_of_the_clients_own() -> None:
    toy = Toy([0])
    method = fedavg(MixedModel(), local=LocalTraining(lr=0.25, steps=1, batch_size="all"))
    state = toy.after(method, replace(toy.start(method, 1.0), kept=torch.tensor([[2.0, 0.5]])))
    near(state.models, 3 / 4)
    near(state.kept, 29 / 16, 1 / 8)
    near(toy.served(method, state), 113 / 128)


def test_the_head_is_trained_before_the_body_and_stays_with_its_client() -> None:
    toy = Toy([2, 6], [1, 3], weights=2)
    local = LocalTraining(lr=0.25, steps=1, batch_size="all", scheme=HeadFirst(head_epochs=2))
    for averaging, body in ((EQUAL, 1115 / 512), (Averaging(), 2707 / 1024)):
        method = umbel.Sharing(umbel.FedAvg(local, averaging), kept=("@head",))
        state = replace(toy.start(method, 1.0, 0.0), kept=torch.tensor([[0.0], [2.0]]))
        state = toy.after(method, state)
        near(state.kept, 7 / 8, 15 / 4)
        near(state.models[:, 0], body)


def test_a_head_without_epochs_never_moves() -> None:
    toy, step = Toy([2, 6], [1, 3], weights=2), LocalTraining(lr=0.25, steps=1, batch_size="all")
    for averaging, body in ((EQUAL, 7 / 4), (Averaging(), 2)):
        method = fedavg(HeadFirst(head_epochs=0), averaging.weights, step)
        near(toy.after(method, toy.start(method, 1.0, 1.0)).models, body, 1)


def test_a_kept_head_trains_together_with_the_body() -> None:
    toy = Toy([2, 6], [1, 3], weights=2)
    step = LocalTraining(lr=0.25, steps=1, batch_size="all")
    for averaging, body in ((EQUAL, 2), (Averaging(), 5 / 2)):
        method = umbel.Sharing(umbel.FedAvg(step, averaging), kept=("@head",))
        state = replace(toy.start(method, 1.0, 0.0), kept=torch.tensor([[0.0], [2.0]]))
        state = toy.after(method, state)
        near(state.kept, 1 / 2, 3)
        near(state.models[:, 0], body)


def test_a_dynamic_penalty_adds_the_mean_of_what_clients_remember() -> None:
    toy, method = Toy([0, 4]), fedavg(DynamicPenalty(1.0))
    state = toy.after(method, toy.start(method, 1.0))
    near(state.kept, 3 / 8, -9 / 8)  # h = -3/8
    near(state.models, 7 / 4)
    near(toy.served(method, state), 11 / 8, 11 / 8)  # the mean of 5/8 and 17/8
    # The exact minimum by one step of length 1/2: only client 2 of two.
    exact = fedavg(DynamicPenalty(1.0), local=LocalTraining(lr=0.5, steps=1, batch_size="all"))
    alone = toy.after(exact, toy.start(exact, 1.0), cohort=torch.tensor([1]))
    near(alone.models, 13 / 4)
    near(toy.after(exact, toy.start(exact, 1.0)).models, 2)


def test_features_are_held_near_the_received_model_and_away_from_the_last() -> None:
    scheme, z, other = Contrast(1.0, 0.5), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    near(scheme.term(z, z, other), 0.126928)  # log(1 + e^-2)
    near(scheme.term(z, z, z), 0.693147)  # log 2
    near(scheme.term(z, -z, z), 4.018150)


def test_a_contrast_begins_with_the_first_model_that_a_client_has_trained() -> None:
    plain, contrast = umbel.FedAvg(SMALL, EQUAL), fedavg(Contrast(5.0), local=SMALL)
    assert torch.equal(run(fedavg(Contrast(0.0), local=SMALL)).models, run(plain).models)
    torch.testing.assert_close(run(contrast, 1).models, run(plain, 1).models)
    assert not torch.allclose(run(contrast, 2).models, run(plain, 2).models)
    with pytest.raises(
        umbel.UsageError, match=r"layer: '9' is not the name of a layer: 0, 1, 2, 3"
    ):
        run(fedavg(Contrast(layer="9"), local=SMALL))


def test_features_are_what_a_layer_gives() -> None:
    net, x = mlp(), torch.randn(4, 6)
    theta = net.new(seed=1)
    module = net.module(theta)
    assert isinstance(module, nn.Sequential)
    torch.testing.assert_close(net.features(theta, x), module[:3](x))
    torch.testing.assert_close(net.features(theta, x, "1"), module[:2](x))


def run(method: Algorithm[Any], rounds: int = 2, net: umbel.Net | None = None) -> Any:
    *_, (state, _) = umbel.Run(method, blobs(), net or mlp(), seed=3).rounds(rounds)
    return state


SMALL = LocalTraining(lr=0.1, epochs=2, batch_size=4)


@pytest.mark.parametrize("scheme", [PersonalModel(), MixedModel(0.0, adaptive=False)], ids=str)
def test_the_shared_model_is_that_of_plain_training(scheme: Scheme) -> None:
    assert torch.equal(
        run(fedavg(scheme, local=SMALL)).models, run(umbel.FedAvg(SMALL, EQUAL)).models
    )


@pytest.mark.parametrize("scheme", [PersonalModel(0.0), MixedModel(1.0, adaptive=False)], ids=str)
def test_without_any_share_of_others_clients_train_alone(scheme: Scheme) -> None:
    own = run(fedavg(scheme, local=SMALL)).kept[:, : mlp().layout.num_values]
    torch.testing.assert_close(own, run(umbel.LocalOnly(local=SMALL)).models)


LOCAL = LocalTraining(lr=0.1, epochs=1, batch_size=8)
CLUSTERED: dict[str, Algorithm[Any]] = {
    "fedavg": umbel.FedAvg(LOCAL, EQUAL),
    "ifca": umbel.IFCA(2, local=LOCAL, averaging=EQUAL),
    "flacc": umbel.FLACC(local=LOCAL, averaging=EQUAL, n_sep=1),
    "cfl-gp": umbel.CFLGP(2, send="update", local=LOCAL, averaging=EQUAL),
    "lcfl": umbel.LCFL(local=LOCAL, averaging=EQUAL),
    "joint": umbel.Joint(2, local=LOCAL, averaging=EQUAL),
}


def schemed(method: Any, scheme: Scheme) -> Algorithm[Any]:
    return replace(method, local=replace(method.local, scheme=scheme))


PARTS: dict[str, Callable[[Any], Algorithm[Any]]] = {
    "ditto": lambda method: schemed(method, PersonalModel(0.5)),
    "scaffold": lambda method: schemed(method, ControlVariates()),
    "apfl": lambda method: schemed(method, MixedModel()),
    "feddyn": lambda method: schemed(method, DynamicPenalty(0.1)),
    "moon": lambda method: schemed(method, Contrast(5.0)),
    "fedrep": lambda method: umbel.Sharing(
        schemed(method, HeadFirst(head_epochs=1)), kept=("3.*",)
    ),
    "kept": lambda method: umbel.Sharing(method, kept=("3.*",)),
    "adam at the server": lambda method: replace(
        method, averaging=Averaging("equal", rule=FedAdam())
    ),
    "own optimizer": lambda method: replace(
        method, local=replace(method.local, optimizer=umbel.SGD(momentum=0.5))
    ),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", CLUSTERED)
def test_each_part_changes_what_clients_use_in_each_method(name: str, part: str) -> None:
    method = PARTS[part](CLUSTERED[name])
    served = []
    for each in (CLUSTERED[name], method):
        whole = umbel.Run(each, blobs(), mlp(), seed=3)
        *_, (state, record) = whole.rounds(3)
        assert record.refused == {}
        used = drive(whole.algorithm.serve(state, whole.context(3, 4)), whole.clients)
        served.append(used.models.table[used.models.index])
    assert served[1].isfinite().all()
    assert not torch.allclose(served[0], served[1])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("ifca", "scaffold"),
        ("joint", "apfl"),
        ("cfl-gp", "kept"),
        ("lcfl", "ditto"),
        ("flacc", "feddyn"),
    ],
)
def test_parts_keep_the_contract_inside_other_methods(name: str, part: str) -> None:
    check_method(PARTS[part](CLUSTERED[name]))


@pytest.mark.parametrize(
    "name", ["ditto", "scaffold", "apfl", "fedper", "fedrep", "fedbabu", "feddyn", "moon"]
)
def test_methods_by_name_keep_the_contract(name: str) -> None:
    check_method(made(name))


def made(name: str) -> Algorithm[Any]:
    """The method that experiments have under this name."""
    known: Any = ALGORITHMS[name]
    return completed(known)


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
        )


def test_normalisation_layers_stay_with_clients_by_their_type() -> None:
    net = umbel.Net(Normed)
    mask = net.layout.mask((NORMS,))
    names = {e.name for e in net.layout.weights + net.layout.rest if e.name.startswith("2.")}
    assert net.layout.norms == names
    state = run(made("fedbn"), net=net)
    assert state.kept.shape == (8, int(mask.sum()))
    assert len(torch.unique(state.kept, dim=0)) == 8
    with pytest.raises(
        umbel.UsageError, match="kept: '@norms' is not possible: the network has no"
    ):
        umbel.Run(made("fedbn"), blobs(), mlp())


def test_a_scheme_that_some_clients_would_not_follow_is_refused() -> None:
    ditto = replace(LOCAL, scheme=PersonalModel())
    for method, why in (
        (FedEM(local=ditto), "clients of FedEM train in a MixtureTraining"),
        (umbel.CFLGP(local=ditto, gradient=Gradient()), "clients of CFLGP do not train by it"),
        (umbel.IFCA(local=LocalTraining(scheme=PersonalModel()), send="gradient"), "IFCA do not"),
    ):
        with pytest.raises(umbel.UsageError, match=f"local.scheme: .* {why}"):
            umbel.Run(method, blobs(), mlp())
    with pytest.raises(umbel.UsageError, match=r"averaging.weights: 'examples' is not \"equal\""):
        umbel.Run(umbel.FedAvg(replace(LOCAL, scheme=ControlVariates())), blobs(), mlp())
    with pytest.raises(umbel.UsageError, match=r"optimizer: .* SGD without momentum"):
        LocalTraining(optimizer=umbel.SGD(momentum=0.9), scheme=ControlVariates())
    with pytest.raises(umbel.UsageError, match=r"privacy.clip: .* or algorithm.local.scheme"):
        umbel.Run(umbel.FedAvg(ditto), blobs(), mlp(), privacy=umbel.Privacy(clip=1.0))
    with pytest.raises(umbel.UsageError, match=r"kept: .* together with local.scheme"):
        umbel.Sharing(umbel.FedAvg(ditto), kept=("3.*",))


def test_clients_that_change_models_take_what_they_remember_along() -> None:
    state = run(schemed(FeSEM(2, local=LOCAL), PersonalModel()), rounds=3)
    assert isinstance(state, KeptState)
    assert len(torch.unique(state.kept, dim=0)) == 8
