"""Small data for scenarios that read files: `data` as `--data-dir` takes it, and `clients`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from umbel.data.bearings import FILE, FOLDER, RECORDINGS, SPEEDS


def write_data(folder: Path) -> None:
    """Two writers, a few vibrations, and two clients."""
    femnist, bearings = folder / "data" / "femnist", folder / "data" / FOLDER
    for each in (femnist, bearings, folder / "clients"):
        each.mkdir(parents=True)
    writer = {"x": 6 * [784 * [0.5]], "y": [0, 1, 2, 0, 1, 2]}
    users = {"users": ["a", "b"], "num_samples": [6, 6], "user_data": {"a": writer, "b": writer}}
    (femnist / "all.json").write_text(json.dumps(users))
    signal = np.sin(np.arange(1024)).astype(np.float32)
    names = [f"{condition}__{speed}rpm" for condition in RECORDINGS for speed in SPEEDS]
    signals: dict[str, Any] = dict.fromkeys(names, signal)
    np.savez(bearings / FILE, **signals)
    for client in ("a", "b"):
        write_client(folder, client)


X = np.linspace(0, 1, 80, dtype=np.float32).reshape(20, 4)
Y = np.arange(20) % 3


def write_client(folder: Path, client: str = "a", **arrays: Any) -> None:
    """A file of the folder `clients`, with other arrays than X and Y where some are given."""
    (folder / "clients").mkdir(exist_ok=True)
    held = {"x": X, "y": Y, **arrays}
    np.savez(folder / "clients" / f"{client}.npz", **held)
