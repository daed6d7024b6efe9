"""Placeholders for data and modules made in Python, which no file can hold: their digests.

In `experiment.toml` they take the places of the scenario and the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from umbel.checks import UsageError, check
from umbel.client.imports import imported
from umbel.client.layout import tensors_of
from umbel.client.net import Net
from umbel.client.objectives import OBJECTIVES
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.experiment.layers import IN_PYTHON, OWN_MODULE
from umbel.networks.base import Model
from umbel.run.digests import constants_print, digest, fingerprint, near, split_digest, structure
from umbel.run.objective_digests import NOTHING, Prints, objective_prints

OBJECTIVE_NAMES = {name.upper(): each for name, each in OBJECTIVES.items()}
"""umbel's own objectives, by their names in a run's folder."""


@dataclass(frozen=True, kw_only=True)
class OwnData(Scenario):
    """A federation made in Python, by its digests."""

    clients: int
    examples: int
    test_examples: int
    inputs: str  # type and shape of one
    targets: str
    num_classes: int | None = None  # None: regression
    train: str = ""
    test: str = ""
    groups: str = ""
    names: str = ""
    validation_examples: int | None = None  # None: there are none
    validation: str | None = None
    engine: str = ""  # type of the engine, where it is no `EngineSettings`

    def build(self, seed: int, sources: Sources) -> Federation:  # noqa: ARG002
        raise UsageError(
            "scenario: these data were made in Python, and no file holds them; continue "
            "such a run there by `umbel.resume(folder, run)`"
        )


@dataclass(frozen=True, kw_only=True)
class OwnModule(Model):
    """A module made in Python: its digests, and the name of its builder if it can be imported.

    Fingerprints are a few sums over all values. They detect different values, but tolerate the
    rounding of another processor.
    """

    kind: str
    values: int  # P
    objective: str
    structure: str
    initial: tuple[float, ...] = ()  # fingerprint of a new model's values
    constants: tuple[float, ...] = ()  # fingerprint of the module's constants
    gives: Prints = NOTHING  # fingerprints of the values of the user's own objective
    source: str = ""  # "module:function"
    moving: tuple[str, ...] = ()  # patterns of buffers of its own that training moves
    trained: tuple[str, ...] | None = None  # patterns of parameters that train; None: as built
    frozen: str | None = None  # digest of what is not trained; None: there is none

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:  # noqa: ARG002
        module: nn.Module = self._builder()()
        return module

    def net(self) -> Net:
        """Build the net again. Raises `UsageError` if no file says how to build it."""
        if self.objective not in OBJECTIVE_NAMES:
            raise UsageError(f"its objective, {self.objective}, is one of your own")
        if not self.source:
            raise UsageError(f"its module, {self}, was built in Python")
        objective = OBJECTIVE_NAMES[self.objective]
        net = Net(self._builder(), objective, trained=self.trained, moving=self.moving)
        self.check_fits(net)
        return net

    def check_fits(self, net: Net) -> None:
        """Raise `UsageError` unless this net's models have the same form, whatever their values.

        Values are not compared, as they are read from the run.
        """
        other = own_module(net)
        if self.values == other.values and self.frozen != other.frozen:
            raise UsageError("net: the frozen values of the module are different")
        what = f"{other}: the run's is {self}"
        same = (other.kind, other.values, other.structure) == (
            self.kind,
            self.values,
            self.structure,
        )
        if not same or not near(other.constants, self.constants):
            detail = "" if str(other) != str(self) else ", built differently"
            raise UsageError(f"net: {what}{detail}")
        fits = other.objective == self.objective
        check(fits, "net: objective", other.objective, f"that of the run, {self.objective}")

    def _builder(self) -> Callable[[], nn.Module]:
        builder: Callable[[], nn.Module] = imported("model.source", self.source)
        return builder

    def __str__(self) -> str:
        return f"{self.kind} with {self.values} values"


def own_data(federation: Federation, engine: str) -> OwnData:
    """The digests that identify this federation; `engine` is the name of the run's own, or ""."""
    train, test, groups = federation.train, federation.test, federation.groups
    validation = federation.validation
    names = "\0".join(federation.names).encode()
    return OwnData(
        clients=federation.num_clients,
        examples=len(train.x),
        test_examples=len(test.x),
        inputs=_kind(train.x),
        targets=_kind(train.y),
        num_classes=federation.num_classes,
        train=split_digest(train),
        test=split_digest(test),
        groups="" if groups is None else digest([groups.tobytes()]),
        names=digest([names]),
        validation_examples=None if validation is None else len(validation.x),
        validation=None if validation is None else split_digest(validation),
        engine=engine,
    )


def own_module(net: Net, federation: Federation | None = None) -> OwnModule:
    """The digests that identify a net's module and objective, for these clients."""
    module = net.module(net.new(0))
    entries = net.layout.weights + net.layout.rest
    tensors = tensors_of(module)
    built = [structure(module), str(net.dtype)]
    built += [f"{entry.name} {tuple(entry.shape)}" for entry in entries]
    # Equal, not the same object: nets are copied, and sent to other processes.
    objective = next(
        (name for name, each in OBJECTIVE_NAMES.items() if each == net.objective), None
    )
    own = federation if objective is None else None
    return OwnModule(
        kind=type(module).__name__,
        values=net.layout.num_values,
        objective=objective or ", ".join(map(type_name, vars(net.objective).values())),
        structure=digest(text.encode() for text in built),
        initial=fingerprint(tensors[entry.name] for entry in entries),
        constants=constants_print(net, module),
        gives=NOTHING if own is None else objective_prints(net, own),
        source=_source(net.build) if objective else "",
        moving=net.moving,
        trained=net.trained,
        frozen=net.frozen_digest or None,
    )


def _source(build: Callable[[], nn.Module]) -> str:
    """The importable name of exactly this function; "" if there is none."""
    module, name = getattr(build, "__module__", None), getattr(build, "__qualname__", "<")
    if module is None or module == "__main__" or "<" in name:
        return ""
    try:
        named = imported("source", f"{module}:{name}")
    except UsageError:
        return ""
    return f"{module}:{name}" if named is build else ""


def type_name(kind: Any) -> str:
    """Type or function with its module."""
    kind = kind if hasattr(kind, "__qualname__") else type(kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _kind(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} {tuple(values.shape[1:])}"


STANDING_FOR: Mapping[str, type] = {IN_PYTHON: OwnData, OWN_MODULE: OwnModule}
"""Their names in `experiment.toml`."""
