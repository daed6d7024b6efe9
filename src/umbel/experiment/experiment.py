"""An experiment is a value, the same as its TOML file."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self, TypeVar

from umbel.algorithms.base import Algorithm, Known
from umbel.checks import check, check_least, is_plain
from umbel.client.net import Net
from umbel.client.objectives import ObjectiveName
from umbel.data.federation import Federation
from umbel.data.form import Form
from umbel.data.scenarios import SCENARIOS
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines.choice import EngineSettings
from umbel.engines.own_training import OwnTraining
from umbel.engines.privacy import Privacy
from umbel.engines.replies.attacks import Attack
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.validation import Limits
from umbel.flow import Engine
from umbel.networks import Model
from umbel.networks.base import check_size
from umbel.run.membership import Membership
from umbel.run.metrics import check_names
from umbel.run.participation import Participation, smallest_share
from umbel.run.personal import Personal
from umbel.run.rounds import Opened, Rounds
from umbel.run.start import UNTIL_STOPPED, NumRounds, check_private, check_settings, total
from umbel.run.time import Time
from umbel.run.wrappers import under, watched
from umbel.settings import Settings

LONGEST_NAME = 230
"""Largest number of bytes of a name: a folder's name, with the seed, may have 255."""

FOLDER_NAME = f"a name for a folder: 1 to {LONGEST_NAME} bytes, no / or \\, no dot in front"


R = TypeVar("R", bound=Rounds)


