"""Models of a run that another network is given for, or that somebody has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import umbel
from tests.federations import blobs, mlp
from umbel.checks import UsageError

LOCAL = umbel.LocalTraining(lr=0.1, epochs=1)
MODEL, CLIENTS = "models/cluster-0.safetensors", "models/clients.safetensors"
CHECKPOINT = "checkpoint.safetensors"

Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def changed(file: Path, change: Change, header: Mapping[str, Any] | None = None) -> None:
    """Write the file again without its seal, as older versions did, or somebody may."""
    with safe_open(file, "pt") as opened:
        said = json.loads((opened.metadata() or {}).get("umbel", "{}"))
    said = {**{k: v for k, v in said.items() if k != "seal"}, **(header or {})}
    tensors = {k: v.contiguous() for k, v in change(load_file(file)).items()}
    save_file(tensors, file, {"umbel": json.dumps(said)})


def without(name: str) -> Change:
    return lambda tensors: {k: v for k, v in tensors.items() if k != name}


def made(folder: Path, method: Any) -> umbel.Result:
    return umbel.Run(method, blobs((9, 12, 8)), mlp()).save(folder, 2)


def test_a_tensor_that_is_missing_or_turned_is_named(tmp_path: Path) -> None:
    result = made(tmp_path / "run", umbel.IFCA(2, LOCAL))
    name = next(n for n, t in load_file(tmp_path / "run" / MODEL).items() if t.dim() == 2)
    changed(tmp_path / "run" / MODEL, lambda t: {**t, name: t[name].T})
    with pytest.raises(UsageError, match=rf"{name}: \(.*\), as the network has it"):
        result.model(0)
    changed(tmp_path / "run" / MODEL, without(name))
    with pytest.raises(UsageError, match=rf"{name}: 'no such tensor' is not \("):
        result.model(0)


@pytest.mark.parametrize("method", [umbel.PFedMe(local=LOCAL), umbel.FedEM(2, local=LOCAL)])
def test_models_of_another_size_are_told(method: Any, tmp_path: Path) -> None:
    result = made(tmp_path / "run", method)
    changed(tmp_path / "run" / CLIENTS, lambda t: {**t, "models": t["models"][..., :-2]})
    with pytest.raises(UsageError, match=r"a model: .*, the shape of the network's models"):
        result.model_for("1")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"next_round": -1}, "is of another run than"),
        ({"parts": {"models": "../../etc"}}, "'../../etc' is not the name of a part"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused(
    header: dict[str, Any], said: str, tmp_path: Path
) -> None:
    result = made(tmp_path / "run", umbel.IFCA(2, LOCAL))
    changed(tmp_path / "run" / CHECKPOINT, lambda t: t, header)
    with pytest.raises(UsageError, match=said):
        assert torch.is_tensor(result.state.models)
