"""What clients compute, one idea a file."""

from collections.abc import Mapping

from umbel.work.base import MEMORY, Promise, Work
from umbel.work.choose_by_loss import ChooseByLoss, Judge
from umbel.work.choose_jointly import ChooseJointly, JointScore
from umbel.work.evaluation import Evaluation
from umbel.work.feature import Feature
from umbel.work.gradient import Gradient
from umbel.work.local_training import LocalTraining
from umbel.work.mean_loss import MeanLoss
from umbel.work.meta_training import MetaTraining
from umbel.work.mixture_evaluation import MixtureEvaluation
from umbel.work.mixture_training import MixtureTraining
from umbel.work.mixture_weights import MixtureWeights
from umbel.work.moreau_training import MoreauTraining
from umbel.work.principal_vectors import PrincipalVectors
from umbel.work.quantised import Quantised
from umbel.work.train_and_gradient import TrainAndGradient

WORKS: Mapping[str, type[Work]] = {
    "choose-by-loss": ChooseByLoss,
    "choose-jointly": ChooseJointly,
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
    "principal-vectors": PrincipalVectors,
    "quantised": Quantised,
    "train-and-gradient": TrainAndGradient,
}
"""What requests over a network call them."""

__all__ = [
    "MEMORY",
    "WORKS",
    "ChooseByLoss",
    "ChooseJointly",
    "Evaluation",
    "Feature",
    "Gradient",
    "JointScore",
    "Judge",
    "LocalTraining",
    "MeanLoss",
    "MetaTraining",
    "MixtureEvaluation",
    "MixtureTraining",
    "MixtureWeights",
    "MoreauTraining",
    "PrincipalVectors",
    "Promise",
    "Quantised",
    "TrainAndGradient",
    "Work",
]
