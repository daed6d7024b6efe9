"""Metrics in addition to loss and accuracy, computed at the client."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from math import exp, inf, log, nan
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import UsageError, check, kind_of, nearest
from umbel.client.batches import IGNORED
from umbel.client.imports import imported
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective, alike
from umbel.summary import in_short

LARGEST_METRIC = 1e12
"""Largest magnitude of a metric that has no bound of its own."""


@dataclass(frozen=True)
class Metric:
    """A measure of the quality of predictions for targets (n, ...).

    Predictions of classes are log-odds (n, C); others have the form of the targets.
    """

    of: Callable[[NDArray[Any], NDArray[Any]], float]
    low: float = -LARGEST_METRIC
    high: float = LARGEST_METRIC
    task: Literal["classes", "numbers", "any"] = "any"

    __repr__ = in_short


@dataclass(frozen=True)
class Predictions:
    """A model's predictions for a client's examples, and the true values."""

    targets: NDArray[Any]  # (n,) labels, or (n, ...) answers or numbers
    values: NDArray[np.float64]  # (n, C) class probabilities, or values in the form of the targets
    binary: bool = False  # whether the values are probabilities of yes
    # log-odds in the form of the values: probabilities near 1 can't be told apart
    odds: NDArray[np.float64] | None = None

    __repr__ = in_short

    @property
    def of_classes(self) -> list[tuple[NDArray[Any], NDArray[np.float64]]]:
        """Labels (n,) and log-odds (n, C): one pair, or one for each answer of an example."""
        assert self.odds is not None
        if not self.binary:
            return [(self.targets, self.odds)]
        answers, yes = (array.reshape(len(array), -1).T for array in (self.targets, self.odds))
        odds = (np.stack([-z, z], axis=1) for z in yes)
        return [((y > 0.5).astype(np.int64), z) for y, z in zip(answers, odds, strict=True)]

    @property
    def of_numbers(self) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Targets and values, both (n, d)."""
        return self.targets.reshape(len(self.targets), -1), self.values.reshape(
            len(self.values), -1
        )


def predictions(objective: Objective, outputs: Tensor, y: Tensor) -> Predictions:
    """Predictions from outputs (n, ...) for targets (n, ...), as the objective interprets them.

    For classes they are probabilities (n, C); if examples have many labels, each label that counts
    is a row. For an objective of your own they are the unchanged outputs.
    """
    outputs, y = outputs.detach().cpu().double(), y.detach().cpu()
    if objective == CLASSIFICATION:
        logits, labels = outputs.movedim(1, -1).flatten(0, -2), y.flatten()
        counts = labels != IGNORED
        logits = logits[counts]
        odds = _log_odds(logits).numpy()
        return Predictions(labels[counts].numpy(), logits.softmax(1).numpy(), odds=odds)
    if objective == BINARY:
        logits = alike(outputs, y)
        return Predictions(y.numpy(), logits.sigmoid().numpy(), binary=True, odds=logits.numpy())
    values = alike(outputs, y) if objective == REGRESSION else outputs
    return Predictions(y.numpy(), values.numpy())


def _log_odds(logits: Tensor) -> Tensor:
    """(n, C) log of p / (1 - p) of each class, precise where p is close to 1, too.

    The highest are those of the highest logits, and equal if these are equal.
    """
    highest = logits.amax(1, keepdim=True)
    others = logits.scatter(1, logits.argmax(1, keepdim=True), -inf).logsumexp(1, keepdim=True)
    logs = logits.log_softmax(1)  # p is at most 1/2 where it is not the highest
    odds, most = logs - torch.log1p(-logs.exp()), highest - others
    # Rounding must not make another class the predicted one.
    below = torch.nextafter(most, most.new_tensor(-inf))
    return torch.where(logits == highest, most, odds.minimum(below))


def measured(names: Sequence[str], found: Predictions) -> dict[str, Tensor]:
    """Each metric (), NaN if it is not defined or the outputs are not finite."""
    finite = bool(np.isfinite(found.values).all()) and len(found.targets) > 0
    values = {name: _value(name, found) if finite else nan for name in names}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def metric(name: str) -> Metric:
    """The metric of this name; for your own, "module:function", without importing it."""
    if ":" in name:
        return Metric(_unknown)
    expected = f'a known metric or "module:function"; {nearest(name, METRICS)}'
    check(name in METRICS, "metrics", name, expected)
    return METRICS[name]


def short(name: str) -> str:
    """The short name of a metric; for your own, "module:function", the name of the function."""
    return name.rpartition(":")[2].rpartition(".")[2]


