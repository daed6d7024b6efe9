"""What every method owes its users, whoever wrote it: a new one joins with a line in `cases`, and
one in `FINDERS` or `OTHERS`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from umbel.algorithms import (
    ALGORITHMS,
    CFLGP,
    FLACC,
    FLHC,
    IFCA,
    LCFL,
    PACFL,
    SRFCA,
    AdaptiveFedAvg,
    CLoVE,
    FedAvg,
    FedCCFA,
    FedDrift,
    FedEM,
    FedGroup,
    FedLEASE,
    FedProto,
    FedProx,
    FedRC,
    FedSoft,
    FeSEM,
    FixedClusters,
    Joint,
    LocalOnly,
    Oracle,
    PerFedAvg,
    PFedMe,
    RandomClusters,
    Restarts,
    Sattler,
    StoCFL,
)
from umbel.algorithms.base import Algorithm, State
from umbel.algorithms.restarts import RestartsState, innermost, method_of
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.optimizers import SGD
from umbel.client.work import Gradient, LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import Sequential
from umbel.engines.replies.validation import assemble
from umbel.experiment.library import find_experiment
from umbel.flow import Replies, Request, drive
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.result.run import Run, load, read
from umbel.run.membership import Membership
from umbel.server.aggregation import Averaging
from umbel.server.averaging_rules import FedAdagrad, FedAdam, FedAvgM, FedYogi
from umbel.server.clusterers import DBSCAN, HDBSCAN, Agglomerative
from umbel.testing import CHECKS, ROUNDS, Check, blobs, mlp
from umbel.testing.federations import SIZES
from umbel.testing.membership import EVENTS
from umbel.testing.runs import run_of

LOCAL = LocalTraining(epochs=2, batch_size=8)


def cases(local: LocalTraining) -> dict[str, Algorithm[Any]]:
    """Every method for any network, with each option that changes what it asks or remembers."""
    shared = Averaging("equal", shared=("1.*",))
    return {
        "local-only": LocalOnly(local),
        "fedproto": FedProto(local=local),
        "fedccfa": FedCCFA(align_from=2, local=local),
        "fedavg": FedAvg(local),
        "fedprox": FedProx(local=local),
        "fedadam": FedAvg(local, Averaging(rule=FedAdam())),
        "fedavg, momentum at the server": FedAvg(local, Averaging(rule=FedAvgM())),
        "ifca": IFCA(num_clusters=2, local=local),
        "ifca, gradients": IFCA(num_clusters=2, local=local, send="gradient"),
        "ifca, restarts": Restarts(IFCA(num_clusters=2, local=local), restarts=2, trial_rounds=3),
        "ifca, shared trunk": IFCA(num_clusters=2, local=local, averaging=shared),
        "ifca, shared trunk moved by yogi": IFCA(
            num_clusters=2, local=local, averaging=replace(shared, rule=FedYogi())
        ),
        "flacc, adagrad": FLACC(local=local, n_sep=2, averaging=Averaging(rule=FedAdagrad())),
        "flacc": FLACC(local=local, n_sep=2),
        "ifca, mini-batch": IFCA(local=local, judge="mini-batch"),
        "flacc, gradients": FLACC(local=local, n_sep=2, similarity="gradient"),
        "cfl-gp": CFLGP(local=local, gradient=Gradient(8)),
        "cfl-gp, updates": CFLGP(
            local=local, send="update", period=2, beta="latest", compression=4, digits=3
        ),
        "lcfl": LCFL(local=local),
        "lcfl, federated": LCFL(
            local=local, metric="loss-gap", warm_up="federated", warm_up_rounds=2, max_examples=9
        ),
        "lcfl, gradients": LCFL(local=local, metric="gradient", clusterer=HDBSCAN()),
        "lcfl, updates": LCFL(local=local, metric="update", clusterer=Agglomerative(threshold=0.9)),
        "lcfl, own starts": LCFL(
            local=local, metric="parameters", start="own", clusterer=DBSCAN(4.0, noise="apart")
        ),
        "clove": CLoVE(local=local),
        "clove, at random": CLoVE(3, "random", square_roots=True, stop_after=2, local=local),
        "fesem": FeSEM(local=local),
        "fesem, trunk at random": FeSEM(2, "random", local=local, averaging=shared),
        "fedgroup": FedGroup(2, per_cluster=2, first_steps=5, local=local),
        "fedgroup, madc": FedGroup(2, first_steps=5, metric="madc", local=local, averaging=shared),
        "stocfl": StoCFL(local=local),
        "stocfl, trunk": StoCFL(0.5, 0.2, replace(local, epochs=5), local=local, averaging=shared),
        "sr-fca": SRFCA(quantile=0.4, smallest=1, refine_rounds=2, local=local),
        "sr-fca, threshold": SRFCA(threshold=1.0, refinements=1, local=local),
        "adaptive-fedavg": AdaptiveFedAvg(local=local),
        "feddrift": FedDrift(local=local),
        "joint, restarts": Restarts(
            Joint(local=replace(local, steps=1)), 3, 2, keep="most-balanced"
        ),
        "joint": Joint(local=replace(local, steps=1)),
        "joint, distance": Joint(
            local=local, similarity="euclidean", sign="literal", reduction="sum", repair="always"
        ),
        "fixed-clusters": FixedClusters(local=local),
        "oracle": Oracle(local),
        "random-clusters": RandomClusters(3, local=local),
        "sattler": Sattler(local, eps_1=2.0, eps_2=0.1, from_round=1, gamma_max=0.1),
        "sattler, gradients": Sattler(local, 2.0, 0.1, from_round=1, send="gradient"),
        "sattler, momentum at the server": Sattler(
            local, 2.0, 0.1, from_round=1, averaging=Averaging(rule=FedAvgM(momentum=0.5))
        ),
        "fl-hc": FLHC(threshold=1.0, cluster_round=1, local=local),
        "fl-hc, ward": FLHC(2, None, 3, metric="l2", linkage="ward", local=local),
        "pacfl": PACFL(threshold=30.0, num_vectors=2, angle="sum", local=local),
        "pacfl, per class": PACFL(num_clusters=2, num_vectors=1, per_class=True, local=local),
        "fedem": FedEM(num_clusters=2, local=local),
        "fedem, shared trunk": FedEM(num_clusters=2, local=local, averaging=shared),
        "fedrc": FedRC(num_clusters=2, local=local),
        "fedsoft": FedSoft(num_clusters=2, local=local),
        "fedsoft, selected": FedSoft(3, 0.5, 3, 2, local=local, averaging=shared),
        "pfedme": PFedMe(local=replace(local, lr=0.01), beta=1.5, personal_lr=0.05),
        "per-fedavg": PerFedAvg(alpha=0.1, local=local),
        "per-fedavg, first-order": PerFedAvg(0.1, "first-order", served_steps=2, local=local),
        "per-fedavg, hessian-free": PerFedAvg(0.1, "hessian-free", local=local),
    }


CASES = cases(LOCAL)

ADAPTED: dict[str, Algorithm[Any]] = {
    "fedlease": FedLEASE(warm_up=2, local=LOCAL),
    "fedlease, two experts": FedLEASE(warm_up=2, num_clusters=2, local=LOCAL),
}
"""Those for networks with adapters."""


def by_name(names: Iterable[str]) -> list[Any]:
    """Methods for `pytest.mark.parametrize`; their options are tests of `make test-all`."""
    return [pytest.param(n, marks=pytest.mark.long if ", " in n else ()) for n in names]


OF_OPTIONS = ("engines_agree", "faults_are_survived_and_named")
"""What a method's options change first; `make test-thorough` holds them to the whole contract."""


