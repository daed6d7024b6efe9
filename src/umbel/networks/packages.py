"""Import of packages that only some networks need, when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from umbel.checks import UsageError


def optional(name: str, what: str) -> Any:
    """The package of this name. Raises `UsageError` with the name of the extra if it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        install = 'install the extra with: pip install "umbel[peft]"'
        raise UsageError(f"{what}: needs the package {name!r}; {install}") from None
