"""Code outside umbel that an experiment names: print its names before the import, or refuse it.

The working directory is searched only for such imports. Commands that only show runs import
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from umbel.checks import UsageError, shown
from umbel.cli.printing import say

if TYPE_CHECKING:
    from umbel.experiment.experiment import ExperimentSettings
    from umbel.folder.run_folder import RunFolder


def allow(experiment: ExperimentSettings, no_import: bool) -> None:
    """Print what an experiment will import. Raises `UsageError` if imports are forbidden."""
    from umbel.experiment.toml_file import plain
    from umbel.experiment.unimported import strangers_in

    announce(strangers_in(plain(experiment)), no_import)


def allow_parts(experiment: ExperimentSettings, parts: Iterable[str], no_import: bool) -> None:
    """As `allow`, for a command that imports only what these parts of an experiment name."""
    from umbel.experiment.toml_file import plain
    from umbel.experiment.unimported import strangers_in

    table = plain(experiment)
    announce(strangers_in({part: table[part] for part in parts}), no_import)


def allow_rounds(folder: RunFolder, no_import: bool) -> None:
    """As `allow`, for resuming a run; a run made in Python is refused later and imports nothing."""
    from umbel.experiment.made_in_python import OwnData

    experiment = folder.experiment
    if not isinstance(experiment.scenario, OwnData):
        allow(experiment, no_import)


def announce(names: Iterable[str], no_import: bool) -> None:
    """Say that these will be imported, if any: names such as "module:Name"."""
    said = ", ".join(dict.fromkeys(map(shown, names)))
    if said and no_import:
        raise UsageError(f"--no-import: {said} would have to be imported")
    if said:
        say(f"imports {said}", err=True)
        sys.path.append(str(Path.cwd()))
