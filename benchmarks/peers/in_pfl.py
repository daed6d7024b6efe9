"""Rounds of pfl-research's FedAvg with PyTorch.

Users' examples are tensors, as in its benchmarks, and their mini-batches are the same in each
epoch. The test examples of all clients are evaluated together.
"""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.modules import started
from benchmarks.peers.tasks import EVALUATE_EVERY, EVALUATED_AT_ONCE, ROUNDS, Task
from benchmarks.peers.watch import Watch


def loss(self: nn.Module, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:  # noqa: A002
    """The loss that pfl minimises."""
    self.train(not eval)
    return cross_entropy(self(x), y)


@torch.no_grad()
def metrics(self: nn.Module, x: Tensor, y: Tensor, eval: bool = True) -> Any:  # noqa: A002
    """What pfl evaluates."""
    self.train(not eval)
    outputs = self(x)
    right = float((outputs.argmax(1) == y).sum())
    total = float(cross_entropy(outputs, y, reduction="sum"))
    return {"loss": Weighted(total, len(y)), "accuracy": Weighted(right, len(y))}


class Timed(TrainingProcessCallback):  # type: ignore[misc]
    """Evaluates every other round, and writes down the times."""

    def __init__(self, watch: Watch, test: Dataset) -> None:
        self.watch, self.test = watch, test
        self.settings = NNEvalHyperParams(local_batch_size=EVALUATED_AT_ONCE)

    def after_central_iteration(
        self,
        aggregate_metrics: Any,  # noqa: ARG002
        model: Any,
        *,
        central_iteration: int,
    ) -> tuple[bool, Any]:
        accuracy = None
        if (central_iteration + 1) % EVALUATE_EVERY == 0:
            found = dict(model.evaluate(self.test, str, self.settings))
            accuracy = float(found["accuracy"].overall_value)
        self.watch.lap(accuracy)
        return False, Metrics()


def run(task: Task, file: Path, watch: Watch) -> None:
    """All rounds; the last accuracy is that of all test examples."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    train, test = task.clients_of(file)
    users = {n: [torch.from_numpy(part) for part in shard] for n, shard in enumerate(train)}
    sampler = get_user_sampler("minimize_reuse", list(users))
    data = FederatedDataset.from_slices(users, sampler)
    every = [torch.from_numpy(np.concatenate(part)) for part in zip(*test, strict=True)]
    module: Any = started(task.network, 0)
    module.loss, module.metrics = MethodType(loss, module), MethodType(metrics, module)
    central = torch.optim.SGD(module.parameters(), 1.0)
    model = PyTorchModel(module, torch.optim.SGD, central)
    backend = SimulatedBackend(data, data, [WeightByUser()])
    # The first round alone evaluates users, too, and is not timed.
    settings = NNAlgorithmParams(
        central_num_iterations=ROUNDS,
        evaluation_frequency=ROUNDS,
        train_cohort_size=task.cohort,
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_learning_rate=task.lr,
        local_num_epochs=task.epochs,
        local_batch_size=task.batch,
    )
    evaluation = NNEvalHyperParams(local_batch_size=EVALUATED_AT_ONCE)
    callbacks = [Timed(watch, Dataset(every))]
    watch.start()
    FederatedAveraging().run(settings, backend, model, local, evaluation, callbacks)
