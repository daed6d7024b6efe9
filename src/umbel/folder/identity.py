"""The identity of a run: its settings, digests of its clients, and of frozen values.

A checkpoint says it, and must have the same to be resumed. Other files of a run say a digest of it:
a file of another run may stand in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from umbel.algorithms.base import State
from umbel.checks import UsageError, check
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.experiment.differences import DURING_A_RUN, change, differences, listed
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.places import without_paths
from umbel.experiment.toml_file import plain, structured
from umbel.files.seals import BROKEN
from umbel.folder.checkpoint import UNREADABLE
from umbel.folder.tensor_files import header_of
from umbel.run.digests import digest, fingerprint, near

CHECKPOINT = "checkpoint.safetensors"

RUN = "run"
"""Key of the digest of the run's identity in a file's header."""

SAMPLED = 64
"""Approximate number of examples of each split that are compared by value, up to rounding."""

Origin = Mapping[str, Any]
"""An origin as JSON: the experiment, and digests that identify its federation."""


def origin(
    experiment: ExperimentSettings, federation: Federation, net: Net, come: bool = False
) -> Origin:
    """Return the origin of a run: its settings, and digests of its clients and frozen values.

    If clients may `come` from elsewhere, only what they share identifies them.
    """
    table = plain(without_paths(experiment))
    settled = {name: value for name, value in table.items() if name not in DURING_A_RUN}
    # The precision is the only setting of the engine that changes results.
    settled["engine"] = {"precision": table["engine"]["precision"]}
    traits = _traits(federation)
    if come:
        traits = {name: traits[name] for name in ("inputs", "outputs", "values")}
    made = {"experiment": settled, "federation": traits}
    frozen = {"values": net.num_frozen, "digest": net.frozen_digest}
    return {**made, **({"frozen": frozen} if net.num_frozen else {})}


def check_origin(file: Path, was: Origin, now: Origin) -> None:
    """Raise `UsageError` with the changes since the checkpoint of this file, if any."""
    try:
        changes = _changes(was, now)
    except BROKEN as error:
        raise UsageError(f"{file}: {UNREADABLE}: {error}") from None
    if changes:
        how = "undo that, or make another run under another name"
        raise UsageError(f"{file}: of another run: {listed(changes)}; {how}")


def _changes(was: Origin, now: Origin) -> list[str]:
    """A phrase for each difference."""
    changes = experiment_changes(was, now["experiment"])
    there, here = was["federation"], now["federation"]
    changes += [
        _change(name, there[name], value)
        for name, value in here.items()
        if name != "values" and there.get(name) != value
    ]
    # Values of other examples differ anyway: only if nothing else has changed do they say more.
    if not changes and not near(there["values"], here["values"]):
        changes.append("examples: other values")
    was_frozen, is_frozen = (made.get("frozen", {}) for made in (was, now))
    if was_frozen and was_frozen != is_frozen:
        changes.append("frozen values of the network: changed")
    return changes


def _change(name: str, was: object, now: object) -> str:
    """Describe the change of a fact; a digest, which is a text, has only changed."""
    if was is None or now is None:
        return f"{name}: {'added' if was is None else 'removed'}"
    digest = isinstance(was, str) or isinstance(now, str)
    return f"{name}: changed" if digest else change(name, was, now)


def experiment_changes(was: Origin, now: Mapping[str, Any]) -> list[str]:
    """Return phrases about settings of this table that differ from those of the run's origin."""
    # Read again, so that settings which a later version has added have their defaults.
    old, new = (
        without_paths(structured(table, ExperimentSettings, looking=True))
        for table in (was["experiment"], now)
    )
    return differences(old, new, DURING_A_RUN)


def check_sizes(file: Path, state: State, start: State, num_clients: int) -> None:
    """Raise `UsageError` if a state has other models than the run's first state, or other clients.

    Tensors of another type would be misread, for example bytes as truth values.
    """
    types = [(each.models.dtype, each.labels.dtype) for each in (state, start)]
    check(types[0] == types[1], f"{file}: damaged: types", types[0], f"{types[1]}")
    for what, there, here in (
        ("values of a model", state.models.shape[1:], start.models.shape[1:]),
        ("clients", state.labels.shape, (num_clients,)),
    ):
        if there != here:
            raise UsageError(f"{file}: of another run: {what} was {[*there]} and is {[*here]}")


def _bytes_of_labels(federation: Federation) -> Iterator[bytes]:
    """All labels, which are the same on every machine; targets of a regression may not be."""
    for split in federation.splits:
        if not split.y.is_floating_point():
            yield split.y.contiguous().numpy().tobytes()


def _traits(federation: Federation) -> dict[str, Any]:
    """Return sizes and digests by which these clients and examples are recognised."""
    train, test, groups = federation.train, federation.test, federation.groups
    validation, concepts = federation.validation, federation.concepts
    # About SAMPLED rows of each split: quick for large data, and any other data differ in them.
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
        "sizes of clients": digest(
            sizes.tobytes()
            for split in federation.splits
            for sizes in (split.offsets, split.steps)
            if sizes is not None
        ),
        "planted groups": None if groups is None else digest([groups.tobytes()]),
        **({} if concepts is None else {"concepts": digest([concepts.tobytes()])}),
        "labels": digest(_bytes_of_labels(federation)),
        "values": list(fingerprint(some)),
    }


def identity(folder: Path, rounds: bool = True) -> str:
    """Return a digest of the origin of the run in a folder, and of the number of rounds done.

    It is "" if the folder has no checkpoint, which holds both. Without `rounds` it names the
    experiment and the clients, for files that do not change in later rounds.
    """
    header = header_of(folder / CHECKPOINT)
    if not header.get("made"):
        return ""
    said = [header["made"], header.get("next_round") if rounds else None]
    return digest([json.dumps(said, sort_keys=True).encode()])


def check_identity(file: Path, said: object, folder: Path, rounds: bool = True) -> None:
    """Raise `UsageError` if a file says that it is of another run than the folder's.

    Nothing is compared where the file does not say it, or the folder has no checkpoint.
    """
    here = identity(folder, rounds)
    if said and here and said != here:
        raise UsageError(f"{file}: is of another run than {CHECKPOINT} in {folder}")
