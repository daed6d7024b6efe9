"""One client that lies is held to its bounds, whatever the method makes of what it sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.algorithms.test_contract import LOCAL, WITH_BUFFERS, by_name, cases
from tests.federations import blobs, mlp
from umbel import Federation, Limits, Net, Run
from umbel.algorithms import CFLGP, IFCA, LCFL, FedAvg, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.work import ChooseByLoss, MeanLoss, PrincipalVectors, Work
from umbel.engines.replies.guarded import Guarded
from umbel.flow import Engine, Replies, Request, Rows

LIAR = 1

NORMALISED = Net(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)))

HALF = Net(lambda: nn.Linear(6, 3).half())

CHOOSING = ["ifca", "joint"]
"""Methods whose clients say which of the models they have chosen."""

WHOLE = replace(LOCAL, drop_last=True)


@dataclass
class Lying:
    """An engine in which one client's replies are made worse: `spoil` changes its rows."""

    engine: Engine
    spoil: Callable[[Request, Mapping[str, Tensor]], object]
    elsewhere: bool = True  # so that the run takes it for one that protects and checks

    def send(self, request: Request) -> Replies:
        replies = self.engine.send(request)
        columns = {name: column.clone() for name, column in replies.columns.items()}
        for n in torch.nonzero(replies.clients == LIAR)[:, 0].tolist():
            self.spoil(request, {name: column[n] for name, column in columns.items()})
        return replace(replies, columns=columns)


def lied_to(run: Run, spoil: Callable[[Request, Mapping[str, Tensor]], None]) -> Run:
    return replace(run, engine=Lying(run.clients, spoil))


def alike(sizes: tuple[int, ...] = (12,) * 6, scale: float = 1.0) -> Federation:
    federation = blobs(sizes)
    return replace(federation, train=replace(federation.train, x=federation.train.x * scale))


def below_zero(_: Request, row: Mapping[str, Tensor]) -> None:
    if "update" in row:
        row["update"][..., NORMALISED.layout.variances[0]] = -100.0


@pytest.mark.parametrize("name", by_name(WITH_BUFFERS))
def test_no_client_makes_a_running_variance_negative(name: str) -> None:
    method = cases(WHOLE)[name]
    run = lied_to(Run(method, alike(), NORMALISED, limits=Limits(quorum=0.0)), below_zero)
    for state, record in run.rounds(3):
        assert float(state.models[:, NORMALISED.layout.variances].min()) >= 0
        assert record.loss is not None
    honest = Run(method, alike(), NORMALISED)
    assert not any(record.refused for _, record in honest.rounds(3))


def test_what_would_be_below_zero_is_said() -> None:
    run = lied_to(Run(FedAvg(WHOLE), alike(), NORMALISED), below_zero)
    ((_, record),) = run.rounds(1)
    assert record.refused[LIAR].startswith("update: a running variance of -99")


@pytest.mark.parametrize("network", [NORMALISED, HALF])
@pytest.mark.parametrize("name", CHOOSING)
def test_a_model_that_does_not_exist_is_refused_and_the_round_goes_on(
    name: str, network: Net
) -> None:
    def spoil(_: Request, row: Mapping[str, Tensor]) -> None:
        if "chosen" in row:
            row["chosen"].fill_(-5)

    run = lied_to(Run(cases(WHOLE)[name], alike(), network), spoil)
    ((_, record),) = run.rounds(1)
    assert record.refused[LIAR].startswith("chosen: ")
    assert record.loss is not None


@pytest.mark.parametrize(
    "method",
    [
        CFLGP(local=LOCAL),
        CFLGP(local=LOCAL, digits=3),
        IFCA(local=LOCAL, send="gradient"),
        Sattler(local=LOCAL, send="gradient"),
    ],
    ids=repr,
)
def test_no_gradient_moves_a_buffer(method: Algorithm[Any]) -> None:
    def spoil(_: Request, row: Mapping[str, Tensor]) -> None:
        if "gradient" in row:
            row["gradient"][NORMALISED.layout.variances[0]] = 9e3

    for state, record in lied_to(Run(method, alike(), NORMALISED), spoil).rounds(2):
        assert record.refused[LIAR].startswith("gradient: 9e+03 for a buffer")
        assert float(state.models[:, NORMALISED.layout.variances].min()) >= 0
        assert record.loss is not None
    honest = Run(method, alike(), NORMALISED)
    assert not any(record.refused for _, record in honest.rounds(2))


