"""A metric of one's own that always fails is refused before the first round, and no other is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import umbel
from tests.preflight.fitted import numbers
from umbel.data.federation import Federation

METRICS = """
def forgets_an_axis(labels, shares):
    return float((shares.argsort(1)[:, -2:] == labels).any(1).mean())

def gives_many(labels, shares):
    return shares.max(1)

def gives_nothing(labels, shares):
    pass

def needs_two_classes(labels, shares):
    if len(set(labels)) < 2:
        raise ValueError("one class")
    return 1.0

def needs_a_spread(labels, shares):
    if shares.std() == 0:
        raise ValueError("all alike")
    return 1.0
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "metrics_to_fit.py").write_text(METRICS)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("metrics_to_fit", None)
    return "metrics_to_fit"


def federation() -> Federation:
    """Three clients with 5, 3 and 2 test examples; the first has one class."""
    clients = [(numbers(size, 6), np.arange(size) % 3) for size in (5, 3, 2)]
    test = [(clients[0][0], np.zeros(5, int)), *clients[1:]]
    return Federation.from_arrays(clients, test)


def of_zeros() -> nn.Module:
    layer = nn.Linear(6, 3)
    for values in layer.parameters():
        nn.init.zeros_(values)
    return layer


def run_with(metric: str) -> umbel.Run:
    net = umbel.Net(of_zeros)
    return umbel.Run(umbel.FedAvg(), federation(), net, metrics=(metric,), evaluate_every=5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("forgets_an_axis", r"raised \w+ at metrics_to_fit\.py:3"),
        ("gives_many", "gave a ndarray, which is no number"),
        ("gives_nothing", "gave None, which is no number"),
    ],
)
def test_a_metric_that_fails_for_all_is_refused_before_the_first_round(
    own: str, name: str, said: str
) -> None:
    run = run_with(f"{own}:{name}")
    with pytest.raises(umbel.UsageError, match=f"^metrics: '{own}:{name}' ({said})"):
        run.clients  # noqa: B018
