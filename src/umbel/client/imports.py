"""Import of objects by names such as "module:Name"."""

from __future__ import annotations

import importlib
from typing import Any

from umbel.checks import UsageError, shown


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
            reason += "; modules are looked for in the current folder and in PYTHONPATH"
        raise UsageError(f"{field}: {shown(name)} can't be imported: {reason}") from None
    return named
