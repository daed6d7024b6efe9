"""The version of the package, in the one place that the build and the code both read."""

import platform
import sys
from collections.abc import Mapping

__version__ = "0.1.0"
"""Version of the package, such as "0.1.0"."""

BESIDE = ("torch", "flwr", "ray")
"""Packages whose versions matter for results and messages, if they are loaded."""

ONE_RELEASE = "releases may compute differently: install the same one everywhere"
"""Advice about a difference of versions, for messages."""


def versions(others: tuple[str, ...] = BESIDE) -> dict[str, str]:
    """The versions of umbel, of Python, and of those `others` that this process has loaded."""
    loaded = {name: sys.modules[name] for name in others if name in sys.modules}
    beside = {name: str(getattr(module, "__version__", "?")) for name, module in loaded.items()}
    return {"umbel": __version__, "python": platform.python_version(), **beside}


def differing(there: Mapping[str, str], names: tuple[str, ...] = ("umbel",)) -> str:
    """Name the versions that differ, as "umbel 0.2.0 (here 0.1.0)"; "" if none does.

    Builds of the same version, such as 2.13.0+cpu and 2.13.0+cu130, count as one.
    """
    here = versions()
    unlike = [
        f"{name} {there.get(name, 'of an unknown version')} (here {here[name]})"
        for name in names
        if name in here and there.get(name, "").partition("+")[0] != here[name].partition("+")[0]
    ]
    return " and ".join(unlike)
