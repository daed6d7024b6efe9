"""A Ray cluster of two machines, made on this one: the same replies, whatever of it dies."""

from __future__ import annotations

import copy
import os
import re
import shlex
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.algorithms.test_contract import CASES, last_state, make_run
from tests.engines.test_equality import WORKS, request
from tests.engines.test_workers import assert_identical
from tests.frozen import HalfBackbone
from tests.shell import Shell
from umbel.checks import ClusterLostError, WorkersDiedError
from umbel.cli.execute import resumable
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work import Evaluation, LocalTraining, Promise, Work
from umbel.engines import EngineSettings, Sequential, Vectorised, make_engine, precision
from umbel.engines.processes.workers import Workers
from umbel.flow import Request
from umbel.testing import assert_same_state, blobs, mlp
from umbel.version import versions

ray = pytest.importorskip("ray", reason="the extra umbel[ray] is not installed")

from umbel.engines.ray import parts as ray_parts  # noqa: E402
from umbel.engines.ray import session as ray_session  # noqa: E402
from umbel.engines.ray.actor import ActorPlace, Recipe  # noqa: E402
from umbel.engines.ray.cluster import RayCluster  # noqa: E402

pytestmark = pytest.mark.deployment

ON_RAY = EngineSettings("ray", device="cpu", address="auto")


class Thirds(nn.Module):
    """Makes a tensor of the default type in forward."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tensor(1 / 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines with a core each, the first of which this process is on."""
    from ray.cluster_utils import Cluster

    made: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        made.add_node(num_cpus=1)
        os.environ["RAY_ADDRESS"] = made.address
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def engines(cluster: Any) -> dict[str, RayCluster]:
    """An engine that batches, and one that does not."""
    assert cluster.address
    net, federation = mlp(dtype=torch.float32), blobs().with_validation(0.2)
    kinds: dict[str, Sequential | Vectorised] = {
        "sequential": Sequential(net.using("in-place"), federation),
        "vectorised": Vectorised(net.using("dense"), federation, memory_mb=1e-6),
    }
    return {name: RayCluster.join(e, federation, "", 1) for name, e in kinds.items()}


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        *(
            pytest.param("sequential", work, marks=pytest.mark.thorough if n % 3 else ())
            for n, work in enumerate(WORKS)
        ),
        ("sequential", Evaluation("validation")),
        *(("vectorised", work) for work in [*WORKS[::6], Evaluation("validation")]),
    ],
    ids=str,
)
def test_replies_are_those_of_workers(
    kind: str, work: Work, engines: dict[str, RayCluster]
) -> None:
    asked = request(work, mlp(dtype=torch.float32), [0, 1, 2, 3, 5])
    assert_identical(engines[kind].send(asked), Workers(engines[kind].engine, 1).send(asked))


