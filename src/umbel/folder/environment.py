"""The machine and the versions of libraries with which a run was made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from typing import Any

import torch

from umbel.client.kernel_choice import Precision
from umbel.engines.precision import bf16_units
from umbel.version import versions

PACKAGES = ("numpy", "scipy", "scikit-learn", "safetensors")


def environment(precision: Precision = "full") -> dict[str, Any]:
    """Versions and machine; on request also the processor's support for bfloat16 products."""
    units = {"bf16_units": bf16_units()} if precision == "bf16" else {}
    return units | {
        "versions": versions() | {name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "host": platform.node(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def now() -> datetime:
    """The time, for the environment file."""
    return datetime.now(UTC)