@dataclass(frozen=True, eq=False)
class ExperimentSettings(Settings):
    """All settings of a run, as in its TOML file; `umbel.Experiment` adds the methods that open it.

    Raises `UsageError` for values out of range, and for settings that can't be combined.
    """

    scenario: Scenario  #: recipe for the federation
    model: Model  #: recipe for the network
    algorithm: Algorithm[Any]  #: the method
    _: KW_ONLY
    name: str = "experiment"  #: name of the run's folder
    description: str = ""  #: sentence for `umbel list`
    seed: int = 0  #: seed of all random numbers
    #: communication rounds; "until-stopped": the run goes on until it is stopped, and its models
    #: are written at each checkpoint
    rounds: NumRounds = 100
    #: share of the clients asked in each round, in (0, 1], or how they are drawn
    participation: float | Participation = 1.0
    evaluate_every: int = 1  #: rounds between evaluations; the last round is always evaluated
    checkpoint_every: int = 1  #: rounds between checkpoints
    engine: EngineSettings = field(default_factory=EngineSettings)  #: where clients work
    limits: Limits = field(default_factory=Limits)  #: limits on clients' replies
    faults: Faults = field(default_factory=Faults)  #: faults to simulate
    attack: Attack = field(default_factory=Attack)  #: attacks to simulate
    privacy: Privacy = field(default_factory=Privacy)  #: clipping and noise of updates
    time: Time | None = None  #: steps of time, where clients get new examples; None: none
    membership: Membership | None = None  #: clients that come and leave; None: all stay
    #: how clients fine-tune their models after the last round; None: they don't
    personal: Personal | None = None
    own_training: tuple[OwnTraining, ...] | None = None  #: clients that train in their own way
    objective: ObjectiveName = "auto"  #: what models are trained for; auto: by the type of y
    metrics: tuple[str, ...] | None = None  #: metrics in addition to loss and accuracy

    def __post_init__(self) -> None:
        fine = bool(self.name) and not set(self.name) & set("/\\") and self.name[0] != "."
        fine = fine and is_plain(self.name) and len(self.name.encode()) <= LONGEST_NAME
        check(fine, "name", self.name, FOLDER_NAME)
        private = self.privacy.clip is not None
        check_settings(self.seed, self.participation, self.evaluate_every, private)
        object.__setattr__(self, "algorithm", watched(self.algorithm, self.limits.quarantine))
        check_private(self.algorithm, self.privacy)
        _ = self.most_rounds
        check_least(self, 1, "checkpoint_every")
        check_names(self.metrics or ())
        with under("algorithm", self.algorithm):
            self.algorithm.check(Known(smallest_share(self.participation), _clients(self.scenario)))
        if self.personal is not None:
            self.personal.check_for(self.algorithm, self.privacy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExperimentSettings) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    @property
    def most_rounds(self) -> int:
        """The number of rounds, or `OPEN`."""
        return total(self.rounds)

    @property
    def planned_rounds(self) -> int | None:
        """The number of rounds; None if the run goes on until it is stopped."""
        return None if self.rounds == UNTIL_STOPPED else self.rounds

    def with_seed(self, seed: int) -> Self:
        """Return the experiment with another seed."""
        return replace(self, seed=seed)

    def federation(self, sources: Sources) -> Federation:
        """Build the federation, before validation examples are set apart."""
        if self.time is None:
            with under("scenario", self.scenario):
                return self.scenario.built(self.seed, sources)
        with under("time", self.time), under("scenario", self.scenario):
            planned = self.time.steps, self.time.concepts or self.time.schedule
            return self.scenario.built_over_time(self.seed, sources, *planned)

    def with_validation(self, federation: Federation) -> Federation:
        """The federation, with validation examples set apart if `personal` asks for them.

        Raises `UsageError` where it has validation examples already.
        """
        if self.personal is None or self.personal.validation_fraction is None:
            return federation
        fraction = self.personal.validation_fraction
        expected = "allowed: the clients have validation examples"
        check(federation.validation is None, "personal.validation_fraction", fraction, expected)
        return self.personal.set_apart(federation, self.seed)

    def net(self, federation: Federation) -> Net:
        """The network for these clients."""
        return self.net_of(federation.form(federation.form().objective(self.objective)))

    def net_of(self, form: Form) -> Net:
        """Build the network whose models fit this form."""
        shape, outputs = form.input_shape, form.num_outputs
        with under("model", self.model):
            check_size(self.model, shape, outputs)
            objective, moving = form.objective(self.objective), self.model.moving
            return Net(lambda: self.model.made(shape, outputs), objective, moving=moving)

    def opened(self, federation: Federation) -> Rounds:
        """Open the run of this experiment with the federation that `federation` has built."""
        return self.run(self.with_validation(federation), self.engine)

    def open(self, sources: Sources) -> Rounds:
        """Build the federation and the network, and return the run, which remembers this."""
        return self.run_from(Rounds, sources)

    def run(self, federation: Federation, engine: EngineSettings | Engine) -> Rounds:
        """Make the run on this federation, whose clients work in this engine."""
        return self.run_of(Rounds, federation, engine)

    def run_from(self, kind: type[R], sources: Sources) -> R:
        """Open the experiment as a run of this class."""
        federation = self.with_validation(self.federation(sources))
        return self.run_of(kind, federation, self.engine, sources)

    def run_of(
        self,
        kind: type[R],
        federation: Federation,
        engine: EngineSettings | Engine,
        sources: Sources | None = None,
    ) -> R:
        """Make a run of this class on this federation, whose clients work in this engine.

        It remembers this experiment if the federation was read from `sources`.
        """
        net = self.net(federation)
        with under("algorithm", self.algorithm):
            self.algorithm.check(Known(smallest_share(self.participation), layout=net.layout))
        return kind(
            self.algorithm,
            federation,
            net,
            seed=self.seed,
            participation=self.participation,
            evaluate_every=self.evaluate_every,
            engine=engine,
            limits=self.limits,
            faults=self.faults,
            attack=self.attack,
            privacy=self.privacy,
            metrics=self.metrics or (),
            personal=self.personal,
            time=self.time,
            membership=self.membership,
            own_training=self.own_training or (),
            opened=None if sources is None else Opened(self, sources, federation, net),
        )


def _clients(scenario: Scenario) -> int | None:
    """The number of clients, as the package's scenarios tell it before they are built.

    One's own may have a field of this name that means something else.
    """
    kinds = {each if isinstance(each, type) else type(each) for each in SCENARIOS.values()}
    clients: int | None = getattr(scenario, "clients", None)
    return clients if type(scenario) in kinds else None
