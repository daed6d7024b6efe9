"""The data that advice is about: a folder, a table, a scenario by name, or an experiment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, check, nearest
from umbel.client.work import LocalTraining
from umbel.data.scenarios import SCENARIOS
from umbel.data.tables.reading import holds_tables
from umbel.runs.config import read, structured
from umbel.runs.experiment import Experiment
from umbel.runs.library import find_experiment, shipped_experiments
from umbel.runs.tables import merged, parse_setting

MODEL = {"name": "mlp", "hidden": [64]}
"""The network if the user names none."""


OWN = re.compile(r"[\w.]+:[\w.]+")
"""The name of somebody's own scenario, "module:Name"."""


def asked_about(
    data: str, settings: Sequence[str], seed: int | None, *, looking: bool = False
) -> Experiment:
    """The data and the network, as an experiment.

    Raises `UsageError` for data that can't be found, and for settings of privacy.
    """
    path = Path(data)
    if path.suffix == ".toml" or data in shipped_experiments():
        found = read(find_experiment(data), settings, looking=looking)
    else:
        table: dict[str, Any] = {
            "name": _name_of(path),
            "scenario": _scenario(data),
            "model": MODEL,
            "algorithm": {"name": "fedavg"},
        }
        for setting in settings:
            table = merged(table, parse_setting(setting))
        found = structured(table, Experiment, looking)
    clip = found.privacy.clip
    check(clip is None, "privacy.clip", clip, "allowed: ways are compared without noise")
    return found if seed is None else found.with_seed(seed)


def local_training(asked: Experiment, data: str, settings: Sequence[str]) -> LocalTraining | None:
    """Local training, if the experiment states it; None: its learning rate is to be found."""
    said = any(setting.strip().startswith("algorithm.local") for setting in settings)
    if not said and not data.endswith(".toml") and data not in shipped_experiments():
        return None
    local = getattr(asked.algorithm, "local", None)
    return local if isinstance(local, LocalTraining) else None


def _scenario(data: str) -> Mapping[str, Any]:
    path = Path(data)
    if not path.exists() and (data in SCENARIOS or OWN.fullmatch(data)):
        return {"name": data}
    if not path.exists():
        known = [*SCENARIOS, *shipped_experiments()]
        near = nearest(data, known, "`umbel list scenarios` shows all scenarios")
        raise UsageError(f"data: {data}: no such file, folder or scenario; {near}")
    if holds_tables(path):
        return {"name": "table", "path": data}
    return {"name": "folder", "path": data}


def _name_of(path: Path) -> str:
    name = path.resolve().name if path.exists() else str(path).rpartition(":")[-1]
    name = Path(name).stem
    check(bool(name), "data", str(path), "the name of a file, folder or scenario")
    return name
