"""The methods, one file each, by the names that experiments use for them."""

from typing import Any

from umbel.algorithms.adaptive_fedavg import AdaptiveFedAvg
from umbel.algorithms.base import Algorithm
from umbel.algorithms.cfl_gp import CFLGP
from umbel.algorithms.clove import CLoVE
from umbel.algorithms.fedavg import FedAvg
from umbel.algorithms.fedccfa import FedCCFA
from umbel.algorithms.feddrift import FedDrift
from umbel.algorithms.fedem import FedEM
from umbel.algorithms.fedgroup import FedGroup
from umbel.algorithms.fedlease import FedLEASE
from umbel.algorithms.fedproto import FedProto
from umbel.algorithms.fedprox import FedProx
from umbel.algorithms.fedrc import FedRC
from umbel.algorithms.fedsoft import FedSoft
from umbel.algorithms.fesem import FeSEM
from umbel.algorithms.fixed_clusters import FixedClusters
from umbel.algorithms.flacc import FLACC
from umbel.algorithms.flhc import FLHC
from umbel.algorithms.ifca import IFCA
from umbel.algorithms.joint import Joint
from umbel.algorithms.lcfl import LCFL
from umbel.algorithms.local_only import LocalOnly
from umbel.algorithms.oracle import Oracle
from umbel.algorithms.pacfl import PACFL
from umbel.algorithms.per_fedavg import PerFedAvg
from umbel.algorithms.pfedme import PFedMe
from umbel.algorithms.random_clusters import RandomClusters
from umbel.algorithms.remembered import Remembered
from umbel.algorithms.restarts import Restarts
from umbel.algorithms.sattler import Sattler
from umbel.algorithms.sharing import Sharing
from umbel.algorithms.sr_fca import SRFCA
from umbel.algorithms.stocfl import StoCFL
from umbel.algorithms.watched import Watched as Watched
from umbel.client.layout import HEAD, NORMS
from umbel.client.work import LocalTraining
from umbel.client.work.schemes import (
    Contrast,
    ControlVariates,
    DynamicPenalty,
    HeadFirst,
    MixedModel,
    PersonalModel,
)
from umbel.server.aggregation import RULES, Averaging
from umbel.server.averaging_rules import AveragingRule

ALGORITHMS: dict[str, type[Algorithm[Any]] | Algorithm[Any]] = {
    "local-only": LocalOnly,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    **{
        name: FedAvg(averaging=Averaging(rule=rule()))
        for name, rule in RULES.items()
        if rule.step is not AveragingRule.step and not rule.needs_rows
    },
    "scaffold": Remembered(FedAvg(LocalTraining(scheme=ControlVariates()), Averaging("equal"))),
    "feddyn": Remembered(FedAvg(LocalTraining(scheme=DynamicPenalty()), Averaging("equal"))),
    "adaptive-fedavg": AdaptiveFedAvg,
    "moon": Remembered(FedAvg(LocalTraining(scheme=Contrast()))),
    "ifca": IFCA,
    "flacc": FLACC,
    "cfl-gp": CFLGP,
    "lcfl": LCFL,
    "joint": Joint,
    "clove": CLoVE,
    "fesem": FeSEM,
    "oracle": Oracle,
    "random-clusters": RandomClusters,
    "fixed-clusters": FixedClusters,
    "sattler": Sattler,
    "fl-hc": FLHC,
    "pacfl": PACFL,
    "fedgroup": FedGroup,
    "stocfl": StoCFL,
    "sr-fca": SRFCA,
    "feddrift": FedDrift,
    "feddrift-eager": FedDrift(eager=True),
    "fedem": FedEM,
    "fedrc": FedRC,
    "fedsoft": FedSoft,
    "ditto": Remembered(FedAvg(LocalTraining(scheme=PersonalModel()))),
    "apfl": Remembered(FedAvg(LocalTraining(scheme=MixedModel()), Averaging("equal"))),
    "fedper": Sharing(FedAvg(), kept=(HEAD,)),
    "fedrep": Sharing(FedAvg(LocalTraining(scheme=HeadFirst()), Averaging("equal")), kept=(HEAD,)),
    "fedbabu": FedAvg(LocalTraining(scheme=HeadFirst(head_epochs=0)), Averaging("equal")),
    "fedbn": Sharing(FedAvg(averaging=Averaging("equal")), kept=(NORMS,)),
    "fedproto": FedProto,
    "fedccfa": FedCCFA,
    "pfedme": PFedMe,
    "per-fedavg": PerFedAvg,
    "fedlease": FedLEASE,
}
