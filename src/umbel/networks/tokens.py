"""Padding of token ids (B, L), and the length of trailing padding that can be cut off.

Examples are padded to the right. An example ends with its last id that is not padding; negative
ids are padding wherever they stand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from umbel.checks import UsageError, check


def attended(ids: Tensor, pad: int | None) -> Tensor:
    """(B, L) bool: which ids a network attends to; always the first, so that one exists."""
    real = ids >= 0
    filled = real if pad is None else real & (ids != pad)
    until_the_last = filled.flip(1).cumsum(1).flip(1) > 0
    first = torch.arange(ids.shape[1], device=ids.device) == 0
    return (until_the_last & real) | first


def filled(ids: Tensor, mask: Tensor, pad: int | None) -> Tensor:
    """(B, L) ids that a network has a row for: padding becomes `pad`, or 0 if that is negative.

    The first place of an empty text is attended, and may be negative all the same.
    """
    return ids.where(mask & (ids >= 0), max(pad or 0, 0))


def longest(mask: Tensor) -> int:
    """Length up to which some example of mask (B, L) has an attended place.

    It is L if values can't be read: inside transforms of `torch.func`, and while a module is
    exported, because the exported program must fit every mini-batch.
    """
    length = mask.shape[1]
    if torch.compiler.is_compiling():
        return length
    places = torch.arange(length, device=mask.device)
    try:
        return int((mask.any(0) * places).max()) + 1
    except RuntimeError:  # there are values of many models or examples at once, or no values
        return length


def readable(x: Tensor, pad: int | None, most: int | None) -> tuple[Tensor, Tensor]:
    """Ids (B, l) that a network has a row for, and (B, l) bool which of them it attends to.

    They are cut after the longest of the examples x (B, L). Raises `UsageError` as `check_ids`
    does.
    """
    check_ids(x, most)
    mask = attended(x, pad)
    length = longest(mask)
    return filled(x, mask, pad)[:, :length], mask[:, :length]


def text_settings(network: Any) -> Any:
    """Return the part of a transformers model's configuration for texts; mostly, all of it."""
    try:
        return network.config.get_text_config()
    except ValueError:  # several parts of the model read or write texts
        return network.config


def padding_id(network: Any, given: int | None = None) -> int | None:
    """The id of padding, `given` or a transformers model's own; None if it has none.

    Negative ids are padding anyway, and no network has a row for them.
    """
    settings = (network.config, text_settings(network))
    ids = (given, *(getattr(each, "pad_token_id", None) for each in settings))
    return next((each for each in ids if each is not None and each >= 0), None)


def check_padding(network: Any, pad: int | None, field: str) -> None:
    """Raise `UsageError` unless a transformers model has a row for the id of padding."""
    try:
        table = network.get_input_embeddings()
    except NotImplementedError:  # models of several kinds of input
        return
    if pad is not None and isinstance(table, nn.Embedding):
        rows = table.num_embeddings
        check(pad < rows, field, pad, f"less than {rows}, the number of ids that the model knows")


def positions(network: nn.Module) -> int | None:
    """The largest number of positions that a transformers model supports; None: any number.

    Models like RoBERTa number positions after that of padding, and keep unused rows before it.
    """
    most: int | None = getattr(text_settings(network), "max_position_embeddings", None)
    if most is None or most < 0:  # XLNet, which has no limit, gives -1
        return None
    named = (part for name, part in network.named_modules() if "position" in name)
    tables = [part for part in named if isinstance(part, nn.Embedding)]
    unused = [part.padding_idx + 1 for part in tables if part.padding_idx is not None]
    return most - max(unused, default=0)


def check_ids(ids: Tensor, most: int | None) -> None:
    """Raise `UsageError` unless ids are whole numbers (B, L), with L from 1 to `most` if given."""
    if ids.is_floating_point():
        raise UsageError("x: the network reads token ids: give x as whole numbers, int64")
    shape = tuple(ids.shape)
    check(ids.dim() == 2, "x", shape, "of the shape (B, L): one row of token ids for each example")
    check(ids.shape[1] >= 1, "x", shape, "of at least one token for each example")
    if most is not None:
        how = "cut the texts shorter, as scenario.text_tokens does in a table"
        expected = f"at most {most}, the positions that the network knows: {how}"
        check(ids.shape[1] <= most, "x: places of an example", ids.shape[1], expected)
