"""Federations by the names that experiments call their scenarios.

Apart from `library.py`, which commands read without loading PyTorch.
"""

from __future__ import annotations

from pathlib import Path

from umbel.checks import check
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.experiment.toml_file import structured
from umbel.settings import argument


def scenario(
    name: str, *, seed: int = 0, data_dir: Path | str | None = None, **settings: object
) -> Federation:
    """Build the federation of a named scenario, with some of its settings changed.

    >>> umbel.scenario("rotated-digits", clients=8, seed=1).num_clients
    8

    `umbel list scenarios` names them all. Image data sets come from `data_dir`, as in
    `Sources.default`. Raises `UsageError` for a name
    or a setting that is not known, for a seed below 0, and where the data can't be found.
    """
    seed = argument("seed", seed, int)
    check(seed >= 0, "seed", seed, "0 or more")
    recipe: Scenario = structured({"name": name, **settings}, Scenario)
    return recipe.built(seed, Sources.default(None if data_dir is None else Path(data_dir)))
