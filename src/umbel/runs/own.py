"""Digests of data and modules made in Python, which the folder of a run can't hold themselves.

In `experiment.toml` they take the places of the scenario and the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
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
from umbel.engines.choice import EngineSettings
from umbel.networks.base import Model
from umbel.runs.another import FINGERPRINTS, OF_THE_PROCESS, UNREADABLE, WORKERS, settings_of
from umbel.runs.digests import constants_print, digest, fingerprint, near, split_digest, structure
from umbel.runs.experiment import ExperimentSettings
from umbel.runs.origins import FROZEN_WITHIN, same
from umbel.runs.own_objective import NOTHING, Prints, objective_prints, other_functions
from umbel.runs.rounds import Rounds

KNOWN = {name.upper(): each for name, each in OBJECTIVES.items()}
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
        """The net again. Raises `UsageError` where no file says how to build it."""
        if self.objective not in KNOWN:
            raise UsageError(f"its objective, {self.objective}, is one of your own")
        if not self.source:
            raise UsageError(f"its module, {self}, was built in Python")
        objective = KNOWN[self.objective]
        net = Net(self._builder(), objective, trained=self.trained, moving=self.moving)
        self.check_fits(net)
        return net

    def check_fits(self, net: Net) -> None:
        """Raise `UsageError` unless this net's models are of the same kind, whatever their values.

        Values are not compared, as they are read from the run.
        """
        other = own_module(net)
        if said := others_frozen(self, other, net):
            raise UsageError(f"net: {said}")
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


def described(run: Rounds, name: str, rounds: int, checkpoint_every: int) -> ExperimentSettings:
    """Turn a run into an experiment that a folder can hold: the one it was opened from, if any.

    Raises `UsageError` where it has a part that no folder can hold.
    """
    own_engine = not isinstance(run.engine, EngineSettings)
    for part in ("algorithm", "engine", "limits", "faults", "privacy", "personal"):
        if part != "engine" or not own_engine:
            _check_storable(part, getattr(run, part))
    if (experiment := _opened_from(run)) is not None:
        return replace(
            experiment,
            algorithm=run.algorithm,
            name=name,
            rounds=rounds,
            participation=run.participation,
            evaluate_every=run.evaluate_every,
            checkpoint_every=checkpoint_every,
            limits=run.limits,
            faults=run.faults,
            privacy=run.privacy,
            metrics=run.metrics or None,
            personal=run.personal,
        )
    return ExperimentSettings(
        own_data(run.divided, _type_name(type(run.engine)) if own_engine else ""),
        own_module(run.net, run.divided),
        run.algorithm,
        name=name,
        seed=run.seed,
        rounds=rounds,
        participation=run.participation,
        evaluate_every=run.evaluate_every,
        checkpoint_every=checkpoint_every,
        engine=run.engine if isinstance(run.engine, EngineSettings) else EngineSettings(),
        limits=run.limits,
        faults=run.faults,
        privacy=run.privacy,
        metrics=run.metrics or None,
        personal=run.personal,
    )


def _opened_from(run: Rounds) -> ExperimentSettings | None:
    """The experiment of a run, if a file can hold it and gives these data and this net again."""
    opened = run.opened
    if opened is None or why_not_opened(run):
        return None
    assert isinstance(opened.experiment, ExperimentSettings)
    same = run.federation is opened.federation and run.net is opened.net
    if not same or not isinstance(run.engine, EngineSettings):
        return None
    return replace(opened.experiment, engine=run.engine)


def why_not_opened(run: Rounds) -> str:
    """Why no experiment describes a run that was opened from one, as a sentence; "" if one does."""
    if run.opened is None:
        return ""
    experiment, seed = run.opened.experiment, run.seed
    assert isinstance(experiment, ExperimentSettings)
    if seed != experiment.seed:
        both = f"its seed is {seed}, and its data are those of seed {experiment.seed}"
        return f"{both}: open experiment.with_seed({seed}) for a run that `umbel resume` knows"
    apart = None if experiment.personal is None else experiment.personal.validation_fraction
    now = None if run.personal is None else run.personal.validation_fraction
    if apart not in (None, now):
        both = f"validation_fraction was {apart:g} when it was opened"
        return f"{both}: change `personal` of the experiment, and open that"
    try:
        _check_storable("scenario", experiment.scenario)
        _check_storable("model", experiment.model)
    except UsageError as error:
        return str(error)
    return ""


def find_net(name: str) -> Net:
    """The net called "module:name". Raises `UsageError` where it can't be imported."""
    net: Net = imported("net", name)
    check(isinstance(net, Net), "net", name, f"an umbel.Net, but a {type(net).__name__}")
    return net


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
    objective = next((name for name, each in KNOWN.items() if each == net.objective), None)
    own = federation if objective is None else None
    return OwnModule(
        kind=type(module).__name__,
        values=net.layout.num_values,
        objective=objective or ", ".join(map(_type_name, vars(net.objective).values())),
        structure=digest(text.encode() for text in built),
        initial=fingerprint(tensors[entry.name] for entry in entries),
        constants=constants_print(net, module),
        gives=NOTHING if own is None else objective_prints(net, own),
        source=_source(net.build) if objective else "",
        moving=net.moving,
        trained=net.trained,
        frozen=net.frozen_digest or None,
    )


