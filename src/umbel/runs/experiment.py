"""An experiment is a value, the same as its TOML file."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from umbel.algorithms.base import Algorithm, Known
from umbel.checks import check, is_plain
from umbel.client.net import Net
from umbel.client.objectives import ObjectiveName
from umbel.data.federation import Federation
from umbel.data.form import Form
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines.choice import EngineSettings
from umbel.engines.faults import Faults
from umbel.engines.privacy import Privacy
from umbel.engines.validation import Limits
from umbel.flow import Engine
from umbel.networks import Model
from umbel.networks.base import check_size
from umbel.runs.metrics import check_names
from umbel.runs.paths import under
from umbel.runs.personal import Personal
from umbel.runs.run import Run
from umbel.runs.starting import check_private, check_settings
from umbel.runs.wrapped import unwrapped
from umbel.settings import Settings

LONGEST_NAME = 230
"""Bytes of a name: that of a folder has 255, with the seed."""

FOLDER_NAME = f"a name for a folder: 1 to {LONGEST_NAME} bytes, no / or \\, no dot in front"


@dataclass(frozen=True)
class Experiment(Settings):
    """Everything needed to make a run again: the same value as its TOML file.

    `read` makes one of a file; `Experiment.open` makes its run. Numbers out of range raise
    `UsageError`, and so do settings that can't work together.
    """

    scenario: Scenario  #: what makes the federation
    model: Model  #: what makes the network
    algorithm: Algorithm[Any]  #: the method
    _: KW_ONLY
    name: str = "experiment"  #: of the run's folder
    description: str = ""  #: a sentence for `umbel list`
    seed: int = 0  #: of everything random
    rounds: int = 100  #: communication rounds
    participation: float = 1.0  #: share of the clients asked in each round, in (0, 1]
    evaluate_every: int = 1  #: rounds between evaluations; the last round is always evaluated
    checkpoint_every: int = 1  #: rounds between checkpoints
    engine: EngineSettings = field(default_factory=EngineSettings)  #: where clients work
    limits: Limits = field(default_factory=Limits)  #: what the server accepts
    faults: Faults = field(default_factory=Faults)  #: faults to simulate
    privacy: Privacy = field(default_factory=Privacy)  #: clipping and noise of updates
    #: how clients tune their models after the last round; None: not at all
    personal: Personal | None = None
    objective: ObjectiveName = "auto"  #: what models are trained for; auto: by the type of y
    metrics: tuple[str, ...] | None = None  #: what is measured beside loss and accuracy

    def __post_init__(self) -> None:
        fine = bool(self.name) and not set(self.name) & set("/\\") and self.name[0] != "."
        fine = fine and is_plain(self.name) and len(self.name.encode()) <= LONGEST_NAME
        check(fine, "name", self.name, FOLDER_NAME)
        check_settings(self.seed, self.participation, self.evaluate_every)
        object.__setattr__(self, "algorithm", unwrapped(self.algorithm))
        check_private(self.algorithm, self.privacy)
        check(self.rounds >= 1, "rounds", self.rounds, "1 or more")
        check(self.checkpoint_every >= 1, "checkpoint_every", self.checkpoint_every, "1 or more")
        check_names(self.metrics or ())
        clients: int | None = getattr(self.scenario, "clients", None)
        with under("algorithm", self.algorithm):
            self.algorithm.check(Known(self.participation, clients))
        if self.personal is not None:
            self.personal.check_for(self.algorithm, self.privacy)

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment under another seed."""
        return replace(self, seed=seed)

    def open(self, sources: Sources) -> Run:
        """Build the federation and the network, and return the run, before its first round."""
        return self.opened(self.federation(sources))

    def federation(self, sources: Sources) -> Federation:
        """Build the federation, of which nothing is set apart yet."""
        with under("scenario", self.scenario):
            return self.scenario.build(self.seed, sources)

    def opened(self, federation: Federation) -> Run:
        """The run of this experiment, given what `federation` has built."""
        return self.run(self.with_validation(federation), self.engine)

    def with_validation(self, federation: Federation) -> Federation:
        """The federation, with examples for clients to choose their models by if that is asked for.

        Raises `UsageError` where it has validation examples already.
        """
        if self.personal is None or self.personal.validation_fraction is None:
            return federation
        fraction = self.personal.validation_fraction
        expected = "left out, as the clients have validation examples"
        check(federation.validation is None, "personal.validation_fraction", fraction, expected)
        return self.personal.set_apart(federation, self.seed)

    def net(self, federation: Federation) -> Net:
        """The network for these clients."""
        return self.net_of(federation.form(federation.form().objective(self.objective)))

    def net_of(self, form: Form) -> Net:
        """The network whose models fit this."""
        shape, outputs = form.input_shape, form.num_outputs
        with under("model", self.model):
            check_size(self.model, shape, outputs)
            return Net(lambda: self.model.made(shape, outputs), form.objective(self.objective))

    def run(self, federation: Federation, engine: EngineSettings | Engine) -> Run:
        """Make the run on this federation, whose clients work in this engine."""
        net = self.net(federation)
        with under("algorithm", self.algorithm):
            self.algorithm.check(Known(self.participation, layout=net.layout))
        return Run(
            self.algorithm,
            federation,
            net,
            seed=self.seed,
            participation=self.participation,
            evaluate_every=self.evaluate_every,
            engine=engine,
            limits=self.limits,
            faults=self.faults,
            privacy=self.privacy,
            metrics=self.metrics or (),
            personal=self.personal,
        )
