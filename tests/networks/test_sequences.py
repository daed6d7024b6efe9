"""Networks over symbols: what comes later, padding among it, is never seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import umbel
from umbel.checks import UsageError
from umbel.client.batches import IGNORED
from umbel.networks import CharLSTM, CharTransformer, Model
from umbel.networks.transformer import causal_mask

SYMBOLS, LENGTH = 7, 9

MODELS: list[Model] = [
    CharLSTM(embedding=4, hidden=6, layers=2),
    CharTransformer(width=8, heads=2, layers=2, hidden=12),
]


@pytest.fixture(params=MODELS, ids=lambda model: type(model).__name__)
def module(request: pytest.FixtureRequest) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Model = request.param
        return model.build((LENGTH,), SYMBOLS).double()


def symbols(count: int) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    return torch.randint(0, SYMBOLS, (count, LENGTH), generator=rng)


def test_a_position_is_hidden_from_all_before_it() -> None:
    hidden = [[False, True, True], [False, False, True], [False, False, False]]
    assert causal_mask(3).tolist() == hidden


def test_logits_of_a_position_are_those_of_what_is_up_to_it_alone(module: nn.Module) -> None:
    x = symbols(3)
    logits = module(x)
    assert logits.shape == (3, SYMBOLS, LENGTH)
    for end in range(1, LENGTH + 1):
        alone = module(x[:, :end])[:, :, -1]
        torch.testing.assert_close(alone, logits[:, :, end - 1])


@pytest.mark.parametrize("padding", [-1, -100, 0])
def test_padding_leaves_logits_and_gradients_as_they_are(module: nn.Module, padding: int) -> None:
    x, length = symbols(1), 5
    y = torch.cat([x[:, 1:], x[:, :1]], 1)
    padded, labels = x.clone(), y.clone()
    padded[:, length:], labels[:, length:] = padding, IGNORED
    longer = torch.cat([padded, symbols(1)]), torch.cat([labels, y])

    def found(x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        logits = module(x)
        loss = umbel.CLASSIFICATION.losses(logits, y)[0]
        return logits, list(torch.autograd.grad(loss, list(module.parameters())))

    logits, gradients = found(x[:, :length], y[:, :length])
    for whole in ((padded, labels), longer):  # alone, and beside an example without padding
        logits_padded, gradients_padded = found(*whole)
        torch.testing.assert_close(logits_padded[:1, :, :length], logits)
        for padded_one, one in zip(gradients_padded, gradients, strict=True):
            torch.testing.assert_close(padded_one, one)


def parameters(model: Model, symbols: int) -> int:
    return sum(each.numel() for each in model.build((LENGTH,), symbols).parameters())


def test_the_networks_have_the_layers_asked_for() -> None:
    lstm = 10 * 3 + 4 * 5 * (3 + 5 + 2) + 4 * 5 * (5 + 5 + 2) + (5 + 1) * 10
    assert parameters(CharLSTM(embedding=3, hidden=5, layers=2), 10) == lstm
    block = 2 * 2 * 8 + (8 + 1) * 24 + (8 + 1) * 8 + (8 + 1) * 12 + (12 + 1) * 8
    transformer = 10 * 8 + LENGTH * 8 + 3 * block + 2 * 8 + (8 + 1) * 10
    assert parameters(CharTransformer(width=8, heads=2, layers=3, hidden=12), 10) == transformer


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_inputs_must_be_symbols(model: Model) -> None:
    with pytest.raises(UsageError, match=r"model: \(3, 40\) is not the shape of a sequence: .*not"):
        model.build((3, 40), 40)


def counting(step: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sequences in which each symbol is `step` more than the last, of unequal length."""
    rng = torch.Generator().manual_seed(seed)
    first = torch.randint(0, SYMBOLS, (24, 1), generator=rng)
    x = (first + step * torch.arange(LENGTH)) % SYMBOLS
    y = (x + step) % SYMBOLS
    ends = torch.randint(3, LENGTH + 1, (24, 1), generator=rng)
    beyond = torch.arange(LENGTH) >= ends
    return x.where(~beyond, -1), y.where(~beyond, IGNORED)


@pytest.mark.parametrize("model", [pytest.param(MODELS[0], marks=pytest.mark.long), MODELS[1]])
def test_it_learns_two_ways_of_counting_and_who_counts_which_way(model: Model) -> None:
    steps = (1, 3, 1, 3, 3, 1)
    clients = [counting(step, seed) for seed, step in enumerate(steps)]
    federation = umbel.Federation.from_arrays(clients, groups=steps, num_classes=SYMBOLS)
    net = umbel.Net(lambda: model.build((LENGTH,), SYMBOLS))
    local = umbel.LocalTraining(lr=0.03, epochs=2, batch_size=8, optimizer=umbel.Adam())
    clustered = umbel.CFLGP(num_clusters=2, send="update", local=local)
    last = []
    for method in (umbel.FedAvg(local=local), clustered):
        run = umbel.Run(method, federation, net, metrics=("perplexity",))
        *_, (_, record) = run.rounds(6)
        last.append(record)
    one, two = (record.measures["perplexity"] or 0 for record in last)
    assert last[1].ari == 1.0
    assert 1.0 <= two < 1.6
    assert one > 2.0
