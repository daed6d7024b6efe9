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
    from umbel.advice import Advice as Advice, advise as advise
    from umbel.algorithms import (
        CFLGP as CFLGP,
        FLACC as FLACC,
        FLHC as FLHC,
        IFCA as IFCA,
        LCFL as LCFL,
        PACFL as PACFL,
        SRFCA as SRFCA,
        CLoVE as CLoVE,
        FedAvg as FedAvg,
        FedEM as FedEM,
        FedGroup as FedGroup,
        FedLEASE as FedLEASE,
        FedProto as FedProto,
        FedCCFA as FedCCFA,
        FedProx as FedProx,
        FedRC as FedRC,
        FedSoft as FedSoft,
        FeSEM as FeSEM,
        FixedClusters as FixedClusters,
        Joint as Joint,
        LocalOnly as LocalOnly,
        Oracle as Oracle,
        PerFedAvg as PerFedAvg,
        PFedMe as PFedMe,
        RandomClusters as RandomClusters,
        Restarts as Restarts,
        Sattler as Sattler,
        Sharing as Sharing,
        StoCFL as StoCFL,
        AdaptiveFedAvg as AdaptiveFedAvg,
        FedDrift as FedDrift,
    )
    from umbel.algorithms.base import (
        Algorithm as Algorithm,
        Served as Served,
        Setup as Setup,
        State as State,
    )
    from umbel.checks import UsageError as UsageError
    from umbel.client.net import Net as Net
    from umbel.client.objectives import (
        BINARY as BINARY,
        CLASSIFICATION as CLASSIFICATION,
        REGRESSION as REGRESSION,
        Objective as Objective,
    )
    from umbel.client.optimizers import SGD as SGD, Adam as Adam
    from umbel.client.schedules import CosineRestarts as CosineRestarts, InverseTime as InverseTime
    from umbel.client.work import Gradient as Gradient, LocalTraining as LocalTraining
    from umbel.client.work.schemes import (
        Contrast as Contrast,
        ControlVariates as ControlVariates,
        DynamicPenalty as DynamicPenalty,
        HeadFirst as HeadFirst,
        MixedModel as MixedModel,
        PersonalModel as PersonalModel,
    )
    from umbel.data.federation import Federation as Federation
    from umbel.data.scenarios.base import Scenario as Scenario
    from umbel.data.sources import Sources as Sources
    from umbel.engines import (
        EngineSettings as EngineSettings,
        Sequential as Sequential,
        Vectorised as Vectorised,
    )
    from umbel.engines.own_training import OwnTraining as OwnTraining
    from umbel.engines.privacy import Privacy as Privacy
    from umbel.engines.replies.attacks import Attack as Attack
    from umbel.engines.replies.faults import Faults as Faults
    from umbel.engines.replies.guarded import QuorumError as QuorumError
    from umbel.engines.replies.validation import Limits as Limits
    from umbel.experiment.library import find_experiment as find_experiment
    from umbel.folder.execution import execute as execute
    from umbel.folder.run_folder import RunFolder as RunFolder
    from umbel.newcomers.assignment import Assignment as Assignment
    from umbel.report.cluster_plot import plot_clusters as plot_clusters
    from umbel.report.learning_curves import plot as plot, table as table
    from umbel.report.reporting import write_report as write_report
    from umbel.report.terminal.progress import progress as progress
    from umbel.result.row_encoder import RowEncoder as RowEncoder
    from umbel.result.run import (
        Experiment as Experiment,
        Result as Result,
        Run as Run,
        finish as finish,
        load as load,
        read as read,
        resume as resume,
        scenario as scenario,
    )
    from umbel.result.tables import Results as Results, results as results
    from umbel.run.participation import (
        Available as Available,
        Participation as Participation,
        Weighted as Weighted,
    )
    from umbel.run.personal import Personal as Personal
    from umbel.run.membership import Event as Event, Membership as Membership
    from umbel.run.time import Time as Time
    from umbel.run.records import Record as Record
    from umbel.server.aggregation import Averaging as Averaging
    from umbel.server.averaging_rules import (
        FedAdagrad as FedAdagrad,
        FedAdam as FedAdam,
        FedAvgM as FedAvgM,
        FedYogi as FedYogi,
    )
    from umbel.server.robust_rules import (
        FLAME as FLAME,
        CentredClipping as CentredClipping,
        FLTrust as FLTrust,
        GeometricMedian as GeometricMedian,
        Krum as Krum,
        Median as Median,
        MultiKrum as MultiKrum,
        NormBound as NormBound,
        TrimmedMean as TrimmedMean,
    )
    from umbel.server.cluster_count import (
        ClusterCount as ClusterCount,
        count_clusters as count_clusters,
    )

# Whoever needs little of the package, as the command line does for its help, loads little of it.
_HOMES = {
    "umbel.advice": ("Advice", "advise"),
    "umbel.server.aggregation": ("Averaging",),
    "umbel.server.averaging_rules": ("FedAdagrad", "FedAdam", "FedAvgM", "FedYogi"),
    "umbel.server.robust_rules": (
        "FLAME",
        "CentredClipping",
        "FLTrust",
        "GeometricMedian",
        "Krum",
        "Median",
        "MultiKrum",
        "NormBound",
        "TrimmedMean",
    ),
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
        "AdaptiveFedAvg",
        "FedDrift",
        "FedAvg",
        "FedEM",
        "FedLEASE",
        "FedProto",
        "FedCCFA",
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
    "umbel.engines.replies.attacks": ("Attack",),
    "umbel.engines.replies.faults": ("Faults",),
    "umbel.engines.replies.guarded": ("QuorumError",),
    "umbel.folder.execution": ("execute",),
    "umbel.run.participation": ("Available", "Participation", "Weighted"),
    "umbel.run.personal": ("Personal",),
    "umbel.run.membership": ("Event", "Membership"),
    "umbel.run.time": ("Time",),
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

__all__ = ["__version__", *(name for names in _HOMES.values() for name in names)]

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
