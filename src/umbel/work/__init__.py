"""What clients compute, one idea a file."""

from umbel.work.base import MEMORY, Promise, Work
from umbel.work.choose_by_loss import ChooseByLoss
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

__all__ = [
    "MEMORY",
    "ChooseByLoss",
    "ChooseJointly",
    "Evaluation",
    "Feature",
    "Gradient",
    "JointScore",
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
