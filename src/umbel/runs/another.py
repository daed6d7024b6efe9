"""Compares the experiment of a folder with the requested one, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from umbel.checks import UsageError, command, shown
from umbel.runs import config
from umbel.runs.experiment import Experiment
from umbel.runs.flat import flat
from umbel.runs.sweep import CONTROL, parts_of
from umbel.runs.wrapped import said_idly

MOST = 3
"""Largest number of settings that a message names."""

WORKERS = "engine.workers"
"""A setting that does not change the results: a run may go on with another value of it."""


def check_same(path: Path, there: Experiment, asked: Experiment) -> None:
    """Raise `UsageError` if the folder's experiment differs; descriptions are not compared."""
    old, new = settings_of(there, asked)
    others = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    others = [name for name in others if name != "description"]
    if not others:
        return
    named = [f"{name} is {_told(old, name)}, not {_told(new, name)}" for name in others[:MOST]]
    if len(others) > MOST:
        named.append(f"and {len(others) - MOST} more")
    how = "choose another --runs-dir"
    if CONTROL in parts_of(asked.name)[1].items():
        how = "remove this folder, and umbel makes it again"
    if others == [WORKERS]:
        with_it = command("resume", path, "--workers", asked.engine.workers)
        how = (
            f"results do not depend on it: `{with_it}` continues with it, and this command "
            "continues if it is left out"
        )
    raise UsageError(f"{path}: holds another experiment ({'; '.join(named)}); {how}")


def settings_of(
    there: Experiment, asked: Experiment
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """The settings of a folder's experiment and of another by name, to be compared."""
    old, new = (dict(flat(config.plain(one))) for one in (there, asked))
    idly = {f"algorithm.{key}" for key in said_idly(config.plain(there.algorithm))}
    return {name: old[name] for name in old if name in new or name not in idly}, new


def _told(values: Mapping[str, object], name: str) -> str:
    return shown(values[name]) if name in values else "unset"