def others_frozen(there: OwnModule, here: OwnModule, net: Net) -> str:
    """How the frozen values differ, as a phrase; "" if they do not."""
    if there.frozen is None and there.values == here.values + net.num_frozen > here.values:
        return FROZEN_WITHIN
    differ = there.values == here.values and there.frozen != here.frozen
    return "the frozen values of the module are different" if differ else ""


def differences(there: ExperimentSettings, here: ExperimentSettings, net: Net) -> Iterator[str]:
    """The differences between two runs, a phrase for each; `net` is that of the present run."""
    if isinstance(here.scenario, OwnData) != isinstance(there.scenario, OwnData):
        made = ["from data and a module in Python", "from an experiment"]
        first, second = made if isinstance(there.scenario, OwnData) else reversed(made)
        yield f"it was made {first}, not {second}"
        return
    was = there.model if isinstance(there.model, OwnModule) else None
    own = here.model if isinstance(here.model, OwnModule) else None
    if was and own and (said := others_frozen(was, own, net)):
        yield said
        return
    old, new = settings_of(there, here)
    without_effect = {"description", "name", WORKERS, "engine.address"}
    left_out = {*FINGERPRINTS, *OF_THE_PROCESS, *without_effect}
    for name in dict.fromkeys([*old, *new]):
        if name in left_out or same(old.get(name), new.get(name)):
            continue
        values = f"{name} is {old.get(name)!r} there and {new.get(name)!r} here"
        yield UNREADABLE.get(name, values)
    if not was or not own:
        return
    for name in ("initial", "constants"):
        if not near(getattr(was, name), getattr(own, name)):
            yield f"the module's {name} values are different"
    yield from other_functions(was.gives, own.gives, net)


def what_only_python_has(experiment: ExperimentSettings) -> str:
    """What other programs need besides the folder, as a sentence; "" if nothing."""
    data, module = experiment.scenario, experiment.model
    if isinstance(data, OwnData) and data.engine:
        return f"its engine, {data.engine}, is an object: to resume, give the run such an engine"
    if isinstance(module, OwnModule) and module.objective not in KNOWN:
        return f"its objective, {module.objective}, is your own: pass the net to load and export"
    if isinstance(module, OwnModule) and not module.source:
        return f"no file says how to build its {module.kind}: pass the net to load and export"
    return ""


def _check_storable(path: str, value: object) -> None:
    """Raise `UsageError` unless a text file can hold this setting, and others can read it."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        where = "a notebook or script" if kind.__module__ == "__main__" else "a function"
        elsewhere = kind.__module__ != "__main__" and "<locals>" not in kind.__qualname__
        expected = (
            f"importable, as it is defined in {where}: put it into a module, a file of its own"
        )
        check(elsewhere, path, kind.__name__, expected)
        for member in fields(value):
            _check_storable(f"{path}.{member.name}", getattr(value, member.name))
    elif isinstance(value, tuple | list):
        for item in value:
            _check_storable(path, item)
    elif isinstance(value, dict):
        for name, item in value.items():
            check(isinstance(name, str), path, name, "a text: a folder holds no other keys")
            _check_storable(f"{path}.{name}", item)
    else:
        fine = value is None or isinstance(value, bool | int | float | str)
        expected = "a number, text, dataclass, tuple, list or dict: a folder holds nothing else"
        check(fine, path, value, expected)


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


def _type_name(kind: Any) -> str:
    """Type or function with its module."""
    kind = kind if hasattr(kind, "__qualname__") else type(kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _kind(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} {tuple(values.shape[1:])}"