def test_examples_travel_once_where_their_machine_has_no_actor(
    engines: dict[str, RayCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines["sequential"]  # one actor on two machines
    asked = request(LocalTraining(), mlp(dtype=torch.float32), [0, 1, 2, 3, 5])
    expected = engine.send(asked)
    (member,) = engine.members
    answer, others = member.actor.answer, []

    def remote(*sent: Any) -> Any:
        others.extend(sent[-1])
        return answer.remote(*sent)

    monkeypatch.setattr(member, "actor", SimpleNamespace(answer=SimpleNamespace(remote=remote)))
    assert_identical(engine.send(asked), expected)
    assert not others
    assert len(set(engine.homes)) == 2  # where they are again when an actor comes


def test_slices_of_machines_without_actors_go_to_others_when_nobody_waits_for_a_core() -> None:
    assert ray_parts.placed(["a", "b", "c"], {"c", "b"}) == ["b", "b", "c"]
    there, waits = ray_parts.Member(machine="b"), ray_parts.Member()
    engine = made_by_hand([there, waits])
    assert engine._homes() == ["a", "b"]
    waits.machine = "b"
    assert engine._homes() == ["b", "b"]


def made_by_hand(members: list[ray_parts.Member]) -> RayCluster:
    """An engine whose two slices are at machines a and b; it has no cluster."""
    federation = blobs()
    engine, origin = Sequential(mlp(), federation), ray_parts.Origin(federation, "", None)
    slices = [(range(3), None), (range(3, 6), None)]
    return RayCluster(engine, members, slices, ["a", "b"], None, origin, None)


def test_a_slice_of_a_lost_machine_goes_to_one_that_lends_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
        return {"NodeID": name, "Alive": alive, "Resources": resources}

    nodes = [node("a", alive=False, CPU=2.0), node("b", CPU=2.0), node("a head")]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    lost = ray_parts.Member(machine="a")
    engine = made_by_hand([lost])
    asked = request(LocalTraining(), mlp(), [0])
    engine._lose(lost, None, [], asked, ray.exceptions.RayError("its machine is gone"))
    assert engine.homes == ["b", "b"]
    assert lost.machine is None


def test_a_copy_of_an_engine_joins_the_cluster_when_it_is_asked(
    engines: dict[str, RayCluster],
) -> None:
    remote = engines["vectorised"]
    asked = request(LocalTraining(), mlp(dtype=torch.float32), [0, 1, 2])
    made = copy.deepcopy(remote)
    assert_identical(made.send(asked), Workers(remote.engine, 1).send(asked))
    made.rest()


def test_an_engine_outlives_the_cluster_that_it_joined(
    cluster: Any, engines: dict[str, RayCluster]
) -> None:
    remote = engines["vectorised"]
    asked = request(LocalTraining(), mlp(dtype=torch.float32), [0, 1, 2])
    expected = Workers(remote.engine, 1).send(asked)
    assert_identical(remote.send(asked), expected)
    for _ in range(2):  # as a notebook may, and as it is put right below for other tests
        ray.shutdown()
        ray.init(address=cluster.address, log_to_driver=False)
        other = RayCluster.join(remote.engine, remote.origin.federation, "", 1)
        assert_identical(other.send(asked), expected)
        other.rest()
        assert_identical(remote.send(asked), expected)


def test_another_address_than_that_of_the_cluster_joined_is_refused(
    engines: dict[str, RayCluster],
) -> None:
    remote = engines["vectorised"]
    said = "engine.address: '192.0.2.99:6379': this process is part of .*: a process can join"
    with pytest.raises(umbel.UsageError, match=said.replace(".*:", ".*;")):
        RayCluster.join(remote.engine, blobs(), "192.0.2.99:6379", 1)


def test_another_cluster_behind_a_ray_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[str] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(joined))
    monkeypatch.setattr(ray, "init", lambda address, **_: joined.append(address))
    monkeypatch.setattr(ray_session, "session", lambda: ("a", str(len(joined))))
    monkeypatch.setattr(ray_session, "_knock", lambda _: None)
    first, other = "ray://192.0.2.1:10001", "ray://192.0.2.2:10001"
    ray_session.connect(first)
    ray_session.connect(first)
    with pytest.raises(umbel.UsageError, match=f"'{other}': this process is part of {first}; a pr"):
        ray_session.connect(other)
    monkeypatch.setitem(ray_session.ADDRESSES, ("a", "1"), "192.0.2.1:6379")
    gcs = SimpleNamespace(gcs_address="192.0.2.1:6379")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: gcs)
    ray_session.connect(first)  # of the same cluster, whose clients have another port
    joined.clear()  # as by ray.shutdown()
    ray_session.connect(other)
    assert joined == [other]


def test_what_leaves_actors_given_as_an_engine_is_private(engines: dict[str, RayCluster]) -> None:
    remote = engines["vectorised"]
    net, federation = mlp(dtype=torch.float32).using("dense"), blobs().with_validation(0.2)
    privacy = umbel.Privacy(clip=0.01, noise_multiplier=0.5)
    apart = umbel.Run(umbel.FedAvg(), federation, net, privacy=privacy)
    states = [
        next(run.rounds(1))[0].models
        for run in (replace(apart, engine=engine) for engine in (remote, remote.engine))
    ]
    torch.testing.assert_close(*states)
    others = umbel.Run(umbel.FedAvg(), blobs([9, 8]), net, engine=remote)
    with pytest.raises(umbel.UsageError, match=r"engine: it holds 8 clients, but the run.s fed"):
        next(others.rounds(1))


