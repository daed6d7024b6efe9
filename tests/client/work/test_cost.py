"""What works cost, in gradients and losses of single examples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from umbel.client.work import (
    MEMORY,
    AnchoredTraining,
    BestShares,
    ChooseByLoss,
    ChooseJointly,
    Feature,
    Gradient,
    JointScore,
    LocalTraining,
    MeanLoss,
    MetaTraining,
    MixtureTraining,
    MixtureWeights,
    MoreauTraining,
    PersonalTraining,
    PrincipalVectors,
    Quantised,
    Routed,
    SharedTraining,
    TrainAndGradient,
    Work,
)
from umbel.client.work.base import Cost

EXAMPLES, MODELS, P = 10, 3, 7
SENT = {
    "models": torch.Size([MODELS, P]),
    "moves": torch.Size([MODELS, P]),
    "theta": torch.Size([P]),
    MEMORY: torch.Size([MODELS]),
}
LOCAL = LocalTraining(epochs=2, batch_size=4)
TRAINING = 2 * EXAMPLES


@pytest.mark.parametrize(
    ("work", "gradients", "losses"),
    [
        (LOCAL, TRAINING, 0),
        (LocalTraining(epochs=5, batch_size="all"), 5 * EXAMPLES, 0),
        (LocalTraining(epochs=2, batch_size=4, drop_last=True), 2 * 8, 0),
        (LocalTraining(steps=4, batch_size=4), 10 + 4, 0),
        (LocalTraining(steps=2, batch_size=64), 2 * EXAMPLES, 0),
        (Gradient(), EXAMPLES, 0),
        (Gradient(batch_size=4), 4, 0),
        (MeanLoss(), 0, MODELS * EXAMPLES),
        (MeanLoss(max_examples=6), 0, MODELS * 6),
        (ChooseByLoss(LOCAL), TRAINING, MODELS * EXAMPLES),
        (ChooseByLoss(LOCAL, judge="mini-batch"), TRAINING, MODELS * 4),
        (ChooseByLoss(Gradient(), judge="mini-batch"), EXAMPLES, MODELS * EXAMPLES),
        (JointScore(LOCAL), MODELS * 4, 0),
        (ChooseJointly(JointScore(LOCAL)), MODELS * 4 + TRAINING, 0),
        (MetaTraining(LOCAL, 0.1, "first-order", 1e-3), 2 * TRAINING, 0),
        (MetaTraining(LOCAL, 0.1, "exact", 1e-3), 3 * TRAINING, 0),
        (MetaTraining(LOCAL, 0.1, "hessian-free", 1e-3), 4 * TRAINING, 0),
        (MoreauTraining(LOCAL, 15.0, 5, 0.1), 5 * TRAINING, 0),
        (MixtureWeights(), 0, MODELS * EXAMPLES),
        (BestShares(), 0, MODELS * EXAMPLES),
        (AnchoredTraining(LOCAL, 0.1), TRAINING, 0),
        (MixtureTraining(LOCAL), MODELS * TRAINING, MODELS * EXAMPLES),
        (TrainAndGradient(LOCAL), TRAINING + EXAMPLES, 0),
        (TrainAndGradient(LOCAL, Gradient(4)), TRAINING + 4, 0),
        (PersonalTraining(LOCAL), TRAINING, 0),
        (SharedTraining(LOCAL, ("a",)), TRAINING, 0),
        (Feature(Gradient()), EXAMPLES, 0),
        (Quantised(Feature(LOCAL), 3), TRAINING, 0),
        (Routed(LOCAL, 2), TRAINING, 0),
        (PrincipalVectors(3, 5), 0, 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Work) else str(value),
)
def test_a_work_says_what_it_costs_a_client_of_ten_examples(
    work: Work, gradients: int, losses: int
) -> None:
    assert work.cost(EXAMPLES, SENT) == Cost(gradients, losses)


@given(
    examples=st.integers(1, 40),
    batch_size=st.one_of(st.just("all"), st.integers(1, 50)),
    epochs=st.integers(1, 4),
    steps=st.none() | st.integers(1, 20),
    drop_last=st.booleans(),
)
def test_training_costs_as_many_gradients_as_its_mini_batches_hold_examples(
    examples: int, batch_size: int | str, epochs: int, steps: int | None, drop_last: bool
) -> None:
    local = LocalTraining(
        epochs=epochs,
        batch_size=batch_size,  # type: ignore[arg-type]
        steps=steps,
        drop_last=drop_last,
    )
    planned = int((local.batching.plan(examples, 0) >= 0).sum())
    assert local.cost(examples, SENT) == Cost(gradients=planned)
