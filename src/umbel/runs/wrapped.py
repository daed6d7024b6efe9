"""Keys that the table of any method may have, and what was meant by one that none has."""

from __future__ import annotations

from dataclasses import fields

from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import Restarts
from umbel.algorithms.sharing import Sharing
from umbel.checks import nearest

RESTARTS = tuple(f.name for f in fields(Restarts) if f.name != "of")
"""What the table of any method may say of `Restarts`, beside the method's own settings."""

SHARING = tuple(f.name for f in fields(Sharing) if f.name != "of")
"""And of `Sharing`."""


def hint(key: str, kind: type) -> str:
    """What was meant by a key that the table of this dataclass does not have."""
    own = [f.name for f in fields(kind)]
    if not issubclass(kind, Algorithm):
        return nearest(key, own)
    restarts = () if "restarts" in own else RESTARTS
    if key in restarts:
        return "it goes with restarts, such as restarts = 10"
    return nearest(key, [*own, *restarts, *(() if {*SHARING} & {*own} else SHARING)])
