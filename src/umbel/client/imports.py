"""Import of objects by names such as "module:Name"."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, shown
from umbel.summary import few


def places() -> list[str]:
    """The folders that modules are looked for in, but those of Python and of installed packages."""
    installed = (sys.prefix, sys.base_prefix)
    every = dict.fromkeys(str(Path(place).absolute()) for place in sys.path)
    return [place for place in every if not place.startswith(installed)]


def imported(field: str, name: str) -> Any:
    """Import the object of this name. Raises `UsageError` for any exception of the import."""
    module, _, path = name.partition(":")
    try:
        named: Any = importlib.import_module(module)
        for part in path.split("."):
            named = getattr(named, part)
    except (Exception, SystemExit) as error:
        known = isinstance(error, ImportError | AttributeError | ValueError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            reason += f"; modules are looked for in {few(places())} and among installed packages"
        raise UsageError(f"{field}: {shown(name)} can't be imported: {reason}") from None
    return named