def check_metrics(names: Sequence[str], objective: Objective) -> None:
    """Raise `UsageError` unless these metrics can be computed for this objective."""
    tasks = {REGRESSION: "numbers", CLASSIFICATION: "classes", BINARY: "classes"}
    task = tasks.get(objective)
    for name in names:
        if ":" in name:
            check(callable(imported("metrics", name)), "metrics", name, "the name of a function")
        elif metric(name).task != task:
            fit = [f'"{known}"' for known, other in METRICS.items() if other.task == task]
            fit.append('your own as "module:function"')
            check(False, "metrics", name, f"one for these models: {' or '.join(fit)}")


def _value(name: str, found: Predictions) -> float:
    about = metric(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about undefined values, which are NaN
        if ":" in name:
            value = _own(name, found)
        elif about.task == "classes":
            parts = [about.of(*pair) for pair in found.of_classes]
            value = float(np.nanmean(parts)) if len(parts) > 1 else parts[0]
        else:
            value = about.of(*found.of_numbers)
    # An unusable number must not make the client lose its loss and accuracy.
    return min(max(value, about.low), about.high) if abs(value) < inf else nan


def _own(name: str, found: Predictions) -> float:
    """Raises `UsageError` if the function fails, without its message, which may show examples."""
    function = imported("metrics", name)
    try:
        signature(function).bind(found.targets, found.values)
    except ValueError:  # of functions in C, whose parameters nobody knows
        pass
    except TypeError as error:
        raise UsageError(f"metrics: {name!r} does not take (targets, predictions)") from error
    # The federation holds the targets, and other metrics of the client use both.
    given = found.targets.copy(), found.values.copy()
    try:
        value = function(*given)
    except Exception as error:
        what = f"{name!r} raised {type(error).__name__}{_place(error, function)}"
        raise UsageError(f"metrics: {what}") from error
    try:
        return float(value)
    except Exception as error:
        got = "None" if value is None else kind_of(value)
        raise UsageError(f"metrics: {name!r} gave {got}, which is no number") from error


def _place(error: Exception, function: Callable[..., Any]) -> str:
    """The line that raised the error: the last one in the function's file, or the last of all."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first one is the call here
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    own = [frame for frame in frames if frame.filename == file] or frames
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _unknown(targets: NDArray[Any], values: NDArray[Any]) -> float:  # noqa: ARG001
    return nan


def _log_loss(labels: NDArray[Any], odds: NDArray[Any]) -> float:
    # scikit-learn's takes probabilities, of which those of bad mistakes are 0.
    return float(np.logaddexp(0, -odds[np.arange(len(labels)), labels]).mean())


def _perplexity(labels: NDArray[Any], odds: NDArray[Any]) -> float:
    """The exponential of the mean cross-entropy: C for guesses among C, 1 for certainty."""
    return exp(min(_log_loss(labels, odds), log(LARGEST_METRIC)))


def _macro_f1(labels: NDArray[Any], odds: NDArray[Any]) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(labels, odds.argmax(1), average="macro", zero_division=0.0))


def _auroc(labels: NDArray[Any], odds: NDArray[Any]) -> float:
    """The area for two classes; for more, the mean over classes, each against the rest.

    The area is the Mann-Whitney statistic: among pairs of an example of the class and another
    example, the share of pairs in the right order. It is not defined for a class of no or all
    examples.
    """
    from scipy.stats import rankdata  # a hundred times faster than scikit-learn's curves

    ranks, areas = rankdata(odds, axis=0), []
    for label in [1] if odds.shape[1] == 2 else np.unique(labels).tolist():
        own = labels == label
        ours, others = int(own.sum()), int((~own).sum())
        if ours and others:
            above = ranks[own, label].sum() - ours * (ours + 1) / 2
            areas.append(above / (ours * others))
    return float(np.mean(areas)) if areas else nan


def _mae(targets: NDArray[Any], values: NDArray[Any]) -> float:
    from sklearn.metrics import mean_absolute_error

    return float(mean_absolute_error(targets, values))


def _r2(targets: NDArray[Any], values: NDArray[Any]) -> float:
    from sklearn.metrics import r2_score

    return float(r2_score(targets, values, force_finite=False))


METRICS: Mapping[str, Metric] = {
    "log-loss": Metric(_log_loss, 0.0, task="classes"),
    "perplexity": Metric(_perplexity, 1.0, task="classes"),
    "macro-f1": Metric(_macro_f1, 0.0, 1.0, task="classes"),
    "auroc": Metric(_auroc, 0.0, 1.0, task="classes"),
    "mae": Metric(_mae, 0.0, task="numbers"),
    "r2": Metric(_r2, high=1.0, task="numbers"),
}
"""Metrics by the names that experiments use."""
