from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.data.scenarios.streams import DRIFTING_MNIST, Streams
from umbel.data.sources import Sources

Name = Literal["sea", "sine", "circle"]


def built(sources: Sources, name: Name, schedule: str, noise: float | None = 0.0) -> Federation:
    scenario = Streams(stream=name, noise=noise)
    return scenario.built_over_time(0, sources, None, schedule)


def right(name: Name, concept: int, x: torch.Tensor) -> torch.Tensor:
    """The class of each point, by the words of the paper."""
    if name == "sea":
        return (x[:, 1] + x[:, 2] > (8, 9, 7, 9.5)[concept]).long()
    if name == "sine":
        below = x[:, 1] <= torch.sin(x[:, 0])
        return (below if concept == 0 else ~below).long()
    across, radius = ((0.2, 0.15), (0.6, 0.25))[concept]
    return ((x[:, 0] - across) ** 2 + (x[:, 1] - 0.5) ** 2 > radius**2).long()


@pytest.mark.parametrize(("name", "schedule"), [("sea", "B"), ("sine", "A"), ("circle", "A")])
def test_classes_are_those_of_the_concept(sources: Sources, name: Name, schedule: str) -> None:
    federation = built(sources, name, schedule)
    assert federation.num_steps == 10
    assert federation.num_classes == 2
    assert federation.concepts is not None
    for step in range(10):
        train = federation.at(step, step).train
        for client in range(10):
            x, y = train.of(client)
            assert len(x) == 500
            assert torch.equal(y, right(name, int(federation.concepts[client, step]), x))
    top = 10.0 if name == "sea" else 1.0
    assert 0 <= federation.train.x.min() < 0.01 * top
    assert 0.99 * top < federation.train.x.max() <= top


def test_a_tenth_of_the_labels_of_sea_are_wrong(sources: Sources) -> None:
    for name, share in (("sea", 0.1), ("sine", 0.0), ("circle", 0.0)):
        noisy, clear = (built(sources, name, "A", noise) for noise in (None, 0.0))  # type: ignore[arg-type]
        assert torch.equal(noisy.train.x, clear.train.x)
        wrong = (noisy.train.y != clear.train.y).double().mean()
        assert wrong == pytest.approx(share, abs=0.01)


def test_without_time_each_client_has_one_concept(sources: Sources) -> None:
    federation = Streams(stream="sea", clients=6, noise=0.0).build(0, sources)
    assert federation.groups is not None
    assert federation.groups.tolist() == [0, 1, 2, 3, 0, 1]
    for client, concept in enumerate(federation.groups.tolist()):
        x, y = federation.train.of(client)
        assert torch.equal(y, right("sea", concept, x))
    assert not torch.equal(federation.train.of(0)[0], federation.train.of(4)[0])


def test_streams_are_a_function_of_the_seed(sources: Sources) -> None:
    one, same, other = (Streams().over_time(seed, sources, 2, "") for seed in (1, 1, 2))
    assert torch.equal(one.train.x, same.train.x)
    assert torch.equal(one.train.y, same.train.y)
    assert not torch.equal(one.train.x, other.train.x)
    assert len(np.unique(one.train.x[:, 0])) > 0.99 * len(one.train.x)


def test_drifting_mnist_swaps_the_labels_of_the_paper(real_data: Sources) -> None:
    federation = DRIFTING_MNIST.built_over_time(0, real_data, None, "F")
    assert federation.num_steps == 10
    assert federation.train.sizes.tolist() == [5500] * 10


def test_settings_out_of_range_are_refused(sources: Sources) -> None:
    for change in ({"clients": 0}, {"examples": 0}, {"noise": 1.5}):
        with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
            Streams(**change)
    with pytest.raises(UsageError, match="schedule 'B' has concept 2, and the scenario 2 concepts"):
        built(sources, "sine", "B")
