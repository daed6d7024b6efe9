"""The experiment that describes a run made in Python, and how two such runs differ."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from umbel.checks import UsageError, check
from umbel.client.imports import imported
from umbel.client.net import Net
from umbel.engines.choice import EngineSettings
from umbel.experiment.differences import NAMED, differences, listed
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.made_in_python import (
    OBJECTIVE_NAMES,
    OwnData,
    OwnModule,
    own_data,
    own_module,
    type_name,
)
from umbel.run.objective_digests import other_functions
from umbel.run.rounds import Rounds
from umbel.run.start import NumRounds


def described(
    run: Rounds, name: str, rounds: NumRounds, checkpoint_every: int
) -> ExperimentSettings:
    """Turn a run into an experiment that a folder can hold: the one it was opened from, if any.

    Raises `UsageError` where it has a part that no folder can hold.
    """
    own_engine = not isinstance(run.engine, EngineSettings)
    for part in (
        "algorithm",
        "engine",
        "limits",
        "faults",
        "attack",
        "privacy",
        "personal",
        "participation",
    ):
        if part != "engine" or not own_engine:
            _check_storable(part, getattr(run, part))
    made = _opened_from(run) or ExperimentSettings(
        own_data(run.divided, type_name(type(run.engine)) if own_engine else ""),
        own_module(run.net, run.divided),
        run.algorithm,
        seed=run.seed,
        engine=run.engine if isinstance(run.engine, EngineSettings) else EngineSettings(),
        privacy=run.privacy,
    )
    return replace(
        made,
        algorithm=run.algorithm,
        name=name,
        rounds=rounds,
        participation=run.participation,
        evaluate_every=run.evaluate_every,
        checkpoint_every=checkpoint_every,
        limits=run.limits,
        faults=run.faults,
        attack=run.attack,
        privacy=run.privacy,
        metrics=run.metrics or None,
        personal=run.personal,
        time=run.time,
        membership=run.membership,
        own_training=run.own_training or None,
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
    """Return why an opened run no longer fits its experiment, as a sentence; "" if it does."""
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
    """Return the net called "module:name". Raises `UsageError` if it can't be imported."""
    net: Net = imported("net", name)
    check(isinstance(net, Net), "net", name, f"an umbel.Net, but a {type(net).__name__}")
    return net


def check_same_run(path: Path, there: ExperimentSettings, run: Rounds) -> None:
    """Raise `UsageError` unless the experiment of a folder describes this very run."""
    here = described(run, there.name, there.rounds, there.checkpoint_every)
    others = differences(there, here, NAMED)
    if isinstance(here.scenario, OwnData) != isinstance(there.scenario, OwnData):
        made = ["from data and a module in Python", "from an experiment"]
        first, second = made if isinstance(there.scenario, OwnData) else reversed(made)
        others = [f"it was made {first}, not {second}"]
    elif isinstance(there.model, OwnModule) and isinstance(here.model, OwnModule):
        others += other_functions(there.model.gives, here.model.gives, run.net)
    if others:
        raise UsageError(f"{path}: holds another run: {listed(others)}")


def what_only_python_has(experiment: ExperimentSettings) -> str:
    """Return a sentence about what a run needs besides its folder; "" if nothing."""
    data, module = experiment.scenario, experiment.model
    if isinstance(data, OwnData) and data.engine:
        return f"its engine, {data.engine}, is an object: to resume, give the run such an engine"
    if isinstance(module, OwnModule) and module.objective not in OBJECTIVE_NAMES:
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
