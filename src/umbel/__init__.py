"""umbel: clustered federated learning.

federation = umbel.scenario("rotated-digits", clients=20)
net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
for state, record in umbel.Run(umbel.FLACC(), federation, net, seed=0).rounds(60):
    print(record.round, record.accuracy, record.ari)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from umbel.version import __version__

if TYPE_CHECKING:
    from umbel.aggregation import Averaging
    from umbel.algorithms import (
        CFLGP,
        FLACC,
        FLHC,
        IFCA,
        LCFL,
        PACFL,
        FedAvg,
        FedEM,
        FedProx,
        Joint,
        LocalOnly,
        Oracle,
        PerFedAvg,
        PFedMe,
        Sattler,
    )
    from umbel.algorithms.base import Algorithm, Served, Setup, State
    from umbel.checks import UsageError
    from umbel.cluster_count import ClusterCount, count_clusters
    from umbel.cluster_plot import plot_clusters
    from umbel.config import read
    from umbel.courses import plot, table
    from umbel.data.federation import Federation
    from umbel.data.scenarios.base import Scenario
    from umbel.data.sources import Sources
    from umbel.engines import EngineSettings, Sequential, Vectorised
    from umbel.engines.wrappers import Faults, QuorumError
    from umbel.execution import execute, load
    from umbel.experiment import Experiment
    from umbel.folder import RunFolder
    from umbel.net import Net
    from umbel.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
    from umbel.optimizers import SGD, Adam
    from umbel.recipes import scenario
    from umbel.records import Record
    from umbel.reporting import write_report
    from umbel.result import Assignment, Result
    from umbel.run import Run
    from umbel.run_tables import Results, results
    from umbel.saving import finish, resume
    from umbel.shipped import find_experiment
    from umbel.validation import Limits
    from umbel.watching import progress
    from umbel.work import Gradient, LocalTraining

__all__ = [
    "BINARY",
    "CFLGP",
    "CLASSIFICATION",
    "FLACC",
    "FLHC",
    "IFCA",
    "LCFL",
    "PACFL",
    "REGRESSION",
    "SGD",
    "Adam",
    "Algorithm",
    "Assignment",
    "Averaging",
    "ClusterCount",
    "EngineSettings",
    "Experiment",
    "Faults",
    "FedAvg",
    "FedEM",
    "FedProx",
    "Federation",
    "Gradient",
    "Joint",
    "Limits",
    "LocalOnly",
    "LocalTraining",
    "Net",
    "Objective",
    "Oracle",
    "PFedMe",
    "PerFedAvg",
    "QuorumError",
    "Record",
    "Result",
    "Results",
    "Run",
    "RunFolder",
    "Sattler",
    "Scenario",
    "Sequential",
    "Served",
    "Setup",
    "Sources",
    "State",
    "UsageError",
    "Vectorised",
    "__version__",
    "count_clusters",
    "execute",
    "find_experiment",
    "finish",
    "load",
    "plot",
    "plot_clusters",
    "progress",
    "read",
    "results",
    "resume",
    "scenario",
    "table",
    "write_report",
]

# Whoever needs little of the package, as the command line does for its help, loads little of it.
_HOMES = {
    "umbel.aggregation": ("Averaging",),
    "umbel.algorithms": (
        "CFLGP",
        "FLACC",
        "FLHC",
        "IFCA",
        "LCFL",
        "PACFL",
        "FedAvg",
        "FedEM",
        "FedProx",
        "Joint",
        "LocalOnly",
        "Oracle",
        "PerFedAvg",
        "PFedMe",
        "Sattler",
    ),
    "umbel.algorithms.base": ("Algorithm", "Served", "Setup", "State"),
    "umbel.checks": ("UsageError",),
    "umbel.cluster_count": ("ClusterCount", "count_clusters"),
    "umbel.cluster_plot": ("plot_clusters",),
    "umbel.config": ("read",),
    "umbel.courses": ("plot", "table"),
    "umbel.data.federation": ("Federation",),
    "umbel.data.scenarios.base": ("Scenario",),
    "umbel.data.sources": ("Sources",),
    "umbel.engines": ("EngineSettings", "Sequential", "Vectorised"),
    "umbel.engines.wrappers": ("Faults", "QuorumError"),
    "umbel.execution": ("execute", "load"),
    "umbel.experiment": ("Experiment",),
    "umbel.run": ("Run",),
    "umbel.folder": ("RunFolder",),
    "umbel.net": ("Net",),
    "umbel.objectives": ("BINARY", "CLASSIFICATION", "REGRESSION", "Objective"),
    "umbel.optimizers": ("SGD", "Adam"),
    "umbel.recipes": ("scenario",),
    "umbel.records": ("Record",),
    "umbel.reporting": ("write_report",),
    "umbel.result": ("Assignment", "Result"),
    "umbel.run_tables": ("Results", "results"),
    "umbel.saving": ("finish", "resume"),
    "umbel.shipped": ("find_experiment",),
    "umbel.validation": ("Limits",),
    "umbel.watching": ("progress",),
    "umbel.work": ("Gradient", "LocalTraining"),
}
"""Where the public names are defined."""

if not TYPE_CHECKING:  # or a type checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Load a public name, or a module of the package, when it is first asked for."""
        for module, names in _HOMES.items():
            if name in names:
                return getattr(import_module(module), name)
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError:
                pass
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