def test_errors_of_an_actor_are_raised_here(engines: dict[str, RayCluster]) -> None:
    net = mlp()
    asked = request(LocalTraining(), net, [0, 1])
    short = {name: tensor[..., :-1] for name, tensor in asked.shared.items()}
    asked = replace(asked, shared=short, each={"theta": asked.each["given"]})
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as raised:
        engines["sequential"].send(asked)
    assert not isinstance(raised.value, ray.exceptions.RayError)


class OddError(Exception):
    """Can be pickled, and not be made again."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


@dataclass(frozen=True)
class Raises(Work):
    """Fails as it is told to."""

    kind: str

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        if self.kind == "odd":
            raise OddError(1, 2)
        if self.kind == "exit":
            raise SystemExit("1 and 2")
        error = RuntimeError("1 and 2")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        return {}


@pytest.mark.parametrize("kind", ["odd", "exit", "lock"])
def test_errors_that_cannot_be_sent_are_said(kind: str, engines: dict[str, RayCluster]) -> None:
    with pytest.raises((RuntimeError, SystemExit), match="1 and 2") as raised:
        engines["sequential"].send(Request(Raises(kind), torch.arange(2), [0, 0]))
    assert not isinstance(raised.value, ray.exceptions.RayError)


@dataclass(frozen=True)
class Noted(Work):
    """Says who works, and waits for a file."""

    folder: str

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        folder = Path(self.folder)
        (folder / f"{os.getpid()}.pid").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        return {"size": shard.num_examples.clone()}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        return {"size": Promise((), torch.int64)}


def kill_an_actor(folder: Path, cluster: Any) -> None:  # noqa: ARG001
    os.kill(int(next(folder.glob("*.pid")).stem), signal.SIGKILL)


def kill_a_machine(folder: Path, cluster: Any) -> None:  # noqa: ARG001
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)


def is_there(actor: Any) -> bool:
    """Whether its process answers."""
    try:
        return bool(ray.get(actor.__ray_call__.remote(lambda _: True)))
    except ray.exceptions.RayActorError:
        return False


@pytest.mark.parametrize("back", [False, True], ids=["just killed", "started again unasked"])
def test_actors_that_are_all_killed_come_back(
    back: bool, engines: dict[str, RayCluster], cluster: Any, tmp_path: Path
) -> None:
    engine, net = engines["sequential"], mlp(dtype=torch.float32)
    (tmp_path / "go").touch()
    engine.send(Request(Noted(str(tmp_path)), torch.arange(2), [0, 0]))
    kill_an_actor(tmp_path, cluster)
    while back and not is_there(engine.members[0].actor):
        time.sleep(0.1)
    asked = request(LocalTraining(), net, [0, 1, 2])
    assert_identical(engine.send(asked), Workers(engine.engine, 1).send(asked))


def test_a_run_on_ray_is_that_of_workers(engines: dict[str, RayCluster]) -> None:
    engines.clear()  # their actors leave the cores to others
    expected = last_state(
        make_run(CASES["ifca"], engine=EngineSettings(device="cpu", workers=1)), 3
    )
    assert_same_state(last_state(make_run(CASES["ifca"], engine=ON_RAY), 3), expected)


def test_actors_compute_in_the_precision_that_this_process_has_set(cluster: Any) -> None:
    assert cluster.address
    federation = blobs()
    torch.set_default_dtype(torch.float64)
    try:
        net = Net(lambda: nn.Sequential(nn.Linear(6, 3), Thirds()))
        engine = Sequential(net, federation)
        asked = request(LocalTraining(), net, [0, 1, 2])
        found = RayCluster.join(engine, federation, "", 1).send(asked)
        assert_identical(found, Workers(engine, 1).send(asked))
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_recipe_says_how_products_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    federation = blobs()
    torch.set_float32_matmul_precision("high")
    try:
        recipe = Recipe.of(Sequential(mlp(), federation), federation)
    finally:
        torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch, "set_float32_matmul_precision", said.append)
    recipe.make()
    assert said == ["high"]


def test_bfloat16_is_refused_by_the_machine_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings("ray", precision="bf16")
    federation, units = blobs(), ["avx512_bf16"]
    monkeypatch.setattr(RayCluster, "join", lambda engine, *_: engine)
    monkeypatch.setattr(precision, "bf16_units", lambda: units)
    here: Any = make_engine(mlp(dtype=torch.float32), federation, settings)
    recipe = Recipe.of(here, federation)
    assert recipe.make().net.way.precision == "bf16"
    units.clear()
    machine = re.escape(socket.gethostname())
    with pytest.raises(umbel.UsageError, match=f"precision: the processor of {machine} has"):
        recipe.make()
    make_engine(mlp(dtype=torch.float32), federation, settings)


@pytest.mark.thorough
def test_runs_of_one_process_take_the_cores_from_each_other(cluster: Any) -> None:
    assert cluster.address
    alone = [list(make_run(CASES[name]).rounds(2)) for name in ("ifca", "fedavg")]
    runs = [make_run(CASES[name], engine=ON_RAY) for name in ("ifca", "fedavg")]
    beside = list(zip(*(run.rounds(2) for run in runs), strict=True))  # a round of each in turn
    for found, expected in zip(zip(*beside, strict=True), alone, strict=True):
        assert_same_state(found[-1][0], expected[-1][0], 1e-9)


def test_models_that_ray_cannot_send_are_refused(cluster: Any) -> None:
    assert cluster.address
    with pytest.raises(umbel.UsageError, match="the type of the models: 'bfloat16' is not for Ray"):
        make_engine(mlp(dtype=torch.bfloat16), blobs(), ON_RAY)


@pytest.mark.parametrize("name", ["sequential", "vectorised"])
def test_actors_share_the_frozen_values(name: Any, cluster: Any) -> None:
    assert cluster.address
    net = Net(HalfBackbone)
    kinds = {"sequential": Sequential, "vectorised": Vectorised}
    engine = kinds[name](net, blobs())
    recipe = ray.get(ray.put(Recipe.of(engine, blobs())))
    made = recipe.make()
    assert made.net.frozen_digest == net.frozen_digest
    first, size = recipe.frozen.data.ctypes.data, recipe.frozen.data.nbytes
    for module in (made.net.modules.training, made.net.modules.evaluating):
        assert first <= module.get_parameter("backbone.weight").data_ptr() < first + size
    asked = request(LocalTraining(batch_size=4), net, [0, 1, 2])
    remote = RayCluster.join(engine, blobs(), "", 1)
    assert_identical(remote.send(asked), Workers(engine, 1).send(asked))


def test_the_command_of_the_page_runs(cluster: Any, umbel: Shell) -> None:
    assert cluster.address
    page = (Path(__file__).parents[2] / "docs" / "ray.md").read_text()
    (command,) = re.findall(r"^umbel (run .*engine.name=ray.*)$", page, re.MULTILINE)
    umbel(*shlex.split(command), "--set", "rounds=2")
    umbel("run", "flacc-digits", "--set", "rounds=2", "--set", "name=here")
    with_ray, here = (Path(f"runs/{name}-seed0") for name in ("flacc-digits", "here"))
    assert (with_ray / "clusters.csv").read_text() == (here / "clusters.csv").read_text()


class OnlyHere(nn.Module):
    """Can't be made in another process than the first."""

    def __init__(self, home: int) -> None:
        super().__init__()
        if os.getpid() != home:
            raise FileNotFoundError("the weights are on another machine")
        self.linear = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.linear(x)
        return outputs


