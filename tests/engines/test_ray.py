"""A Ray cluster of two machines, made on this one: the same replies, whatever of it dies."""

from __future__ import annotations

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
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.algorithms.test_contract import CASES, last_state, make_run
from tests.engines.test_equality import WORKS, request
from tests.engines.test_workers import assert_identical
from tests.shell import Shell
from umbel.checks import ClusterLostError
from umbel.cli.execute import resumable
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work import Evaluation, LocalTraining, Promise, Work
from umbel.engines import EngineSettings, Sequential, Vectorised, make_engine
from umbel.engines.processes.workers import Workers
from umbel.flow import Request
from umbel.testing import assert_same_state, blobs, mlp
from umbel.version import versions

ray = pytest.importorskip("ray", reason="the extra umbel[ray] is not installed")

from umbel.engines.ray import parts as ray_parts  # noqa: E402
from umbel.engines.ray.actor import ActorPlace  # noqa: E402
from umbel.engines.ray.cluster import RayCluster  # noqa: E402

pytestmark = pytest.mark.deployment

ON_RAY = EngineSettings("ray", device="cpu", address="auto")


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
        ("sequential", WORKS[0]),
        ("vectorised", Evaluation("validation")),
        *(pytest.param("sequential", w, marks=pytest.mark.thorough) for w in WORKS[3::3]),
        *(pytest.param("vectorised", w, marks=pytest.mark.thorough) for w in WORKS[::6]),
    ],
    ids=str,
)
def test_replies_are_those_of_workers(
    kind: str, work: Work, engines: dict[str, RayCluster]
) -> None:
    asked = request(work, mlp(dtype=torch.float32), [0, 1, 2, 3, 5])
    assert_identical(engines[kind].send(asked), Workers(engines[kind].engine, 1).send(asked))


def made_by_hand(members: list[ray_parts.Member]) -> RayCluster:
    """An engine whose two slices are at machines a and b; it has no cluster."""
    federation = blobs()
    engine, origin = Sequential(mlp(), federation), ray_parts.Origin(federation, "", None)
    slices = [(range(3), None), (range(3, 6), None)]
    return RayCluster(engine, members, slices, ["a", "b"], None, origin, ("", ""))


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


def test_actors_that_are_all_killed_come_back_however_long_it_takes(
    engines: dict[str, RayCluster],
    cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_parts, "STARTS", 1)  # a slow start is no loss
    engine, net = engines["sequential"], mlp(dtype=torch.float32)
    (tmp_path / "go").touch()
    engine.send(Request(Noted(str(tmp_path)), torch.arange(2), [0, 0]))
    kill_an_actor(tmp_path, cluster)
    asked = request(LocalTraining(), net, [0, 1, 2])
    assert_identical(engine.send(asked), Workers(engine.engine, 1).send(asked))


def test_a_run_on_ray_is_that_of_workers(engines: dict[str, RayCluster]) -> None:
    engines.clear()  # their actors leave the cores to others
    expected = last_state(
        make_run(CASES["ifca"], engine=EngineSettings(device="cpu", workers=1)), 3
    )
    assert_same_state(last_state(make_run(CASES["ifca"], engine=ON_RAY), 3), expected)


def test_the_command_of_the_page_runs(cluster: Any, umbel: Shell) -> None:
    assert cluster.address
    page = (Path(__file__).parents[2] / "docs" / "ray.md").read_text()
    (command,) = re.findall(r"^umbel (run .*engine.name=ray.*)$", page, re.MULTILINE)
    umbel(*shlex.split(command), "--set", "rounds=2")
    umbel("run", "flacc-digits", "--set", "rounds=2", "--set", "name=here")
    with_ray, here = (Path(f"runs/{name}-seed0") for name in ("flacc-digits", "here"))
    assert (with_ray / "clusters.csv").read_text() == (here / "clusters.csv").read_text()


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


@pytest.mark.parametrize(
    "strike", [kill_an_actor, pytest.param(kill_a_machine, marks=pytest.mark.thorough)]
)
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
