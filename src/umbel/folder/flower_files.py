"""Files that the server of a Flower app writes into the folder of its run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    return json_value(folder / ROLL, lambda roll: str(settled(roll).get("inputs", ""))) or ""


def settled(roll: Mapping[str, Any]) -> dict[str, Any]:
    """The roll without a meaning of tables that depends on the place of a tokenizer.

    Earlier versions wrote these. Only tables with a tokenizer have whole numbers as inputs.
    """
    from umbel.data.tables.encoding import TOKENS  # it loads PyTorch, for which help must not wait

    unlike = "largest_input" in roll and not str(roll.get("inputs", "")).startswith(TOKENS)
    return {name: value for name, value in roll.items() if name != "inputs" or not unlike}
