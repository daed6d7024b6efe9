"""The experiments of a paper that come with the package are those of its tables and figures."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.library import experiments_in, shipped_comparisons
from umbel.papers.base import Size
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.result.run import read

OURS = {
    *("rotated-digits", "rotated-digits-others", "rotated-mnist-reduced", "watch", "flights"),
    *(
        "drift-sea",
        "drift-sine",
        "drift-circle",
        "drift-mnist",
        "drift-flights",
        "dirichlet-digits",
    ),
    *("adapted-digits", "packages-adapters", "words-lstm", "words-transformer"),
    *("attacked-digits", "attacked-mnist"),
}
"""Comparisons that are of no paper, or have sizes of their own."""

IN_NO_TABLE = {
    *("oracle-linear", "oracle-mnist8", "oracle-mnist", "oracle-lin"),  # ceilings
    *("oracle-120", "oracle-1200", "oracle-2400"),
    "fedavg-linear",
    *("joint-0.0-lin", "joint-literal-lin", "joint-sum-lin"),  # variants, to see what they do
    *("fedavg-120", "ifca-120", "lcfl-federated-120", "local-only-120"),  # a tenth of the clients
    *("lcfl-120", "lcfl-gradient-120", "lcfl-parameters-120"),  # they warm up alone
}

OF_PAPERS = {
    file.stem: read(file)
    for name, folder in shipped_comparisons().items()
    if name not in OURS
    for file in experiments_in(folder)
}


def essence(experiment: ExperimentSettings) -> ExperimentSettings:
    """The experiment, whatever it is called and however often it is looked at and saved."""
    return replace(experiment, name="any", description="", evaluate_every=1, checkpoint_every=1)


@pytest.fixture(scope="module")
def cells() -> list[ExperimentSettings]:
    """All cells of all tables."""
    return [
        essence(cell.experiment)
        for wanted in REPRODUCTIONS.values()
        for size in get_args(Size)
        for cell in wanted.cells(size)
    ]


@pytest.mark.parametrize("name", OF_PAPERS)
def test_an_experiment_of_a_paper_is_a_cell_of_its_tables(
    name: str, cells: list[ExperimentSettings]
) -> None:
    assert (essence(OF_PAPERS[name]) in cells) == (name not in IN_NO_TABLE)
