"""The computations of clients, one idea per file."""

from collections.abc import Mapping

from umbel.client.work.anchored_training import AnchoredTraining
from umbel.client.work.base import MEMORY, Batching, Cost, Footprint, Promise, Work
from umbel.client.work.best_shares import BestShares
from umbel.client.work.choose_by_loss import ChooseByLoss, Judge
from umbel.client.work.choose_jointly import ChooseJointly, JointScore
from umbel.client.work.description import Description
from umbel.client.work.evaluation import Evaluation
from umbel.client.work.feature import Feature
from umbel.client.work.gradient import Gradient
from umbel.client.work.local_training import LocalTraining
from umbel.client.work.mean_loss import MeanLoss
from umbel.client.work.meta_training import MetaTraining
from umbel.client.work.mixture_evaluation import MixtureEvaluation
from umbel.client.work.mixture_training import MixtureTraining
from umbel.client.work.mixture_weights import MixtureWeights
from umbel.client.work.moreau_training import MoreauTraining
from umbel.client.work.personal_evaluation import PersonalEvaluation
from umbel.client.work.personal_training import PersonalTraining
from umbel.client.work.principal_vectors import PrincipalVectors
from umbel.client.work.prototype_training import PrototypeTraining as PrototypeTraining
from umbel.client.work.quantised import Quantised
from umbel.client.work.routed import Routed
from umbel.client.work.shared_training import SharedTraining, joined, parted
from umbel.client.work.train_and_gradient import TrainAndGradient

WORKS: Mapping[str, type[Work]] = {
    "anchored-training": AnchoredTraining,
    "best-shares": BestShares,
    "choose-by-loss": ChooseByLoss,
    "choose-jointly": ChooseJointly,
    "description": Description,
    "evaluation": Evaluation,
    "feature": Feature,
    "gradient": Gradient,
    "joint-score": JointScore,
    "local-training": LocalTraining,
    "mean-loss": MeanLoss,
    "meta-training": MetaTraining,
    "mixture-evaluation": MixtureEvaluation,
    "mixture-training": MixtureTraining,
    "mixture-weights": MixtureWeights,
    "moreau-training": MoreauTraining,
    "personal-evaluation": PersonalEvaluation,
    "personal-training": PersonalTraining,
    "principal-vectors": PrincipalVectors,
    "prototype-training": PrototypeTraining,
    "quantised": Quantised,
    "routed": Routed,
    "shared-training": SharedTraining,
    "train-and-gradient": TrainAndGradient,
}
"""Kinds of work by their names in requests over a network."""
