"""Memory that is freed and asked for again is not taken from the system again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREED_AGAIN_AND_AGAIN = """
import os, resource
os.environ.update({variables})
import torch
import umbel
from umbel.engines import make_engine

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def a_round():
    tensors = [torch.ones(5 * 2**20) for _ in range(4)]  # 20 MiB each

net = umbel.Net(lambda: torch.nn.Linear(64, 10))
{before}
for _ in range(3):
    a_round()
began = faults()
for _ in range(5):
    a_round()
print(faults() - began)
"""

PAGES = 4 * 20 * 2**20 // 4096
"""Pages that a round fills."""

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the allocator is not that of the GNU C library"
)


def faults(before: str, **variables: str) -> int:
    program = FREED_AGAIN_AND_AGAIN.format(before=before, variables=variables)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return int(ran.stdout)


WITH_AN_ENGINE = (
    "make_engine(umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, "
    '10))), umbel.scenario("rotated-digits", clients=4, seed=0))'
)


def test_a_process_with_an_engine_keeps_what_it_frees() -> None:
    assert faults(WITH_AN_ENGINE) < PAGES


def test_a_process_without_one_is_left_as_it_is() -> None:
    assert faults("") >= PAGES


def test_what_the_user_has_set_holds() -> None:
    assert faults(WITH_AN_ENGINE, MALLOC_TRIM_THRESHOLD_="131072") >= PAGES
