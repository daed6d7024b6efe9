"""Files that the server of a Flower app writes into the folder of its run."""

from __future__ import annotations

from pathlib import Path

from umbel.files.seals import json_value

NODES = "nodes.json"
"""Which node has which clients."""

ROLL = "clients.json"
"""File with the names of the clients, by number, and the server's knowledge of their examples."""

OVER_FLOWER = "is a run over Flower, with clients at their nodes: the same `flwr run` continues it"

NOT_HERE = "is a run over Flower, whose server does not know"
"""Beginning of the refusal of newcomers that only sites could encode."""


def over_flower(folder: Path) -> bool:
    """Whether the server of a Flower app has written this folder."""
    return (folder / NODES).is_file()


def names_on_the_roll(folder: Path) -> list[str]:
    """The name of each client; none for another run. Raises `UsageError` for a damaged file."""
    return json_value(folder / ROLL, lambda roll: list(map(str, roll["names"]))) or []


def inputs_on_the_roll(folder: Path) -> str:
    """The meaning that sites' tables have; "" if it is not known, or for another run.

    Raises `UsageError` for a damaged file.
    """
    return json_value(folder / ROLL, lambda roll: str(roll["inputs"])) or ""
