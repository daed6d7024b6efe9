"""An experiment is a value, the same as its TOML file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from umbel.algorithms.base import Algorithm, Known
from umbel.checks import check
from umbel.client.net import Net
from umbel.client.objectives import OBJECTIVES, Objective, ObjectiveName
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines.choice import EngineSettings
from umbel.engines.privacy import Privacy
from umbel.engines.validation import Limits
from umbel.engines.wrappers import Faults
from umbel.flow import Engine
from umbel.networks import Model
from umbel.runs.run import Run
from umbel.settings import Settings


def objective_for(federation: Federation, name: ObjectiveName) -> Objective:
    """What models of these clients are trained for."""
    return federation.objective if name == "auto" else OBJECTIVES[name]


@dataclass(frozen=True)
class Experiment(Settings):
    """Everything needed to make a run again."""

    scenario: Scenario
    model: Model
    algorithm: Algorithm[Any]
    name: str = "experiment"
    description: str = ""
    seed: int = 0
    rounds: int = 100
    participation: float = 1.0
    evaluate_every: int = 1
    checkpoint_every: int = 1  # rounds
    engine: EngineSettings = field(default_factory=EngineSettings)
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=Faults)
    privacy: Privacy = field(default_factory=Privacy)
    objective: ObjectiveName = "auto"  # classification of labels, regression of other y; or say

    def __post_init__(self) -> None:
        fine = bool(self.name) and not set(self.name) & set("/\\\0") and self.name[0] != "."
        check(fine, "name", self.name, "a name for a folder")
        check(self.seed >= 0, "seed", self.seed, "0 or more")
        check(self.rounds >= 1, "rounds", self.rounds, "1 or more")
        check(0 < self.participation <= 1, "participation", self.participation, "in (0, 1]")
        check(self.evaluate_every >= 1, "evaluate_every", self.evaluate_every, "1 or more")
        check(self.checkpoint_every >= 1, "checkpoint_every", self.checkpoint_every, "1 or more")
        clients: int | None = getattr(self.scenario, "clients", None)
        self.algorithm.check(Known(self.participation, clients))

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment under another seed."""
        return replace(self, seed=seed)

    def open(self, sources: Sources) -> Run:
        """Build the federation and the network: the run, before its first round."""
        return self.run(self.scenario.build(self.seed, sources), self.engine)

    def net(self, federation: Federation) -> Net:
        """The network for these clients."""
        shape, objective = federation.input_shape, objective_for(federation, self.objective)
        outputs = federation.num_outputs_for(objective)
        return Net(lambda: self.model.build(shape, outputs), objective)

    def run(self, federation: Federation, engine: EngineSettings | Engine) -> Run:
        """The run on this federation, whose clients work there."""
        return Run(
            self.algorithm,
            federation,
            self.net(federation),
            self.seed,
            self.participation,
            self.evaluate_every,
            engine,
            self.limits,
            self.faults,
            self.privacy,
        )