def promises() -> Iterator[Any]:
    """Every method with every check."""
    for name, check in product([*CASES, *ADAPTED], CHECKS):
        option = pytest.mark.long if check.__name__ in OF_OPTIONS else pytest.mark.thorough
        marks = option if ", " in name else ()
        yield pytest.param(name, check, marks=marks, id=f"{name}-{check.__name__}")


@pytest.mark.parametrize(("name", "check"), [*promises()])
def test_every_method_keeps_the_contract(name: str, check: Check) -> None:
    check({**CASES, **ADAPTED}[name])


@pytest.mark.parametrize("name", by_name([*CASES, *ADAPTED]))
def test_clients_who_stay_are_served_as_if_nobody_had_come_or_left(name: str) -> None:
    run = run_of(
        {**CASES, **ADAPTED}[name],
        federation=blobs((*SIZES, 9, 10)),
        membership=Membership(EVENTS, forget_after=1),
    )
    for number, (state, _) in enumerate(run.rounds(ROUNDS)):
        members = run.members(number + 1)
        kept = torch.from_numpy(members.kept)
        after = run.algorithm.members(state, kept, run.setup(ROUNDS, number + 1))
        # Who leaves in the next round is not asked in it.
        here = torch.from_numpy(members.left_at[: len(kept)] != number + 1).nonzero()[:, 0]
        before = served_by(run, state, number, kept[here])
        torch.testing.assert_close(before, served_by(run, after, number + 1, here))