def test_actors_find_a_module_beside_the_experiment(
    cluster: Any,
    umbel: Shell,
    tmp_path: Path,
) -> None:
    assert cluster.address
    project = tmp_path / "project"
    project.mkdir()
    (project / "network_beside.py").write_text(
        "from dataclasses import dataclass\n"
        "from torch import nn\n"
        "from umbel.networks import Model\n"
        "@dataclass(frozen=True)\n"
        "class Beside(Model):\n"
        "    def build(self, input_shape, num_outputs):\n"
        "        return nn.Sequential(nn.Flatten(), nn.Linear(64, num_outputs))\n"
    )
    text = (
        Path("both/fedavg.toml")
        .read_text()
        .replace('"mlp"\nhidden = [16]', '"network_beside:Beside"')
    )
    (project / "e.toml").write_text(text)
    settings = ["--set", "engine.name=ray", "--set", "engine.workers=1", "--set", "rounds=1"]
    umbel("run", str(project / "e.toml"), *settings)


def test_a_builder_or_an_objective_that_cannot_be_sent_is_named(cluster: Any) -> None:
    assert cluster.address
    federation, lock = blobs(), threading.Lock()

    def build() -> nn.Module:
        with lock:
            return nn.Linear(6, 3)

    def losses(outputs: Tensor, y: Tensor) -> Tensor:
        with lock:
            return umbel.CLASSIFICATION.losses(outputs, y)

    objective = replace(umbel.CLASSIFICATION, losses=losses)
    for net, what in (
        (Net(build), "network's builder"),
        (Net(lambda: nn.Linear(6, 3), objective), "objective"),
    ):
        said = f"^the {what} can't be sent to actors: cannot pickle '_thread.lock' object$"
        with pytest.raises(umbel.UsageError, match=said):
            RayCluster.join(Sequential(net, federation), federation, "", 1)


