"""Each federation of the papers, made small, trains its paper's network for a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import umbel
from umbel.data.sources import Sources
from umbel.experiment.toml_file import structured
from umbel.result.run import Experiment

SMALL = {"clients": 10, "examples": [20]}

ROUNDS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("grouped-cifar10", SMALL, "cnn", {"channels": [2], "hidden": 4}),
    ("label-swapped-cifar10", SMALL, "lenet", {}),
    ("grouped-rotated-emnist", SMALL, "cnn", {"channels": [2], "hidden": 4}),
    ("bearing-faults", SMALL, "cnn-1d", {}),
    ("rotated-mnist-4", SMALL, "mlp", {}),
    ("mixture-mnist", {**SMALL, "shift": {"name": "mixed-turns", "kappa": 0.2}}, "mlp", {}),
    ("mnist-and-fashion", {"clients": 16, "examples": [20]}, "linear", {}),
    ("channel-state", {"clients": 4, "examples": 20}, "csi-autoencoder", {"code": 16}),
    ("channel-state-5", {"clients": 5, "examples": 9}, "csi-autoencoder", {"norm": "group"}),
    ("permuted-cifar10", SMALL, "lenet", {}),
    ("emnist-dirichlet", SMALL, "lenet", {}),
    ("rotated-cifar10", SMALL, "lenet", {}),
    ("letters", SMALL, "cnn-lin", {"kernel": 5}),
    ("consecutive-letters", {"clients": 10}, "cnn-lin", {"kernel": 5}),
    ("lin-emnist", {"clients": 16, "images_per_label": 14}, "cnn-lin", {"kernel": 5}),
]

OFTEN = ("bearing-faults", "channel-state", "letters")
"""One of each kind of data; the others are read at length."""


@pytest.mark.parametrize(
    ("scenario", "settings", "model", "sizes"),
    [
        pytest.param(*each, marks=pytest.mark.long if each[0] in OFTEN else pytest.mark.thorough)
        for each in ROUNDS
    ],
    ids=lambda x: str(x),
)
def test_a_federation_trains_its_network(
    scenario: str,
    settings: dict[str, Any],
    model: str,
    sizes: dict[str, Any],
    tmp_path: Path,
    real_data: Sources,
) -> None:
    averaging = {"shared": ["encoder.*"]} if model == "csi-autoencoder" else {}
    table = {
        "name": "small",
        "rounds": 1,
        "scenario": {"name": scenario, **settings},
        "model": {"name": model, **sizes},
        "algorithm": {
            "name": "ifca",
            "num_clusters": 2,
            "averaging": averaging,
            "local": {"lr": 0.01, "steps": 2, "batch_size": 8},
        },
    }
    experiment: Experiment = structured(table, Experiment)
    folder = umbel.RunFolder.create(tmp_path / "run", experiment)
    (record,) = umbel.execute(folder, real_data)
    assert record.loss is not None
    assert (record.accuracy is None) == scenario.startswith("channel-state")
    assert (record.ari is None) == (scenario == "letters")
    assert not record.missing
    assert not record.refused
