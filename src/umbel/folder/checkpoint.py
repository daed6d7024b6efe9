"""A state in a file: tensors as safetensors, numbers in its header, no pickle.

It is one file because a rename replaces exactly one file: two files could be left from different
rounds if the run is killed. Large tensors that rounds seldom replace are in separate files beside
it, which the checkpoint names by digests of their content.

The tensors are the fields of the method's state. The header holds what belongs to the run: the next
round, its origin, the versions that wrote it. `save` writes another such value, and a function such
as `next_round` reads it. A finished run may have no checkpoint: only `next_round` works without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.client.constants import written_out
from umbel.folder import checkpoint_parts
from umbel.folder.checkpoint_parts import NO_PARTS, Parts, is_entry
from umbel.folder.tensor_files import DAMAGED, reading, tensors_in, write
from umbel.run.state_fields import holds_tensors, within
from umbel.version import versions

FORMAT = 4
"""Raised if older releases would misread the file; not for an optional value of the header."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

UNREADABLE = "not a readable checkpoint"


def save(
    file: Path,
    state: State,
    next_round: int,
    made: Mapping[str, Any] = NOTHING,
    before: Parts = NO_PARTS,
) -> Parts:
    """Replace the file by this state and its origin; return the parts written beside it.

    `before` is the result of the last call: parts that have not changed are not written again.
    """
    values = dict(_members(state))
    folder = checkpoint_parts.place(file)
    parts = checkpoint_parts.write(folder, dict(checkpoint_parts.are_parts(values)), before)
    # The format can't store tensors that share memory, as fields of a state may.
    tensors = {
        name: written_out(value)
        for name, value in values.items()
        if isinstance(value, Tensor) and name not in parts
    }
    # A tensor is copied if one before it in the list lies in the same memory.
    memory = [tensor.untyped_storage().data_ptr() for tensor in tensors.values()]
    tensors = {
        name: tensor.clone() if pointer in memory[:place] else tensor
        for place, ((name, tensor), pointer) in enumerate(zip(tensors.items(), memory, strict=True))
    }
    digests = {name: part.digest for name, part in parts.items()}
    header = {
        "format": FORMAT,
        "kind": type(state).__name__,
        "next_round": next_round,
        "made": dict(made),
        "versions": versions(("torch",)),  # of what computes, whatever else is loaded
        "numbers": {name: v for name, v in values.items() if not isinstance(v, Tensor)},
        "lists": [name for name, value in values.items() if isinstance(value, list)],
        "parts": digests,
    }
    write(file, tensors, header)
    checkpoint_parts.remove_others(folder, digests.values())
    return parts


def load(file: Path, template: Any) -> tuple[Any, int]:
    """Read the state and the number of the next round; `template` is the method's first state.

    Raises `UsageError` if the file is not a whole checkpoint of such a state.
    """
    with reading(file, UNREADABLE) as (opened, header):
        tensors = tensors_in(opened)
        named, parts = str(header.get("kind")), dict(header.get("parts", NOTHING))
    # If a state contains one of its own class, the outer one is meant.
    kinds = {type(state).__name__: state for state in (*within(template)[1], template)}
    if header.get("format") != FORMAT or named not in kinds:
        there = f"format {header.get('format')} of {named}"
        wanted = f"format {FORMAT} of {' or '.join(kinds)}"
        raise UsageError(f"{file}: is a checkpoint in {there}, but {wanted} is needed")
    tensors |= checkpoint_parts.read(checkpoint_parts.place(file), parts, UNREADABLE)
    try:
        values = {**tensors, **header["numbers"]}
        if (following := int(header["next_round"])) < 0:
            raise ValueError(f"the next round is {following}")
        state = _filled(kinds[named], values, header["lists"])
        if not holds_tensors((state.models, state.labels)):
            raise TypeError("its models and labels are not tensors")
        return state, following
    except DAMAGED as error:
        raise UsageError(f"{file}: {UNREADABLE}: {error}") from None


def _members(state: State, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a state by name: of tensors in a tuple as "features.0" and so on, and of the
    states within it as "rivals.0.models".
    """
    # States in states are flattened into names, as safetensors has a single level.
    place, others = within(state)
    for f in fields(state):
        value = getattr(state, f.name)
        if holds_tensors(value):
            yield from ((f"{prefix}{f.name}.{n}", tensor) for n, tensor in enumerate(value))
        # An optional field that holds nothing is left out, as in files of methods without it.
        elif f.name != place and not f.default == () == value:
            yield prefix + f.name, value
    for number, other in enumerate(others):
        yield from _members(other, f"{prefix}{place}.{number}.")


def _filled(template: Any, values: Mapping[str, Any], lists: Collection[str]) -> Any:
    """Fill a state like the template with values, which decide the lengths of its tuples."""
    own = {name: value for name, value in values.items() if "." not in name}
    lengths = Counter(name.rpartition(".")[0] for name in values if is_entry(name))
    for f in fields(template):
        held = getattr(template, f.name)
        if f.name in lengths:
            own[f.name] = tuple(values[f"{f.name}.{place}"] for place in range(lengths[f.name]))
        elif f.name not in own and f.default == ():
            own[f.name] = ()
        elif f.name in own or holds_tensors(held):
            own[f.name] = own[f.name] if f.name in lists else _tuples(own[f.name])
    inside, others = within(template)
    filled = []
    for number, other in enumerate(others):
        start = f"{inside}.{number}."
        of = {n.removeprefix(start): v for n, v in values.items() if n.startswith(start)}
        own_lists = [n.removeprefix(start) for n in lists if n.startswith(start)]
        filled.append(_filled(_like(other, of), of, own_lists))
    return replace(template, **own, **({inside: tuple(filled)} if filled else {}))


def _like(template: Any, values: Mapping[str, Any]) -> Any:
    """Return the template of these values: itself, or a state within it, after `Restarts` ended."""
    names = {name.partition(".")[0] for name in values}
    kinds = (template, *within(template)[1])
    return next((each for each in kinds if names <= {f.name for f in fields(each)}), template)


def _tuples(value: Any) -> Any:
    """Turn lists back into the tuples of numbers that JSON has made lists of."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def tidy(file: Path) -> None:
    """Remove files that a killed process left beside a checkpoint. Raises as `load` does."""
    with reading(file, UNREADABLE) as (_, header):
        digests = list(header.get("parts", NOTHING).values())
    checkpoint_parts.remove_others(checkpoint_parts.place(file), digests)


def labels(file: Path) -> Tensor:
    """Read the cluster (M,) of each client of any method. Raises `UsageError` as `load` does."""
    with reading(file, UNREADABLE) as (opened, _):
        clusters: Tensor = opened.get_tensor("labels")
        return clusters


def next_round(file: Path) -> int:
    """Read the number of the next round; 0 without a checkpoint. Raises `UsageError` as `load`."""
    return int(header(file)["next_round"]) if file.is_file() else 0


def header(file: Path) -> Mapping[str, Any]:
    """What the file says beside its tensors. Raises `UsageError` as `load`.

    Of the origin of the run (`made`), and the `versions` with which it was written, either may be
    empty: not known.
    """
    with reading(file, UNREADABLE) as (_, said):
        return {"made": {}, "versions": {}, **said}