def test_an_actor_that_cannot_be_made_says_why(cluster: Any) -> None:
    assert cluster.address
    home, federation = os.getpid(), blobs()
    net = Net(lambda: OnlyHere(home))
    engine = RayCluster.join(Sequential(net, federation), federation, "", 1)
    with pytest.raises(FileNotFoundError, match="the weights are on another machine"):
        engine.send(request(LocalTraining(), net, [0, 1]))


class Fatal(OnlyHere):
    """Ends every other process that makes it."""

    def __init__(self, home: int) -> None:
        if os.getpid() != home:
            os._exit(3)
        super().__init__(home)


def test_actors_that_all_end_while_they_make_the_network_are_not_started_for_ever(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.address
    monkeypatch.setattr(ray_parts, "STARTS", 2)
    home, federation = os.getpid(), blobs()
    net = Net(lambda: Fatal(home))
    engine = RayCluster.join(Sequential(net, federation), federation, "", 1)
    with pytest.raises(WorkersDiedError, match="times while it made the network"):
        engine.send(request(LocalTraining(), net, [0, 1]))
    engine.rest()


def test_an_actor_that_waits_for_a_core_is_told_from_one_that_is_lost() -> None:
    waits, there = ray_parts.Member(), ray_parts.Member(machine="a")
    lost = ray_parts.Member(lost=ray_parts.STARTS)
    assert "waiting for a free core" in ray_parts.why_nobody([waits])
    assert "are lost while they make the network" in ray_parts.why_nobody([waits, lost])
    assert ray_parts.never_start([lost, waits])
    assert not ray_parts.never_start([waits])
    assert not ray_parts.never_start([lost, there])
    assert not ray_parts.never_start([lost, ray_parts.Member(lost=1)])


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port", "a:9" * 99]
)
def test_an_address_where_nobody_listens_is_said_soon(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", None)
    settings = EngineSettings("ray", device="cpu", address=address)
    with pytest.raises(umbel.UsageError, match=r"^engine.address: '.*': no Ray cluster: "):
        make_engine(mlp(), blobs(), settings)


def test_clients_of_a_cluster_are_computed_on_processors_where_this_machine_has_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(RayCluster, "join", lambda engine, *_: engine)
    engine: Any = make_engine(mlp(), blobs(), EngineSettings("ray", address="auto"))
    assert engine.device.type == "cpu"
    with pytest.raises(umbel.UsageError, match="device: 'cuda' is not \"cpu\" with Ray"):
        EngineSettings("ray", device="cuda")


def test_actors_are_no_more_than_ray_can_start() -> None:
    settings = EngineSettings("ray", device="cpu", workers=10**12)
    with pytest.raises(umbel.UsageError, match=r"engine.workers: 1000000000000 is not at most"):
        make_engine(mlp(), blobs(), settings)


@pytest.mark.parametrize("strike", [kill_an_actor, kill_a_machine])
def test_clients_of_what_is_lost_in_a_round_are_asked_again(
    strike: Any, cluster: Any, tmp_path: Path
) -> None:
    federation = blobs()
    net = Net(lambda: nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.0), nn.Linear(4, 3)))
    engine = RayCluster.join(Sequential(net.using("in-place"), federation), federation, "", 2)

    def struck() -> None:
        while len(list(tmp_path.glob("*.pid"))) < 2:
            time.sleep(0.01)
        strike(tmp_path, cluster)
        (tmp_path / "go").touch()

    thread = threading.Thread(target=struck)
    thread.start()
    clients = torch.arange(federation.num_clients)
    replies = engine.send(Request(Noted(str(tmp_path)), clients, [0] * len(clients)))
    thread.join()
    assert replies.columns["size"].tolist() == federation.train.sizes.tolist()
    again = engine.send(request(LocalTraining(), net, [0, 1, 2, 3, 5]))
    here = Workers(engine.engine, 1).send(request(LocalTraining(), net, [0, 1, 2, 3, 5]))
    assert_identical(again, here)


