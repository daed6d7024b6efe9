"""umbel: clustered federated learning.

federation = umbel.scenario("rotated-digits", clients=20)
net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
for state, record in umbel.Run(umbel.FLACC(), federation, net, seed=0).rounds(60):
    print(record.round, record.accuracy, record.ari)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from umbel.help.field_docs import explained
from umbel.version import __version__

if TYPE_CHECKING:
    from umbel.advice import Advice, advise
    from umbel.algorithms import (
        CFLGP,
        FLACC,
        FLHC,
        IFCA,
        LCFL,
        PACFL,
        SRFCA,
        CLoVE,
        FedAvg,
        FedEM,
        FedGroup,
        FedLEASE,
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
        Sharing,
        StoCFL,
    )
    from umbel.algorithms.base import Algorithm, Served, Setup, State
    from umbel.checks import UsageError
    from umbel.client.net import Net
    from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
    from umbel.client.optimizers import SGD, Adam
    from umbel.client.schedules import CosineRestarts, InverseTime
    from umbel.client.work import Gradient, LocalTraining
    from umbel.client.work.schemes import (
        Contrast,
        ControlVariates,
        DynamicPenalty,
        HeadFirst,
        MixedModel,
        PersonalModel,
    )
    from umbel.data.federation import Federation
    from umbel.data.scenarios.base import Scenario
    from umbel.data.sources import Sources
    from umbel.engines import EngineSettings, Sequential, Vectorised
    from umbel.engines.own_training import OwnTraining
    from umbel.engines.privacy import Privacy
    from umbel.engines.replies.faults import Faults
    from umbel.engines.replies.guarded import QuorumError
    from umbel.engines.replies.validation import Limits
    from umbel.experiment.library import find_experiment
    from umbel.folder.execution import execute
    from umbel.folder.run_folder import RunFolder
    from umbel.newcomers.assignment import Assignment
    from umbel.report.cluster_plot import plot_clusters
    from umbel.report.learning_curves import plot, table
    from umbel.report.reporting import write_report
    from umbel.report.terminal.progress import progress
    from umbel.result.row_encoder import RowEncoder
    from umbel.result.run import Experiment, Result, Run, finish, load, read, resume, scenario
    from umbel.result.tables import Results, results
    from umbel.run.participation import Available, Participation, Weighted
    from umbel.run.personal import Personal
    from umbel.run.records import Record
    from umbel.server.aggregation import Averaging
    from umbel.server.averaging_rules import FedAdagrad, FedAdam, FedAvgM, FedYogi, TrimmedMean
    from umbel.server.cluster_count import ClusterCount, count_clusters

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
    "SRFCA",
    "Adam",
    "Advice",
    "Algorithm",
    "Assignment",
    "Available",
    "Averaging",
    "CLoVE",
    "ClusterCount",
    "Contrast",
    "ControlVariates",
    "CosineRestarts",
    "DynamicPenalty",
    "EngineSettings",
    "Experiment",
    "Faults",
    "FeSEM",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedEM",
    "FedGroup",
    "FedLEASE",
    "FedProx",
    "FedRC",
    "FedSoft",
    "FedYogi",
    "Federation",
    "FixedClusters",
    "Gradient",
    "HeadFirst",
    "InverseTime",
    "Joint",
    "Limits",
    "LocalOnly",
    "LocalTraining",
    "MixedModel",
    "Net",
    "Objective",
    "Oracle",
    "OwnTraining",
    "PFedMe",
    "Participation",
    "PerFedAvg",
    "Personal",
    "PersonalModel",
    "Privacy",
    "QuorumError",
    "RandomClusters",
    "Record",
    "Restarts",
    "Result",
    "Results",
    "RowEncoder",
    "Run",
    "RunFolder",
    "Sattler",
    "Scenario",
    "Sequential",
    "Served",
    "Setup",
    "Sharing",
    "Sources",
    "State",
    "StoCFL",
    "TrimmedMean",
    "UsageError",
    "Vectorised",
    "Weighted",
    "__version__",
    "advise",
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
    "umbel.advice": ("Advice", "advise"),
    "umbel.server.aggregation": ("Averaging",),
    "umbel.server.averaging_rules": ("FedAdagrad", "FedAdam", "FedAvgM", "FedYogi", "TrimmedMean"),
    "umbel.algorithms": (
        "CFLGP",
        "FLACC",
        "FLHC",
        "IFCA",
        "LCFL",
        "PACFL",
        "CLoVE",
        "FeSEM",
        "FedGroup",
        "FedRC",
        "FedSoft",
        "SRFCA",
        "StoCFL",
        "FedAvg",
        "FedEM",
        "FedLEASE",
        "FedProx",
        "FixedClusters",
        "Joint",
        "LocalOnly",
        "Oracle",
        "PerFedAvg",
        "PFedMe",
        "RandomClusters",
        "Restarts",
        "Sattler",
        "Sharing",
    ),
    "umbel.algorithms.base": ("Algorithm", "Served", "Setup", "State"),
    "umbel.checks": ("UsageError",),
    "umbel.server.cluster_count": ("ClusterCount", "count_clusters"),
    "umbel.report.cluster_plot": ("plot_clusters",),
    "umbel.report.learning_curves": ("plot", "table"),
    "umbel.data.federation": ("Federation",),
    "umbel.data.scenarios.base": ("Scenario",),
    "umbel.data.sources": ("Sources",),
    "umbel.engines": ("EngineSettings", "Sequential", "Vectorised"),
    "umbel.engines.replies.faults": ("Faults",),
    "umbel.engines.replies.guarded": ("QuorumError",),
    "umbel.folder.execution": ("execute",),
    "umbel.run.participation": ("Available", "Participation", "Weighted"),
    "umbel.run.personal": ("Personal",),
    "umbel.result.row_encoder": ("RowEncoder",),
    "umbel.folder.run_folder": ("RunFolder",),
    "umbel.client.net": ("Net",),
    "umbel.client.objectives": ("BINARY", "CLASSIFICATION", "REGRESSION", "Objective"),
    "umbel.client.optimizers": ("SGD", "Adam"),
    "umbel.client.schedules": ("CosineRestarts", "InverseTime"),
    "umbel.run.records": ("Record",),
    "umbel.report.reporting": ("write_report",),
    "umbel.newcomers.assignment": ("Assignment",),
    "umbel.result.tables": ("Results", "results"),
    "umbel.experiment.library": ("find_experiment",),
    "umbel.engines.own_training": ("OwnTraining",),
    "umbel.engines.privacy": ("Privacy",),
    "umbel.engines.replies.validation": ("Limits",),
    "umbel.report.terminal.progress": ("progress",),
    "umbel.result.run": (
        "Experiment",
        "Result",
        "Run",
        "finish",
        "load",
        "read",
        "resume",
        "scenario",
    ),
    "umbel.client.work": ("Gradient", "LocalTraining"),
    "umbel.client.work.schemes": (
        "Contrast",
        "ControlVariates",
        "DynamicPenalty",
        "HeadFirst",
        "MixedModel",
        "PersonalModel",
    ),
}
"""Where the public names are defined."""

if not TYPE_CHECKING:  # or a type checker would take any name for one that is there

    def __getattr__(name: str) -> object:
        """Load a public name, or a module of the package, when it is first asked for."""
        for module, names in _HOMES.items():
            if name in names:
                return explained(getattr(import_module(module), name))
        if not name.startswith("_"):
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                # `hasattr` and `getattr` with a default expect this error alone.
                if error.name != f"{__name__}.{name}":
                    raise AttributeError(str(error)) from error
        from umbel.checks import closest
        from umbel.help.synonyms import instead

        close = closest(name, __all__)
        hint = instead("umbel", name) or (f"; did you mean umbel.{close}?" if close else "")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