def served_by(run: Run, state: State, number: int, clients: Tensor) -> Tensor:
    """The models (N, P) of these clients, or those (K, P) that they mix."""
    context = run.context(number, ROUNDS + 1).asking(clients, optional=True)
    engine = run.in_round(run.judge(run.clients), context)
    served = drive(run.algorithm.serve(state, context), engine)
    if served.weights is not None:
        return served.models.table
    adapts = method_of(run.algorithm).traits.adapts
    models = served.adapted_from if adapts and served.adapted_from else served.models
    return models.take(torch.arange(len(clients)))


def test_every_registered_method_is_listed_here() -> None:
    listed = {type(algorithm) for algorithm in (*CASES.values(), *ADAPTED.values())}
    assert listed == {*map(class_of, ALGORITHMS), Restarts}


def class_of(name: str) -> type[Algorithm[Any]]:
    """The class of a registered method; some names stand for settings of one."""
    entry = ALGORITHMS[name]
    return entry if isinstance(entry, type) else type(innermost(entry))


def make_run(algorithm: Algorithm[Any], **changes: Any) -> Run:
    everyone = 1.0 if isinstance(algorithm, Sattler) else 0.75
    settings = {"seed": 3, "participation": everyone, "net": mlp(dtype=torch.float64), **changes}
    return Run(algorithm, blobs(), **settings)


def last_state(run: Run, rounds: int = ROUNDS) -> State:
    *_, (state, _) = run.rounds(rounds)
    return state


# Gradients move no buffers: methods that send them alone leave running statistics as they were.
WITH_BUFFERS = [
    name for name in CASES if "gradients" not in name and name not in ("cfl-gp", "fedproto")
]


@pytest.mark.parametrize("name", by_name(WITH_BUFFERS))
def test_batch_normalisation_is_averaged_with_the_rest(name: str) -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double())
    run = make_run(cases(replace(LOCAL, drop_last=True))[name], net=net)
    assert isinstance(run.clients, Sequential)
    state = last_state(run)
    assert state.models.isfinite().all()
    variance = net.layout.tensors(state.models[0])["1.running_var"]
    assert (variance - 1).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["ifca", "fedem", "lcfl, own starts", "ifca, restarts"])
def test_clusters_share_one_trunk_from_the_start_with_its_running_statistics(name: str) -> None:
    net = Net(lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double())
    trunk = ("0.*", "1.*")
    method = cases(replace(LOCAL, drop_last=True))[name]
    within = replace(method_of(method), averaging=Averaging(shared=trunk))  # type: ignore[call-arg]
    run = make_run(replace(method, of=within) if isinstance(method, Restarts) else within, net=net)
    for state in (run.start(ROUNDS), *(state for state, _ in run.rounds(ROUNDS))):
        starts = state.rivals if isinstance(state, RestartsState) else (state,)
        for one in starts:
            shared = one.models[:, net.layout.mask(trunk)]
            assert torch.equal(shared, shared[:1].expand_as(shared))
        trunks = [one.models[0, :24] for one in starts]
        assert all(not torch.equal(one, trunks[0]) for one in trunks[1:])


FINDERS = [
    *("cfl-gp", "clove", "fedgroup", "fl-hc", "flacc", "ifca-restarts", "joint", "lcfl", "oracle"),
    *("pacfl", "sattler", "sr-fca", "stocfl"),
]


OTHERS = {
    "found in test_feddrift.py, over time": ("feddrift",),
    "one model": ("adaptive-fedavg", "fedavg", "fedprox", "pfedme", "per-fedavg"),
    "a model of each client's own": ("local-only", "fedproto"),
    "clusters of classes, found in test_fedccfa.py": ("fedccfa",),
    "clusters that are given or drawn": ("fixed-clusters", "random-clusters"),
    "clients seldom leave their first cluster; test_fesem.py has groups that it finds": ("fesem",),
    "found in test_fedsoft.py; clients have models of their own": ("fedsoft",),
    "found in test_fedem.py and test_fedrc.py; clients mix all models": ("fedem", "fedrc"),
    "found in test_fedlease.py; its networks have adapters": ("fedlease",),
}
"""Why methods are not among the finders."""


