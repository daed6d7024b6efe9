"""The data that advice is about: a folder, a table, a scenario by name, or an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from umbel.algorithms.restarts import innermost
from umbel.checks import UsageError, check, nearest
from umbel.client.work import LocalTraining
from umbel.data.scenarios import SCENARIOS
from umbel.data.tables.reading import holds_tables
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import load_table, merged, strangers_in, tables_of
from umbel.experiment.library import find_experiment, shipped_experiments
from umbel.experiment.places import whole
from umbel.experiment.toml_file import read, structured, warn_of_dropped

MODEL = {"name": "mlp", "hidden": [64]}
"""The network if the user names none."""


OWN = re.compile(r"[\w.]+:[\w.]+")
"""The name of a third-party scenario, "module:Name"."""


def asked_about(
    data: str,
    settings: Sequence[str],
    seed: int | None,
    *,
    allow: Callable[[Iterable[str]], object] = lambda _: None,
) -> ExperimentSettings:
    """The data and the network, as an experiment; `allow` is told what will be imported.

    Raises `UsageError` for data that can't be found, and for settings of privacy.
    """
    path = Path(data)
    if path.suffix == ".toml" or data in shipped_experiments():
        file = find_experiment(data)
        found = read(file, settings, allow=allow)
        warn_of_dropped(file, settings, found)
    else:
        table: dict[str, Any] = {
            "name": _name_of(path),
            "scenario": _scenario(data),
            "model": MODEL,
            "algorithm": {"name": "fedavg"},
        }
        table = reduce(merged, tables_of(settings), table)
        allow(strangers_in(table))
        found = structured(table, ExperimentSettings)
        if path.exists() and "path" not in table["scenario"]:
            scenario: Any = found.scenario
            expected = f"a scenario that reads files, as {data} is a path"
            check(hasattr(scenario, "path"), "scenario", type(scenario).__name__, expected)
            found = replace(found, scenario=replace(scenario, path=data))
        found = whole(found)
    clip = found.privacy.clip
    check(clip is None, "privacy.clip", clip, "allowed: ways are compared without noise")
    return found if seed is None else found.with_seed(seed)


def local_training(
    asked: ExperimentSettings, data: str, settings: Sequence[str]
) -> LocalTraining | None:
    """Local training, if the experiment states it; None: its learning rate is to be found."""
    of_a_file = data.endswith(".toml") or data in shipped_experiments()
    table = load_table(find_experiment(data)) if of_a_file else {"algorithm": {}}
    if "local" not in reduce(merged, tables_of(settings), table)["algorithm"]:
        return None
    local = getattr(innermost(asked.algorithm), "local", None)
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
    name = Path(name).stem.lstrip(".")
    check(bool(name), "data", str(path), "the name of a file, folder or scenario")
    return name
