"""Export of adapters in the form of peft: two files, to be used with the frozen base model."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from umbel.checks import UsageError
from umbel.client.experts import Down
from umbel.files.atomic import replacing
from umbel.folder.tensor_files import NOTHING, write_plain
from umbel.networks.packages import optional

WEIGHTS = "adapter_model.safetensors"
SETTINGS = "adapter_config.json"


def to_peft(
    module: nn.Module,
    x: Tensor,  # noqa: ARG001
    folder: Path,
    said: Mapping[str, str] = NOTHING,
    *,
    moved: Sequence[str] = (),
) -> Callable[[Tensor], Tensor]:
    """Write the trained tensors into a folder, and return the module with the values read back.

    `moved` are the names of buffers that training changes, such as running statistics.
    `peft.PeftModel.from_pretrained(base, folder)` reads it, too. Raises `UsageError` for a module
    without adapters of peft, for mixtures of adapters, and if tensors are trained that peft's files
    can't hold.
    """
    peft = optional("peft", 'to: "peft"')
    if any(isinstance(part, Down) for part in module.modules()):
        raise UsageError(
            "to: 'peft' has no place for a mixture of experts, which this client uses; export the "
            "expert of its cluster, or the mixture to torch or safetensors"
        )
    network = _network(module, peft)
    adapters = _adapters(network, peft)
    used = _used(module, network, moved, peft)
    _check_held(used, adapters)
    folder.mkdir(parents=True, exist_ok=True)
    written = {name: tensor.detach().clone().contiguous() for name, tensor in adapters.items()}
    write_plain(folder / WEIGHTS, written, {"format": "pt", "umbel": json.dumps(dict(said))})
    settings = copy.deepcopy(network.peft_config[network.active_adapter])
    settings.inference_mode = True
    with replacing(folder / SETTINGS) as beside:
        settings.save_pretrained(beside.parent)
        (beside.parent / SETTINGS).replace(beside)
    held = {tensor.data_ptr() for tensor in adapters.values()}
    # A backbone may be large, and its values are not in the file.
    frozen = (each for each in module.parameters() if not each.requires_grad)
    again = copy.deepcopy(module, {id(t): t for t in frozen if t.data_ptr() not in held})
    other = _network(again, peft)
    for tensor in _adapters(other, peft).values():
        tensor.detach().zero_()
    peft.set_peft_model_state_dict(other, load_file(folder / WEIGHTS), other.active_adapter)
    return again


def _used(module: nn.Module, network: Any, moved: Sequence[str], peft: Any) -> dict[str, Tensor]:
    """The tensors that training changes, without buffers of copies of layers that are not used."""
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
    copied = (p for p in network.modules() if isinstance(p, peft.utils.ModulesToSaveWrapper))
    own = f"modules_to_save.{network.active_adapter}."
    unused = {
        id(buffer)
        for layer in copied
        for name, buffer in layer.named_buffers()
        if not name.startswith(own)
    }
    buffers = {name: module.get_buffer(name) for name in moved}
    return trained | {name: each for name, each in buffers.items() if id(each) not in unused}


def _check_held(used: dict[str, Tensor], adapters: dict[str, Any]) -> None:
    """Raise `UsageError` if peft's files can't hold all that is trained or that peft asks for."""
    for name, value in adapters.items():
        if not isinstance(value, Tensor):  # as `get_extra_state` returns, which peft asks for again
            raise UsageError(
                f"to: 'peft' has no place for {name}, which is no tensor; export to safetensors"
            )
    held = {tensor.data_ptr() for tensor in adapters.values()}
    for name, tensor in used.items():
        if tensor.data_ptr() not in held:
            raise UsageError(
                f"to: 'peft' has no place for {name}, which is trained beside the adapters; "
                "name its layer in modules_to_save, or export to safetensors"
            )


def _network(module: nn.Module, peft: Any) -> Any:
    found = [part for part in module.modules() if isinstance(part, peft.PeftModel)]
    if len(found) == 1:
        return found[0]
    what = "several networks" if found else "no network"
    raise UsageError(
        f"to: 'peft' needs one network with adapters of peft, but {type(module).__name__} holds "
        f"{what} with them; export to safetensors"
    )


def _adapters(network: Any, peft: Any) -> dict[str, Any]:
    """The active adapter's tensors, and extra states of modules, by peft's names.

    Asked for embeddings, too, peft would look for the model.
    """
    adapters: dict[str, Any] = peft.get_peft_model_state_dict(
        network, adapter_name=network.active_adapter, save_embedding_layers=False
    )
    return adapters
