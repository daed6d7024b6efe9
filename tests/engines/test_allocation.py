"""What rounds free is not taken from the system again; what is free before them goes back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from umbel.engines.allocation import ON_THEIR_OWN, keep_freed_memory

FREED_AGAIN_AND_AGAIN = """
import resource
import torch
import umbel
from umbel.engines import make_engine

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def a_round():
    tensors = [torch.ones(5 * 2**20) for _ in range(4)]  # 20 MiB each

net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
make_engine(net, umbel.scenario("rotated-digits", clients=4, seed=0))
for _ in range(3):
    a_round()
began = faults()
for _ in range(5):
    a_round()
print(faults() - began)
"""


PAGES = 4 * 20 * 2**20 // 4096
"""Pages that a round fills."""


GLIBC = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the allocator is not that of the GNU C library"
)


@GLIBC
@pytest.mark.thorough
def test_a_process_with_an_engine_keeps_what_it_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ON_THEIR_OWN:
        monkeypatch.delenv(name, raising=False)
    program = [sys.executable, "-c", FREED_AGAIN_AND_AGAIN]
    ran = subprocess.run(program, capture_output=True, check=True)
    assert int(ran.stdout) < PAGES


@pytest.mark.parametrize("name", ON_THEIR_OWN)
def test_what_the_user_has_set_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    assert not keep_freed_memory.__wrapped__()
