"""The base classes of clustered FL methods: hyper-parameters, a first state, and a round."""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, final

import torch
from torch import Tensor

from umbel.checks import UsageError, check, check_memory
from umbel.client.layout import Layout
from umbel.client.work import JointScore, LocalTraining, MeanLoss, Routed, Work
from umbel.client.work.local_training import training_in, trainings
from umbel.client.work.schemes import Plain, Scheme
from umbel.flow import Flow, Rows
from umbel.seeds import Stream, seed_of
from umbel.server.aggregation import Averaging, moved
from umbel.server.ask import Context, Sample, losses, train_summed
from umbel.server.averaging_rules import Moments
from umbel.server.repeated_rows import copies
from umbel.settings import Settings
from umbel.summary import in_short

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class State:
    """All that a run carries from one round to the next: tensors, tuples of them, and numbers.

    Checkpoints hold it. A method that must remember more extends it by fields; a number that a
    checkpoint lacks keeps its first value. Tensors must not be changed in place, not even through
    NumPy: for large tensors in a tuple, a checkpoint writes only new objects again.
    """

    #: name of the field that holds a tuple of states of inner methods; "": none
    states_in: ClassVar[str] = ""
    #: names of a field with numbers of clients (N,), and of one with a value for each pair (N, N)
    pairs_in: ClassVar[tuple[str, str] | None] = None

    models: Tensor  #: (K, P) float, one model per row
    labels: Tensor  #: (M,) int64, the cluster of each client
    #: what `averaging.rule` remembers: tensors whose row k is of model k; (): nothing
    moments: Moments = field(default=(), kw_only=True)

    __repr__ = in_short

    @property
    def labels_end(self) -> int:
        """Labels are below this number; by default there is one model for each."""
        return len(self.models)

    def __init_subclass__(cls) -> None:
        # A dataclass writes its own `repr`, with all values, unless its class has one. The
        # decorator runs after this function, and finds the one that is set here.
        if "__repr__" not in vars(cls):
            type.__setattr__(cls, "__repr__", in_short)


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class KeptState(State):
    """The state of a method, and what its clients keep; `models` and `labels` are the method's."""

    states_in: ClassVar[str] = "inner"

    inner: tuple[State, ...]  # one: the state of the method within
    kept: Tensor  # (M, Q) the values that stay with each client

    @classmethod
    def around(cls, inner: State, kept: Tensor) -> KeptState:
        """Return the state around that of the method within."""
        return cls(inner.models, inner.labels, (inner,), kept)

    @property
    def labels_end(self) -> int:
        return self.inner[0].labels_end


OPEN = sys.maxsize
"""The number of rounds of a run that goes on until it is stopped."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that a method may know before the first round; the argument of `Algorithm.init`."""

    num_clients: int  #: M, the clients of the federation
    num_rounds: int  #: total number of rounds of the run; `OPEN` if it goes on until it is stopped
    participation: float  #: share of the clients asked in each round
    layout: Layout  #: the names and shapes of a model's values
    new_model: Callable[[int], Tensor]  #: number of a model -> its initial values (P,)
    num_steps: int = 1  #: number of steps of time; 1 in runs without time
    seed: int = 0  #: seed for all random draws of a method before the first round
    #: (M,) int64: the planted groups, 0, 1, ..., for the oracle only; None if unknown
    groups: Tensor | None = None
    #: (M, T) the concept of each client in each step of time, likewise
    concepts: Tensor | None = None
    #: names of the clients, for clusters that are given by name; () if unknown
    names: tuple[str, ...] = ()

    __repr__ = in_short

    def new_models(self, count: int, shared: Sequence[str] = ()) -> Tensor:
        """(count, P): initial models that all differ. Model 0 is the same for every method.

        It warns if the function that builds the module returns the same values each time. `shared`
        are patterns of the parameters that all models share, as in `Averaging.shared`: these have
        the values of model 0.
        """
        # Refused before the models are built: building is what runs out of memory.
        first = self.new_model(0)
        check_memory(count * first.nbytes, f"{count:,} models of {len(first):,} values")
        models = torch.stack([first, *map(self.new_model, range(1, count))])
        if count > 1 and all(torch.equal(first, model) for model in models[1:]):
            log.warning(
                "all %s models begin with the same values, so that clients who choose among them "
                "all choose one: let the function given to Net build its module, or at least its "
                "last layer, anew each time",
                f"{count:,}",
            )
        # mask (P,), first (P,), models (count, P): shared parameters are model 0's in every row.
        return torch.where(self.layout.mask(shared), first, models) if shared else models

    def copies(self, count: int) -> Tensor:
        """(count, P): copies of model 0. Raises `UsageError` if they do not fit in memory."""
        first = self.new_models(1)
        return copies(first, count, f"{count:,} models of {first.shape[1]:,} values")

    def warn_if_shorter(self, rounds: int, setting: str, what: str) -> None:
        """Warn if the run has fewer rounds than a method needs to do `what`.

        It is not an error: someone may want to see only the first rounds.
        """
        if self.num_rounds < rounds:
            said = "%s: only a run of %d rounds or more %s, and this one has %d"
            log.warning(said, setting, rounds, what, self.num_rounds)

    def restarted(self, used: int, number: int) -> Setup:
        """The setup of another start, with draws of its own and without the models already used."""
        return replace(
            self,
            # A start must not get a model that another start has: it would repeat that start.
            new_model=lambda model: self.new_model(used + model),
            seed=seed_of(self.seed, Stream.SETUP, number),
        )


