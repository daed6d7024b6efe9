"""Where memory runs out it is said, and not the network or the user's settings are blamed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.federations import blobs
from tests.shell import Shell
from umbel import cli
from umbel.algorithms import FedAvg
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.engines import Sequential, Vectorised
from umbel.engines.devices import enough_memory
from umbel.engines.processes.workers import Workers
from umbel.flow import Request, Rows

SAID = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 86482880 bytes."
)


def fail() -> None:
    raise RuntimeError(SAID)


def test_a_machine_without_memory_is_told_from_a_device_and_from_a_fault() -> None:
    with pytest.raises(MemoryError, match="take fewer"), enough_memory(lambda: "take fewer"):
        fail()
    with pytest.raises(RuntimeError, match="another"), enough_memory(lambda: "take fewer"):
        raise RuntimeError("another")


@pytest.mark.parametrize("kind", [Sequential, Vectorised])
@pytest.mark.parametrize("count", [1, 2])
def test_however_many_workers_there_are_the_engine_says_what_is_needed_and_what_helps(
    kind: type[Sequential | Vectorised], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "answer", lambda *_: fail())
    net = Net(lambda: nn.Linear(6, 3000))  # 21,000 values, four times
    engine = kind(net, blobs())
    at_once = 6 if kind is Vectorised else 1
    theta = Rows(net.new(0)[None], torch.zeros(6, dtype=torch.long))
    request = Request(LocalTraining(), torch.arange(6), range(6), each={"theta": theta})
    for asked in (engine, Workers(engine, count)):
        with pytest.raises(MemoryError, match=r"^the models of one client take 0\.3 MiB") as raised:
            asked.send(request)
        said = str(raised.value)
        assert f"for {at_once} client{'s' * (at_once > 1)} at once" in said
        assert "; the replies take 0.5 MiB; what helps: " in said
        assert ("engine.memory_mb = " in said) == (at_once > 1)
        many = count > 1 and isinstance(asked, Workers) and kind is Sequential
        assert ("engine.workers = 1 (now 2)" in said) == many
        assert said.endswith("a smaller model")


def test_memory_that_is_short_at_the_server_is_one_line(
    umbel: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    umbel("run", "both/fedavg.toml", "--set", "rounds=1")
    monkeypatch.setattr(FedAvg, "round", lambda *_: fail())
    _, said = umbel("resume", "runs/fedavg-seed0", "--rounds", "+2", status=1)
    why = "umbel: there is not enough memory: you tried to allocate 86482880 bytes"
    assert said == f"{why}; go on with: umbel resume runs/fedavg-seed0\n"
    _, said = umbel("run", "both/fedavg.toml", "--seed", "1", status=1)
    assert said == f"{why}\n"
    assert not Path("runs/fedavg-seed1").exists()
    monkeypatch.setattr(cli.app, "main", lambda **_: fail())
    _, said = umbel("list", status=1)
    assert said == f"{why}\n"
