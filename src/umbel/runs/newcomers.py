"""Clusters of clients that had no part in a run: by the method's rule, or without labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.client.batches import Batch
from umbel.data.federation import Federation
from umbel.runs import descriptions
from umbel.runs.assignment import Assignment
from umbel.runs.descriptions import Descriptions
from umbel.runs.run import Run
from umbel.runs.saving import reopened

if TYPE_CHECKING:
    from umbel.runs.result import Result

UNLABELLED = "1 - how likely by its inputs"
"""What a score is where newcomers have no labels."""


def assign(result: Result, newcomers: Federation) -> Assignment:
    """Find the cluster of each newcomer by the method's own rule."""
    run = _run_of(result, newcomers)
    assigned = run.assign(result.state, len(result.records))
    labels = torch.tensor([entry.label for entry in result.made_for])
    scores, by_loss = assigned.scores[:, labels], "loss" in assigned.meaning
    with result.folder.putting_right():
        kept, clusters = result.folder.models, range(result.num_clusters)
        models = torch.stack([kept.theta(cluster, result.net) for cluster in clusters])
    told = [
        _confidence(result, models, newcomers, client, int(best))
        for client, best in zip(assigned.clients.tolist(), scores.argmin(1), strict=True)
        if by_loss
    ]
    names = tuple(newcomers.names[client] for client in assigned.clients.tolist())
    return Assignment(names, scores, assigned.meaning, torch.tensor(told) if by_loss else None)


def assign_unlabelled(
    result: Result,
    newcomers: Federation,
    clients: Federation | None,
    data_dir: Path | str | None,
) -> Assignment:
    """Find the cluster of each newcomer by what its inputs are like."""
    run = _run_of(result, newcomers)
    known = _of_the_run(result, clients, data_dir)
    new = _described(result, run)
    clusters = np.array(list(result.clusters.values()))[known.clients.numpy()]
    likely = torch.from_numpy(
        descriptions.placed(
            known.table.numpy(),
            clusters,
            new.table.numpy(),
            result.num_clusters,
            result.experiment.seed,
        )
    )
    names = tuple(newcomers.names[client] for client in new.clients.tolist())
    return Assignment(names, 1 - likely, UNLABELLED, likely.max(1).values)


def _of_the_run(
    result: Result, clients: Federation | None, data_dir: Path | str | None
) -> Descriptions:
    """What the run's own clients are like: as it was kept, or from their data."""
    folder = result.folder.path
    kept = descriptions.load(folder)
    if kept is not None:
        return kept
    if clients is None:
        try:
            clients = reopened(result.folder, None, data_dir).federation
        except UsageError as error:
            how = "give the run's federation: result.assign(..., labelled=False, clients=...)"
            raise UsageError(f"the run's own inputs are needed once: {error}; or {how}") from None
    names = list(result.clusters)
    same = list(clients.names) == names
    check(same, "clients", f"{clients.num_clients} clients", "those of the run, by their names")
    found = _described(result, _run_of(result, clients))
    descriptions.save(folder, found)
    return found


def _described(result: Result, run: Run) -> Descriptions:
    made_for = result.made_for[0]
    return descriptions.described(run, result.net, result.experiment.seed, made_for.num_outputs)


def _run_of(result: Result, federation: Federation) -> Run:
    """A run of these clients, whose models are those of the result."""
    experiment = result.runnable
    _check_alike(result, federation)
    run: Run = Run(experiment.algorithm, federation, result.net, seed=experiment.seed)
    return run


def _check_alike(result: Result, newcomers: Federation) -> None:
    """Raise `UsageError` where newcomers' examples are not of the run's kind."""
    made_for = result.made_for[0]
    # Newcomers are alike: what does not fit in the first, fits in none.
    first, shape = f"client {newcomers.names[0]}", newcomers.input_shape
    expected = f"{made_for.input_shape}, the run's"
    check(shape == made_for.input_shape, f"{first}: shape of an input", shape, expected)
    kinds = ("whole numbers, as class labels are", "floating-point numbers")
    given, wanted = (kinds[n is None] for n in (newcomers.num_classes, made_for.num_classes))
    check(given == wanted, f"{first}: y", given, f"{wanted}, as in the run")
    too_many = (newcomers.num_classes or 0) > (made_for.num_classes or 0)
    expected = f"at most {made_for.num_outputs}, as in the run"
    check(not too_many, "number of classes", newcomers.num_classes, expected)


def _confidence(
    result: Result, models: Tensor, newcomers: Federation, client: int, best: int
) -> float:
    """How likely the best model is truly better than the one that comes nearest, on its examples.

    It is that of a normal mean: the losses of one model less those of the other, example by
    example. With one example, or one cluster, nothing is known, or all.
    """
    from scipy.stats import norm

    if len(models) == 1:
        return 1.0
    x, y = newcomers.train.typed(client, result.net.dtype)
    batch = Batch(x, y)
    losses = torch.stack([result.net.losses(theta, batch).double() for theta in models])
    if len(x) < 2:
        return 1 / len(models)
    gaps = losses - losses[best]
    errors = gaps.std(1) / len(x) ** 0.5
    rivals = [k for k in range(len(models)) if k != best]
    sure = [float(norm.cdf(float(gaps[k].mean()) / max(float(errors[k]), 1e-12))) for k in rivals]
    return min(sure)