@dataclass(frozen=True)
class Known:
    """The known facts of a run that is being built, for `Algorithm.check`; None: not yet known."""

    participation: float  #: share of the clients asked in each round
    num_clients: int | None = None  #: M, the clients of the federation
    layout: Layout | None = None  #: the names and shapes of a model's values


@dataclass(frozen=True)
class Served:
    """The models that the clients of a cohort are to use; the result of `Algorithm.serve`.

    Each client uses one model, unless `weights` are given. Then client n uses the mixture of all
    models of the table `models.table` (K, P), model k with weight `weights[n, k]`, and its row of
    `models` is the model that represents its cluster, usually the one with the largest weight. With
    `experts`, the rows are rows of `Experts.whole`.
    """

    models: Rows  #: row n: the model of the n-th client
    labels: Tensor  #: (N,) int64, the cluster of each client
    #: (N, K) not negative, rows sum to 1; None: one model for each client
    weights: Tensor | None = None
    #: row n: the model of the n-th client's cluster, if `models` are personal models or mixtures of
    #: experts
    adapted_from: Rows | None = None
    #: number of experts that the adapters mix, if `models` are models of a routed network
    experts: int = 1

    __repr__ = in_short

    def asked(self, work: Work) -> Work:
        """The work in the form in which clients do it with these models."""
        return work if self.experts == 1 else Routed(work, self.experts)


@dataclass(frozen=True)
class Assigned:
    """The result of `Algorithm.assign`: newcomers' scores for each cluster; the lowest wins."""

    clients: Tensor  #: (N,) the newcomers
    scores: Tensor  #: (N, K) score of each cluster for each newcomer
    meaning: str  #: meaning of a score, such as training loss

    __repr__ = in_short

    @property
    def labels(self) -> Tensor:
        """(N,) the cluster that fits each newcomer best."""
        return self.scores.argmin(1)


When: TypeAlias = Mapping[str, tuple[str, ...]] | None
"""Settings, each with the values with which a trait holds: {} is always, and None never."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of a method that a run must know before its first round.

    A method gives them as the class attribute `traits`, if they differ from these defaults. A trait
    that depends on settings names those, each with the values with which it holds:
    `Traits(only_trains={"send": ("update",)})`; `{}` means always, and `None` never.
    """

    mixes: bool = False  #: `serve` gives each client a mixture of the models, by `weights`
    mixes_experts: bool = False  #: clients use or train models that contain those of other clusters
    adapts: bool = False  #: clients train in `serve`, so that evaluations send updates, too
    needs_groups: bool = False  #: the method needs the planted groups of clients
    #: clients do nothing but train, and send nothing but updates
    only_trains: When = field(default_factory=dict)
    #: all clients start from one model
    one_start: When = field(default_factory=dict)
    #: averages use the numbers of examples that clients report; never if all the method's settings
    #: of type `Averaging` weigh clients equally
    weighs: When = field(default_factory=dict)


