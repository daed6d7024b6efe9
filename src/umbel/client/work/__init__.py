"""The computations of clients, one idea per file."""

import re
from collections.abc import Mapping

from umbel.client.work.aligned_training import AlignedTraining
from umbel.client.work.anchored_training import AnchoredTraining
from umbel.client.work.base import DURING, MEMORY, Batching, Cost, Footprint, Promise, Work
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
from umbel.client.work.model_scores import ModelScores
from umbel.client.work.moreau_training import MoreauTraining
from umbel.client.work.personal_evaluation import PersonalEvaluation
from umbel.client.work.personal_training import PersonalTraining
from umbel.client.work.principal_vectors import PrincipalVectors
from umbel.client.work.prototype_training import PrototypeTraining
from umbel.client.work.quantised import Quantised
from umbel.client.work.routed import Routed
from umbel.client.work.shared_training import SharedTraining, joined, parted
from umbel.client.work.train_and_gradient import TrainAndGradient

WORKS: Mapping[str, type[Work]] = {
    re.sub(r"(?<=.)(?=[A-Z])", "-", kind.__name__).lower(): kind
    for kind in list(vars().values())
    if isinstance(kind, type) and issubclass(kind, Work) and kind is not Work
}
"""Kinds of work by their names in requests over a network."""