def test_every_registered_method_finds_groups_or_has_a_reason_not_to() -> None:
    shipped = [read(find_experiment(f"{name}-digits")).algorithm for name in FINDERS]
    finders = {type(method_of(algorithm)) for algorithm in shipped}
    others = {class_of(name) for names in OTHERS.values() for name in names}
    assert not finders & others
    assert finders | others == {*map(class_of, ALGORITHMS)}


@pytest.mark.long
@pytest.mark.parametrize("name", FINDERS)
def test_groups_are_found_on_real_digits_and_newcomers_join_theirs(
    name: str, sources: Sources, tmp_path: Path
) -> None:
    experiment = replace(read(find_experiment(f"{name}-digits")), evaluate_every=1000)
    folder = RunFolder.create(tmp_path, experiment)
    *_, record = execute(folder, sources)
    assert record.ari == 1.0
    assert record.num_clusters == 4
    # Other images, dealt to as many clients in the same groups.
    newcomers = ROTATED_DIGITS.build(seed=99, sources=sources)
    assert newcomers.groups is not None
    found = load(tmp_path).assign(newcomers)
    assert list(found.clusters.values()) == newcomers.groups.tolist()


def test_flacc_is_fedavg_until_it_separates() -> None:
    fedavg = [state.models for state, _ in make_run(FedAvg(LOCAL)).rounds(ROUNDS)]
    flacc = [state for state, _ in make_run(FLACC(LOCAL, n_sep=50)).rounds(ROUNDS)]
    for found, expected in zip(flacc, fedavg, strict=True):
        torch.testing.assert_close(found.models, expected)


def test_fedprox_without_a_pull_is_fedavg() -> None:
    assert torch.equal(
        last_state(make_run(FedProx(0.0, LOCAL))).models, last_state(make_run(FedAvg(LOCAL))).models
    )


def test_ifca_with_one_cluster_is_fedavg() -> None:
    one = last_state(make_run(IFCA(num_clusters=1, local=LOCAL)))
    torch.testing.assert_close(one.models, last_state(make_run(FedAvg(LOCAL))).models)


@pytest.mark.parametrize("name", ["cfl-gp", "pacfl", "ifca", "fl-hc"])
def test_where_no_newcomer_answers_none_is_assigned(name: str) -> None:
    state = last_state(make_run(CASES[name]), 3)
    context = make_run(CASES[name]).context(2, 3)
    silent = drive(CASES[name].assign(state, context), Silent())
    assert (len(silent.clients), len(silent.labels)) == (0, 0)


class Silent:
    """An engine whose clients do not answer."""

    def send(self, request: Request) -> Replies:
        return assemble(request, ())


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        (FLHC(cluster_round=3, num_clusters=2), "cluster_round"),
        (LCFL(warm_up="federated", warm_up_rounds=4), "warm_up_rounds"),
        (Restarts(IFCA(), trial_rounds=4), "trial_rounds"),
    ],
    ids=["fl-hc", "lcfl", "restarts"],
)
def test_a_run_too_short_for_a_method_to_cluster_says_so(
    method: Algorithm[Any], setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(method, blobs(), mlp())
    run.start(4)
    assert not caplog.text
    run.start(3)
    assert f"{setting}: only a run of 4 rounds or more" in caplog.text


def test_a_run_without_test_examples_says_so(caplog: pytest.LogCaptureFixture) -> None:
    federation = replace(blobs(), test=blobs().test.without_examples())
    ((_, record),) = Run(CASES["fedavg"], federation, mlp()).rounds(1)
    assert record.accuracy is None
    assert "no client has test examples" in caplog.text
    caplog.clear()
    run = Run(CASES["fedavg"], blobs(), mlp())
    state = last_state(run, 1)
    replace(run, federation=federation).assign(state)  # newcomers need none
    assert "no client has test examples" not in caplog.text


@pytest.mark.parametrize("method", [CFLGP, IFCA, Sattler])
@pytest.mark.parametrize("setting", [{"proximal": 0.1}, {"optimizer": SGD(momentum=0.9)}], ids=str)
def test_how_clients_train_is_refused_where_they_send_gradients(
    method: type[CFLGP | IFCA | Sattler], setting: dict[str, Any]
) -> None:
    local = LocalTraining(**setting)
    with pytest.raises(UsageError, match=rf"local\.{next(iter(setting))}: .* is not .*plain steps"):
        method(send="gradient", local=local)
    assert method(send="update", local=local).local == local
    assert method(send="gradient", local=LocalTraining(0.3, lr_decay=0.9)).local.lr == 0.3