@dataclass(frozen=True)
class Algorithm(Settings, ABC, Generic[S]):
    """The server side of one method: constant hyper-parameters, and pure functions of its state.

    To write a method of your own, extend this class by a frozen dataclass with `init` and `round`;
    the other functions have defaults. A *method* in the documents is an *algorithm* in code and in
    TOML.
    """

    traits: ClassVar[Traits] = Traits()  #: what a run must know of the method before it starts

    @final
    def has(self, trait: When) -> bool:
        """Return True if a trait, as `method.traits.only_trains`, holds with these settings."""
        return trait is not None and all(getattr(self, name) in trait[name] for name in trait)

    @property
    @final
    def uses_example_counts(self) -> bool:
        """True if averages use the numbers of examples that clients report."""
        weights = [one.weights for one in self._averagings().values()]
        return self.has(self.traits.weighs) and (not weights or "examples" in weights)

    @property
    def sends(self) -> tuple[Work, ...]:
        """Every work that `round`, `serve` and `assign` ask clients to do, with its settings.

        Over Flower, a node does no other work for this method. Learning rates are the largest ones:
        they may be lower in later rounds. By default these are the works among the method's own
        settings, and `MeanLoss`, which `assign` asks for.
        """
        values = (getattr(self, member.name) for member in fields(self))
        return (*(value for value in values if isinstance(value, Work)), MeanLoss())

    @property
    def pools(self) -> bool:
        """True if some parameters are averaged over the clients of all clusters."""
        return any(one.shared for one in self._averagings().values())

    def check(self, known: Known) -> None:
        """Raise `UsageError` if the method can't work.

        It is called when a run is built, and again before `init`, when all is known. A method with
        a field `num_clusters` can't have more clusters than clients, unless it mixes.
        """
        if not self.traits.mixes:
            check_num_clusters(getattr(self, "num_clusters", None), known)
        for name, averaging in self._averagings().items():
            if known.layout is not None:
                known.layout.mask(averaging.shared, f"{name}.shared")
            if known.num_clients is not None:
                cohort = max(1, round(known.participation * known.num_clients))
                averaging.rule.check_cohort(known.num_clients, cohort)

    def _averagings(self) -> dict[str, Averaging]:
        values = {member.name: getattr(self, member.name) for member in fields(self)}
        return {name: one for name, one in values.items() if isinstance(one, Averaging)}

    @abstractmethod
    def init(self, setup: Setup) -> S:
        """Return the state before the first round. Raises `UsageError` if the setup can't work."""

    @abstractmethod
    def round(self, state: S, ctx: Context) -> Flow[S]:
        """Do one communication round: ask clients by `yield from`, and return the next state."""

    def members(self, state: S, kept: Tensor, setup: Setup) -> S:
        """Return the state after some clients have left and others have come.

        `kept` (J,) are the positions of the clients that stay, in increasing order; `setup` is that
        of the clients from now on, of whom these are the first J, and newcomers follow. By default,
        fields that `init` makes longer for more clients keep the values of those that stay, and
        newcomers have those of `init`, or zeros if a field has changed its form since. If all
        clients begin in cluster 0, newcomers are in the largest one. A method extends this if
        fields hold numbers of clients, or if its newcomers need more.
        """
        count = enough_for(self, setup)
        own = replace(setup, new_model=cache(setup.new_model))  # built once for both
        first, longer = (self.init(replace(own, num_clients=count + more)) for more in (0, 1))
        found = followed(state, kept, first, longer, setup.num_clients)
        return found if first.labels.any() else in_largest(found, len(kept))

    def admit(self, state: S, ctx: Context) -> Flow[S]:  # noqa: ARG002
        """Place the clients of the cohort, who have just come, before their first round.

        By default nothing is done: most methods place a client when they first ask it.
        """
        yield from ()
        return state

    def serve(self, state: S, ctx: Context) -> Flow[Served]:
        """Return the model for each client of the cohort, by default the model of its cluster."""
        yield from ()  # asks nothing
        labels = state.labels[ctx.cohort]
        return Served(Rows(state.models, labels), labels)

    def assign(self, state: S, ctx: Context) -> Flow[Assigned]:
        """Find a cluster for each client of a cohort of clients that were not trained on.

        By default it is the cluster whose model has the lowest mean loss on the client's training
        examples.
        """
        fit = yield from losses(state.models, ctx)
        return Assigned(fit.clients, fit.losses, "training loss")

    def fit(self, state: S) -> Tensor | None:  # noqa: ARG002
        """Return the misfit (M,) of each client's choice of a model, NaN for a client never asked.

        Lower is better; `Restarts` compares starts by the mean. None: the method does not measure
        it.
        """
        return None

    def profile(self, state: S) -> Tensor | None:  # noqa: ARG002
        """Return the vectors (M, D) by which this method clusters clients, None if there are none.

        The row of a client that can't be clustered yet is NaN.
        """
        return None

    def measure(self, state: S) -> Mapping[str, float]:  # noqa: ARG002
        """Return the numbers that this method adds to the record of a round, by name.

        The report draws each by round, but for those that `report/clustering_evidence.py` lists.
        """
        return {}

    def evidence(self, state: S, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        """Return the data that clusters are based on, if known, for a run's folder and its report.

        `clients` (N,) are the clients that it covers; if there are many, they are the sample that
        `sample(M)` returns. Optional entries are `similarity` or `distance` (N, N), NaN where
        unknown; `losses`, `scores` or `weights` (N, K), one column per model; `features` (N, D),
        compared by distance; and `singular_values` (R,).
        """
        return {}


@dataclass(frozen=True)
class Wrapper(Algorithm[S]):
    """A method around another one, whose table of settings has the wrapper's settings, too."""

    #: the settings by which a table asks for this wrapper
    asked_by: ClassVar[tuple[str, ...]] = ()

    of: Algorithm[Any]  #: the method

    @property
    def idle(self) -> bool:
        """True if the wrapper changes nothing."""
        return False

    def inner(self, state: S) -> State:
        """Return the state of the method within."""
        assert isinstance(state, KeptState)
        return state.inner[0]

    @property
    def sends(self) -> tuple[Work, ...]:
        return self.of.sends

    def check(self, known: Known) -> None:
        self.of.check(known)

    def members(self, state: S, kept: Tensor, setup: Setup) -> S:
        if not isinstance(state, KeptState):
            same: S = self.of.members(state, kept, setup)
            return same
        inner = self.of.members(state.inner[0], kept, setup)
        first = self.init(replace(setup, num_clients=enough_for(self, setup)))
        assert isinstance(first, KeptState)
        values = torch.cat([state.kept[kept], first.kept[len(kept) : setup.num_clients]])
        return type(state).around(inner, values)  # type: ignore[return-value]

    def admit(self, state: S, ctx: Context) -> Flow[S]:
        if not isinstance(state, KeptState):
            same: S = yield from self.of.admit(state, ctx)
            return same
        inner = yield from self.of.admit(state.inner[0], ctx)
        return type(state).around(inner, state.kept)  # type: ignore[return-value]

    def serve(self, state: S, ctx: Context) -> Flow[Served]:
        return (yield from self.of.serve(self.inner(state), ctx))

    def assign(self, state: S, ctx: Context) -> Flow[Assigned]:
        return (yield from self.of.assign(self.inner(state), ctx))

    def fit(self, state: S) -> Tensor | None:
        return self.of.fit(self.inner(state))

    def profile(self, state: S) -> Tensor | None:
        return self.of.profile(self.inner(state))

    def measure(self, state: S) -> Mapping[str, float]:
        return self.of.measure(self.inner(state))

    def evidence(self, state: S, sample: Sample) -> Mapping[str, Tensor]:
        return self.of.evidence(self.inner(state), sample)


def scheme_of(method: Algorithm[Any]) -> Scheme | None:
    """The scheme by which a method's clients train; None if it is plain.

    Raises `UsageError` if some clients would train without it.
    """
    name, held = type(method).__name__, [method, *method.sends]
    schemes = {each.scheme for one in held for each in trainings(one)}
    asked = [each for each in schemes if not isinstance(each, Plain)]
    if not asked:
        return None
    said = type(asked[0]).__name__
    for work in method.sends:
        hidden = [each for each in trainings(work) if each.scheme == asked[0]]
        follows = training_in(work) is not None or isinstance(work, JointScore)
        expected = f"possible: clients of {name} train in a {type(work).__name__}, a way of its own"
        check(follows or not hidden, "local.scheme", said, expected)
    found = [each for each in map(training_in, method.sends) if each is not None]
    once = len(asked) == 1 and any(each.scheme == asked[0] for each in found)
    check(once, "local.scheme", said, f"possible: clients of {name} do not train by it alone")
    return asked[0]


def one_model(setup: Setup) -> State:
    """Make a first state of one model, with all clients in one cluster."""
    return State(setup.new_models(1), torch.zeros(setup.num_clients, dtype=torch.long))


def federate(state: S, ctx: Context, local: LocalTraining, averaging: Averaging) -> Flow[S]:
    """Run one round of FedAvg within every cluster (McMahan et al. 2017, Algorithm 1).

    Each cluster's model moves by the mean of its clients' updates, weighted as `averaging` says:
    theta_k <- theta_k + sum_i n_i update_i / sum_i n_i, or by what `averaging.rule` makes of the
    mean. An empty cohort changes nothing.
    """
    # All clients of the cohort may be waiting for a cluster, so that none is left to train.
    if not len(ctx.cohort):
        return state
    models, labels = state.models, state.labels
    reduction, asked = averaging.reduction_among(ctx.cohort, labels, len(models))
    # Client n of the cohort gets row labels[cohort[n]] of the models: its cluster's.
    trained = yield from train_summed(Rows(models, labels[ctx.cohort]), ctx, local, reduction)
    # (K, P): the weighted mean of each cluster's updates, 0 for a cluster without an answer.
    step, moments = averaging.move(trained.sums, ctx.layout, state.moments)
    return replace(state, models=moved(models, step, asked), moments=moments)


def with_lowest_loss(
    state: State, ctx: Context, unknown: Tensor, judge: MeanLoss | None = None
) -> Flow[Tensor]:
    """Find the labels (M,) by which clients of the cohort without a cluster are in one, too.

    Those whose cluster is `unknown` (M,) get the cluster whose model has the lowest loss.
    """
    new = ctx.cohort[unknown[ctx.cohort]]
    if not len(new):
        return state.labels
    fit = yield from losses(state.models, ctx.asking(new, optional=True), judge)
    return state.labels.index_copy(0, fit.clients, fit.losses.argmin(1))


def admitted_by_loss(state: S, ctx: Context) -> Flow[S]:
    """Place each client of the cohort in the cluster whose model has the lowest loss."""
    unknown = torch.zeros_like(state.labels, dtype=torch.bool).index_fill(0, ctx.cohort, True)
    return replace(state, labels=(yield from with_lowest_loss(state, ctx, unknown)))


def enough_for(method: Algorithm[Any], setup: Setup) -> int:
    """The number of clients of a setup; more if `init` refuses so few for its settings."""
    fewest = (getattr(method, name, None) or 1 for name in ("num_clusters", "compared"))
    within = enough_for(method.of, setup) if isinstance(method, Wrapper) else 1
    return max(setup.num_clients, within, *fewest)


def followed(state: S, kept: Tensor, first: State, longer: State, count: int) -> S:
    """Return the state with the values of the clients that stay, and newcomers' from `first`.

    A field is by client in the dimensions that differ between `first` and `longer`, the first state
    for one client more. `count` is the number of clients from now on.
    """
    size = len(state.labels)
    found: dict[str, Any] = {}
    for member in fields(state):
        old, new, more = (getattr(each, member.name) for each in (state, first, longer))
        if isinstance(old, Tensor):
            found[member.name] = _followed(old, new, more, kept, size, count)
        elif isinstance(old, tuple) and len(old) == len(new):
            each = zip(old, new, more, strict=True)
            found[member.name] = tuple(_followed(*one, kept, size, count) for one in each)
    if state.pairs_in is not None:
        clients, pairs = (getattr(state, name) for name in state.pairs_in)
        places = renumbered(clients, kept, size)
        here = places >= 0
        found |= dict(zip(state.pairs_in, (places[here], pairs[here][:, here]), strict=True))
    return replace(state, **found)


def _followed(
    old: Tensor, first: Tensor, longer: Tensor, kept: Tensor, size: int, count: int
) -> Tensor:
    axes = [axis for axis in range(first.dim()) if first.shape[axis] != longer.shape[axis]]
    # What was by client at first may be by cluster now.
    if not axes or any(old.shape[axis] != size for axis in axes):
        return old
    shape, stay, new = [*old.shape], [slice(None)] * old.dim(), [slice(None)] * old.dim()
    for axis in axes:
        old, shape[axis] = old.index_select(axis, kept), count
        stay[axis], new[axis] = slice(len(kept)), slice(count)
    whole = first[tuple(new)]
    whole = whole.clone() if [*whole.shape] == shape else old.new_zeros(shape)
    whole[tuple(stay)] = old
    return whole


def renumbered(clients: Tensor, kept: Tensor, size: int) -> Tensor:
    """The new numbers of these clients, of `size`, if those in `kept` stay; -1 for the others."""
    places = torch.full((size,), -1).index_copy(0, kept, torch.arange(len(kept)))
    return places[clients]


def in_largest(state: S, staying: int) -> S:
    """The state with clients from number `staying` on, newcomers, in the largest cluster."""
    labels = state.labels.clone()
    labels[staying:] = torch.bincount(labels[:staying], minlength=1).argmax()
    return replace(state, labels=labels)


def check_clustered(clustered: bool, sooner: str = "") -> None:
    """Raise `UsageError` if newcomers are to join clusters that a run has not found yet."""
    if not clustered:
        why = "run: stopped before its clients were clustered, so that there is no cluster to join"
        raise UsageError(f"{why}; give it more rounds{sooner}")


def check_only_trains(method: Algorithm[Any], field: str, value: object, expected: str) -> None:
    """Raise `UsageError` if a method is known to ask clients for more than training.

    Other methods, such as your own, are refused only in the round in which they ask for more.
    """
    only_trains = method.traits.only_trains
    check(only_trains is not None, field, value, expected)
    for setting, fine in (only_trains or {}).items():
        name, given = type(method).__name__, getattr(method, setting)
        needed = f"{' or '.join(map(repr, fine))}, so that clients of {name} do nothing but train"
        check(given in fine, setting, given, f"{needed}, as {field} needs")


def of_compared(clients: Tensor, **matrix: Tensor) -> dict[str, Tensor]:
    """The evidence of a comparison of these clients (N,): a matrix (N, N); nothing before it."""
    return {"clients": clients, **matrix} if len(clients) else {}


def check_num_clusters(num_clusters: int | None, setup: Setup | Known) -> None:
    """Raise `UsageError` if both numbers are known, and there are fewer clients than clusters."""
    if num_clusters is not None and setup.num_clients is not None:
        expected = f"at most the number of clients, {setup.num_clients}"
        check(num_clusters <= setup.num_clients, "algorithm.num_clusters", num_clusters, expected)


def check_clusters(clusters: Sequence[int], setup: Setup | Known) -> None:
    """Raise `UsageError` unless `clusters` is empty, or has one for each of the known clients."""
    if clusters and setup.num_clients is not None:
        fine = len(clusters) == setup.num_clients
        expected = f"the cluster of each of the {setup.num_clients} clients"
        check(fine, "algorithm.clusters", f"{len(clusters)} numbers", expected)


def check_apart(wrapper: Wrapper[Any]) -> None:
    """Raise `UsageError` if a method has a setting of the same name as one of its wrapper.

    The settings of both are in one table: one of the two would take the other's place.
    """
    own, method = {f.name for f in fields(wrapper)} - {"of"}, wrapper.of
    while True:
        both = own & {f.name for f in fields(method)}
        if both:
            kind, around = type(method).__name__, type(wrapper).__name__
            how = f"rename it: {around} has a setting of this name, too"
            raise UsageError(f"{min(both)}: a setting of {kind}; {how}")
        if not isinstance(method, Wrapper):
            return
        method = method.of
