"""umbel: clustered federated learning.

federation = umbel.scenario("rotated-digits", clients=20)
net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
for state, record in umbel.Run(umbel.FLACC(), federation, net, seed=0).rounds(60):
    print(record.round, record.accuracy, record.ari)
"""

from pathlib import Path

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
from umbel.config import read, structured
from umbel.courses import plot, table
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.engines import EngineSettings, Sequential, Vectorised
from umbel.engines.wrappers import Faults, QuorumError
from umbel.execution import execute, load
from umbel.experiment import Experiment, Run
from umbel.folder import RunFolder
from umbel.net import Net
from umbel.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
from umbel.optimizers import SGD, Adam
from umbel.records import Record
from umbel.reporting import write_report
from umbel.result import Assignment, Result
from umbel.saving import finish, resume
from umbel.shipped import find_experiment
from umbel.validation import Limits
from umbel.version import __version__
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
    "resume",
    "scenario",
    "table",
    "write_report",
]


def scenario(
    name: str, *, seed: int = 0, data_dir: Path | str | None = None, **settings: object
) -> Federation:
    """The federation of a named scenario, with some of its settings changed.

    `umbel.scenario("rotated-mnist", clients=40, data_dir="data")`. Raises `UsageError` for a name
    or a setting that is not known, and where the data can't be found.
    """
    recipe: Scenario = structured({"name": name, **settings}, Scenario)
    return recipe.build(seed, Sources.default(None if data_dir is None else Path(data_dir)))
