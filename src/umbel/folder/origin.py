"""The origin of a checkpoint: the experiment and the clients, which must be the same to resume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from umbel.algorithms.base import State
from umbel.checks import UsageError, check
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.flat import flat, same
from umbel.experiment.places import without_paths
from umbel.experiment.toml_file import plain, structured
from umbel.files.seals import BROKEN
from umbel.folder.checkpoint import UNREADABLE
from umbel.run.digests import digest, fingerprint, near

FREE = ("name", "description", "rounds", "evaluate_every", "checkpoint_every", "metrics")
"""Settings that may change during a run: they change no model, or only the number of rounds."""

SAMPLED = 64
"""Approximate number of examples of each split that are compared by value, up to rounding."""

Origin = Mapping[str, Any]
"""An origin as JSON: the experiment, and digests that identify its federation."""


def origin(experiment: ExperimentSettings, federation: Federation, net: Net) -> Origin:
    """What a run is made of."""
    settled = _settled(plain(without_paths(experiment)))
    made = {"experiment": settled, "federation": _traits(federation)}
    frozen = {"values": net.num_frozen, "digest": net.frozen_digest}
    return {**made, **({"frozen": frozen} if net.num_frozen else {})}


def check_origin(file: Path, was: Origin, now: Origin) -> None:
    """Raise `UsageError` that says what has changed since the checkpoint of this file."""
    try:
        changes = _changes(was, now)
    except BROKEN as error:
        raise UsageError(f"{file}: {UNREADABLE}: {error}") from None
    if changes:
        how = "undo that, or make another run under another name"
        raise UsageError(f"{file}: of another run: {'; '.join(changes[:3])}; {how}")


def _changes(was: Origin, now: Origin) -> list[str]:
    """A phrase for each difference."""
    changes = [*experiment_changes(was, now["experiment"])]
    there, here = was["federation"], now["federation"]
    changes += [
        _change(name, there[name], value)
        for name, value in here.items()
        if name != "values" and there.get(name) != value
    ]
    if not changes and not near(there["values"], here["values"]):
        changes.append("examples: other values")
    was_frozen, is_frozen = (made.get("frozen", {}) for made in (was, now))
    if was_frozen and was_frozen != is_frozen:
        changes.append("frozen values of the network: changed")
    return changes


def _change(name: str, was: object, now: object) -> str:
    """What became of a fact; digests, which are texts, say nothing to a reader."""
    if was is None or now is None:
        return f"{name}: {'added' if was is None else 'removed'}"
    digest = isinstance(was, str) or isinstance(now, str)
    return f"{name}: changed" if digest else f"{name} was {was} and is {now}"


def experiment_changes(was: Origin, now: Mapping[str, Any]) -> Iterator[str]:
    """What tells the settings of this table from those that the run was made with."""
    # Read again, so that settings which a later version has added have their defaults.
    old, new = (
        plain(without_paths(structured(table, ExperimentSettings, looking=True)))
        for table in (was["experiment"], now)
    )
    before, after = (dict(flat(_settled(table))) for table in (old, new))
    for name in dict.fromkeys([*before, *after]):
        one, other = (table.get(name, "not set") for table in (before, after))
        if not same(one, other):
            yield f"{name} was {one} and is {other}"


def _settled(table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that must not change: the engine may change, but not its precision."""
    kept = {name: value for name, value in table.items() if name not in FREE}
    return {**kept, "engine": {"precision": table["engine"]["precision"]}}


def check_sizes(file: Path, state: State, start: State) -> None:
    """Raise `UsageError` if a state has other models or clients than the run's first state.

    Tensors of another type would be misread, for example bytes as truth values.
    """
    types = [(each.models.dtype, each.labels.dtype) for each in (state, start)]
    check(types[0] == types[1], f"{file}: damaged: types", types[0], f"{types[1]}")
    for what, there, here in (
        ("values of a model", state.models.shape[1:], start.models.shape[1:]),
        ("clients", state.labels.shape, start.labels.shape),
    ):
        if there != here:
            raise UsageError(f"{file}: of another run: {what} was {[*there]} and is {[*here]}")


def _bytes_of_labels(federation: Federation) -> Iterator[bytes]:
    """All labels, which are the same on every machine; targets of a regression may not be."""
    for split in federation.splits:
        if not split.y.is_floating_point():
            yield split.y.contiguous().numpy().tobytes()


def _traits(federation: Federation) -> dict[str, Any]:
    """What tells these clients and examples from others."""
    train, test, groups = federation.train, federation.test, federation.groups
    validation = federation.validation
    some = [
        values[:: max(1, len(values) // SAMPLED)]
        for split in federation.splits
        for values in (split.x, split.y)
    ]
    return {
        "clients": federation.num_clients,
        "examples": len(train.x),
        "test examples": len(test.x),
        **({} if validation is None else {"validation examples": len(validation.x)}),
        "inputs": list(federation.input_shape),
        "outputs": federation.num_outputs,
        "names of clients": digest(["\0".join(federation.names).encode()]),
        "sizes of clients": digest(split.offsets.tobytes() for split in federation.splits),
        "planted groups": None if groups is None else digest([groups.tobytes()]),
        "labels": digest(_bytes_of_labels(federation)),
        "values": list(fingerprint(some)),
    }
