"""The requests that algorithms can make to clients: each verb is a typed flow of one request."""

from umbel.server.ask.choosing import (
    BestGradients,
    Scores,
    SummedBest,
    TrainedBest,
    TrainedJointly,
    best_gradients,
    joint_scores,
    train_best,
    train_best_summed,
    train_jointly,
)
from umbel.server.ask.comparing import (
    Features,
    Gradients,
    Judged,
    Losses,
    Principal,
    features,
    gradients,
    losses,
    model_scores,
    own_loss,
    principal_vectors,
)
from umbel.server.ask.context import Context, Sample
from umbel.server.ask.experts import Experts, train_experts
from umbel.server.ask.mixtures import (
    Memories,
    TrainedMixture,
    mixture_weights,
    train_mixture,
)
from umbel.server.ask.training import (
    Summed,
    Trained,
    TrainedWithGradient,
    TrainedWithMemory,
    train,
    train_personal,
    train_summed,
    train_with_gradient,
)