def test_weights_and_statistics_have_bounds_of_their_own() -> None:
    layout = NORMALISED.layout
    # Statistics of inputs as large as these move much further than weights.
    engine = Run(FedAvg(WHOLE), alike(scale=100.0), NORMALISED).clients
    cut, sent = layout.num_weights, []

    def spoil(_: Request, row: Mapping[str, Tensor]) -> None:
        row["update"][:cut] *= 50
        sent.append(row["update"].clone())

    guard = Guarded(Lying(engine, spoil), Limits(max_norm_ratio=3.0), net=NORMALISED)
    theta = Rows(NORMALISED.new(0)[None], torch.zeros(6, dtype=torch.long))
    asked = Request(WHOLE, torch.arange(6), list(range(6)), each={"theta": theta})
    update = guard.send(asked).columns["update"]
    lengths = update[:, :cut].double().norm(dim=1)
    assert float(lengths[LIAR]) == pytest.approx(3 * float(lengths.median()), rel=1e-5)
    torch.testing.assert_close(update[LIAR, cut:], sent[0][cut:])
    assert guard.take()[2][LIAR].startswith("update: of norm ")
    guard = Guarded(
        Lying(engine, lambda _, row: row["update"].mul_(100).sum()),
        Limits(max_norm_ratio=3.0, max_value=1e9),
        net=NORMALISED,
    )
    guard.send(asked)
    said = guard.take()[2][LIAR]
    assert "update: of norm " in said
    assert "; update of statistics: of norm " in said


def test_a_liar_has_its_share_at_most_of_means_over_examples_and_no_loss_below_zero() -> None:
    run = Run(FedAvg(LOCAL), blobs((12,) * 10), mlp(), limits=Limits(max_share=0.5))
    ((_, honest),) = run.rounds(1)

    def boast(request: Request, row: Mapping[str, Tensor]) -> None:
        if request.work.split == "test":
            row["num_examples"].fill_(10**9)
            row["right"].fill_(0.0)

    ((_, record),) = lied_to(run, boast).rounds(1)
    assert honest.weighted_accuracy is not None
    assert record.weighted_accuracy is not None
    assert record.weighted_accuracy >= 0.4 * honest.weighted_accuracy

    def deny(request: Request, row: Mapping[str, Tensor]) -> None:
        if request.work.split == "test":
            row["loss"].fill_(-(10.0**9))

    ((_, record),) = lied_to(run, deny).rounds(1)
    assert record.refused[LIAR].startswith(
        "evaluation: loss: -1.25e+08, lower than any mean loss of"
    )
    assert record.loss is not None
    assert record.loss > 0


@dataclass
class Noting(Lying):
    """As `Lying`; what all clients send is kept."""

    seen: list[Replies] = field(default_factory=list)

    def send(self, request: Request) -> Replies:
        replies = super().send(request)
        self.seen.append(replies)
        return replies


@pytest.mark.parametrize("share", [0.9, 0.3])
def test_a_share_holds_in_clusters_that_are_found_afterwards(share: float) -> None:
    def boast(_: Request, row: Mapping[str, Tensor]) -> None:
        if "update" in row:
            row["num_examples"].fill_(10**9)

    run = Run(
        LCFL(LOCAL, num_clusters=4),
        blobs((20,) * 24, num_groups=4),
        mlp(),
        limits=Limits(max_share=share),
    )
    engine = Noting(run.clients, boast, elsewhere=False)  # where no roll bounds the claim
    ((state, _),) = replace(run, engine=engine).rounds(1)
    members = torch.nonzero(state.labels == state.labels[LIAR])[:, 0]
    assert len(members) == 6
    update = engine.seen[0].columns["update"].double()
    mine, others = update[LIAR], update[members[members != LIAR]].mean(0)
    begun = state.models[state.labels[LIAR]].double() - run.start(1).models[0] - others
    weight = float(begun @ (mine - others) / (mine - others).square().sum())
    assert weight == pytest.approx(share, abs=1e-2)


def test_claims_that_no_model_explains_are_refused_or_bounded() -> None:
    numbers = torch.arange(6)

    def answered(**columns: Tensor) -> tuple[Replies, Guarded]:
        @dataclass
        class Fixed:
            def send(self, request: Request) -> Replies:
                return Replies(request.clients, columns)

        guard = Guarded(Fixed(), Limits(max_norm_ratio=4, quorum=0))
        models, choose = torch.zeros(2, 3), ChooseByLoss(MeanLoss())
        work: Work = choose if "chosen" in columns else MeanLoss()
        work = PrincipalVectors(2, num_inputs=3) if "vectors" in columns else work
        return guard.send(Request(work, numbers, [0] * 6, {"models": models})), guard

    losses = torch.tensor([[1.0, 2.0]] * 6).double()
    losses[4] = torch.tensor([1.0, 1e9])
    replies, guard = answered(losses=losses)
    most = 4 * 5**0.5
    torch.testing.assert_close(replies.columns["losses"][4], torch.tensor([1.0, most]).double())
    assert "losses: of norm 1e+09" in guard.bounded[4]
    chosen = torch.tensor([0, 0, 1, 0, 0, 0])
    replies, guard = answered(losses=losses, chosen=chosen)
    assert guard.refused == {2: "chosen: model 1, and the loss of model 0 is lower"}
    vectors = torch.eye(3).double()[:, :2].repeat(6, 1, 1)
    vectors[1], vectors[3, :, 1] = vectors[1] / 2, 0
    replies, guard = answered(vectors=vectors)
    assert [*guard.refused] == [1]
