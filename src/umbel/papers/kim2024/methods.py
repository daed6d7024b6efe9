"""Common settings of the experiments of F.4 and F.5: a round is one step on one mini-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.client.work import Gradient
from umbel.papers.base import shipped


def by_gradients(
    num_clusters: int, batch: int, like: str = "mnist8", **cfl_gp: Any
) -> Mapping[str, Algorithm[Any]]:
    """The methods of the package's experiments with this number of clusters and mini-batch.

    IFCA's clients judge the models by the mini-batch they then step on, and a model's step is the
    mean over the clients that chose it, as CFL-GP's is: option I, which the paper names, divides by
    all clients, and comes to less than the paper's numbers.
    """
    usual: dict[str, Any] = {
        row: shipped(f"{name}-{like}").algorithm
        for row, name in {
            "CFL-GP": "cfl-gp",
            "IFCA": "ifca",
            "MADMO": "sattler",
            "Global": "fedavg",
        }.items()
    }
    by_gradient = {
        row: replace(usual[row], gradient=Gradient(batch)) for row in ("CFL-GP", "MADMO", "Global")
    }
    local = replace(usual["IFCA"].local, batch_size=batch)
    return {
        "CFL-GP": replace(by_gradient["CFL-GP"], num_clusters=num_clusters, **cfl_gp),
        "IFCA": replace(usual["IFCA"], num_clusters=num_clusters, local=local),
        "MADMO": by_gradient["MADMO"],
        "Global": by_gradient["Global"],
    }