def test_too_long_a_path_for_rays_sockets_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(**_: object) -> None:
        raise OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(umbel.UsageError, match=r"no Ray cluster: .*; set RAY_TMPDIR to a shorter"):
        make_engine(mlp(), blobs(), EngineSettings("ray", device="cpu"))


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize("kind", [ConnectionError, Exception])  # Ray raises both
def test_a_cluster_that_refuses_is_said(
    kind: type[Exception], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def init(**_: object) -> None:
        raise kind("Could not find any running Ray instance.\nMore lines")

    monkeypatch.setattr(ray, "init", init)
    with socket.create_server(("127.0.0.1", 0)) as opened:
        address = "auto" if found else f"127.0.0.1:{opened.getsockname()[1]}"
        settings = EngineSettings("ray", device="cpu", address=address)
        with pytest.raises(umbel.UsageError, match="no Ray cluster: Could") as refused:
            make_engine(mlp(), blobs(), settings)
    assert ("RAY_AUTH_MODE" in str(refused.value)) is not found


def test_a_machine_of_another_release_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = made_by_hand([ray_parts.Member()])
    here = versions()
    place = ActorPlace("b", "server-b", {**here, "umbel": "0.0.9", "torch": "1.0+cpu"}, None)
    for each in (ActorPlace("a", "server-a", here, None), place, place):
        engine._note_versions(each)
    (said,) = caplog.messages
    torch_here = f"torch 1.0+cpu (here {torch.__version__})"
    expected = (
        f"server-b of the Ray cluster has umbel 0.0.9 (here {here['umbel']}) and {torch_here}"
    )
    assert expected in said


def test_a_cluster_that_goes_down_is_one_line_with_the_way_on() -> None:
    engine = made_by_hand([ray_parts.Member(machine="a")])
    with socket.create_server(("127.0.0.1", 0)) as opened:
        engine.servers = {"the head of the cluster": opened.getsockname()}
        engine._check_there()
    with pytest.raises(ClusterLostError, match=r"^the Ray cluster is lost: the head .* has ended$"):
        engine._check_there()
    lost = ray.exceptions.RayError("its machine is gone")
    with pytest.raises(ClusterLostError):
        engine._lose(engine.members[0], None, [], request(LocalTraining(), mlp(), [0]), lost)
    said = r"is lost; start Ray again if you had started it, and go on with: umbel resume runs/x$"
    with pytest.raises(ClusterLostError, match=said), resumable("umbel resume runs/x"):
        raise ClusterLostError("the Ray cluster is lost")
