"""Checks of the values that a method returns, used by runs and by `umbel.testing`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from umbel.algorithms.base import Assigned, Served, Setup, State
from umbel.checks import check, with_article
from umbel.client.net import Net
from umbel.engines.replies.validation import rounding
from umbel.flow import Rows, check_numbers
from umbel.run.state_fields import can_hold, within
from umbel.server.ask import Context

HELD = (
    "what a checkpoint holds: a tensor, a tuple of tensors, a number or a text, a tuple of "
    "numbers or texts, or None, and no type derived from these; give each tensor a field of its "
    "own, and turn NumPy's values into tensors or numbers, sparse tensors into dense ones, other "
    "complex numbers into complex64"
)
"""The allowed types of a field of a state, with advice for others."""


@dataclass(frozen=True)
class Expected:
    """The network and the federation that the state of a run must fit."""

    width: int  # P, the number of values in a model
    dtype: torch.dtype  # of these
    num_clients: int  # M


def as_state(
    state: Any,
    known: Setup | Context,
    dtype: torch.dtype,
    before: State | None = None,
    function: str = "",
) -> Any:
    """Check and return the state that a function of a method has returned: `init` or `round`.

    `before` is the state that the round was given. Raises `UsageError` for an invalid state.
    """
    function = function or ("init" if isinstance(known, Setup) else "round")
    _check_type(state, State, function)
    if before is not None:
        _check_same_kind(state, before)
    expected = Expected(known.layout.num_values, dtype, known.num_clients)
    _check_state(state, expected, f"the state that {function} returns")
    if function == "round":  # for initial values, the check of the net gives a better message
        _check_finite(state.models, "models of the state that round returns")
    _check_can_be_held(state, function)
    return state


def as_given(state: Any, first: State, num_clients: int) -> State:
    """Check and return the state to resume from; `first` is the method's first state.

    Raises `UsageError` for the state of another method, network or federation.
    """
    # After its trial rounds, `Restarts` continues with a state of the class within the first state.
    kinds = (first, *within(first)[1])
    like = next((kind for kind in kinds if isinstance(state, type(kind))), None)
    names = " or ".join(dict.fromkeys(type(kind).__name__ for kind in kinds))
    expected = f"the {names} of this run's method: give a state that its rounds yielded"
    check(like is not None, "state", _kind(state), expected)
    assert like is not None
    fitting = Expected(first.models.shape[1], first.models.dtype, num_clients)
    _check_state(state, fitting, "the given state")
    # Inner states, such as those of `Restarts`, must fit an inner state of the method's first one.
    for other in within(state)[1]:
        for inside in within(like)[1][:1]:
            as_given(other, inside, num_clients)
    given: State = state
    return given


def check_judged(state: Any, net: Net) -> None:
    """Raise `UsageError` unless the models of a state are of this network.

    Labels are not checked: newcomers may judge the models of other clients.
    """
    whose = "a state: give what the rounds of a run yielded"
    check(isinstance(state, State), "state", _kind(state), whose)
    _check_table(state.models, net.layout.num_values, net.dtype, "models of the given state")


def as_served(served: Any, state: State, ctx: Context) -> Served:
    """Check and return the result of `serve`. Raises `UsageError` for a wrong form."""
    _check_type(served, Served, "serve")
    count = len(ctx.cohort)
    for name in ("models", "adapted_from"):
        rows = getattr(served, name)
        if rows is not None or name == "models":
            _check_type(rows, Rows, f"{name} that serve returns")
            _check_models(rows.table, state.models.dtype, f"{name} that serve returns")
            name = f"{name}.index that serve returns"
            _check_numbers(rows.index, name, count, len(rows.table), "rows of its table")
    name = "labels that serve returns"
    _check_numbers(served.labels, name, count, state.labels_end, "clusters")
    if served.weights is not None:
        _check_weights(served.weights, (count, len(served.models.table)))
    checked: Served = served
    return checked


def as_assigned(assigned: Any, state: State, ctx: Context) -> Assigned:
    """Check and return the result of `assign`. Raises `UsageError` for a wrong form."""
    _check_type(assigned, Assigned, "assign")
    clients, scores = assigned.clients, assigned.scores
    name = "clients that assign returns"
    check(isinstance(clients, Tensor), name, _kind(clients), "a tensor of clients of the cohort")
    asked = bool(torch.isin(clients, ctx.cohort).all()) and len(clients.unique()) == len(clients)
    check(asked, name, clients.tolist(), "clients of the cohort, none of them twice")
    floating = isinstance(scores, Tensor) and scores.is_floating_point()
    name = "scores that assign returns"
    check(floating, name, _kind(scores), "a tensor of floating-point numbers")
    fits = scores.dim() == 2 and len(scores) == len(clients)
    expected = f"({len(clients)}, K), a row for each client that answered"
    check(fits, f"{name}: shape", tuple(scores.shape), expected)
    check_columns(scores, state.labels)
    check(not scores.isnan().any(), name, "NaN", "a number for each client and cluster")
    checked: Assigned = assigned
    return checked


def check_columns(scores: Tensor, labels: Tensor) -> None:
    """Raise `UsageError` unless scores (N, K) have a column for each of these clusters."""
    fewest, (rows, columns) = int(labels.max()) + 1, scores.shape
    expected = f"({rows}, {fewest}) or wider: a column for each cluster"
    check(columns >= fewest, "scores that assign returns: shape", (rows, columns), expected)


def _check_state(state: State, expected: Expected, which: str) -> None:
    """Raise `UsageError` unless models and labels are as expected."""
    _check_table(state.models, expected.width, expected.dtype, f"models of {which}")
    name, count = f"labels of {which}", expected.num_clients
    _check_numbers(state.labels, name, count, state.labels_end, "clusters")


def _check_table(models: Any, width: int, dtype: torch.dtype, name: str) -> None:
    _check_models(models, dtype, name)
    fits = models.dim() == 2 and len(models) > 0 and models.shape[1] == width
    check(fits, f"{name}: shape", tuple(models.shape), f"(K, {width}), a row for each model")


def _check_models(models: Any, dtype: torch.dtype, name: str) -> None:
    floating = isinstance(models, Tensor) and models.is_floating_point()
    check(floating, name, _kind(models), "a tensor of floating-point numbers")
    expected = f"{dtype}, the type of the network's values"
    check(models.dtype == dtype, name, models.dtype, expected)


def _check_finite(models: Tensor, name: str) -> None:
    """Refuse non-finite models, which would replace the last usable ones in the checkpoint."""
    # Two numbers instead of a table of True and False as large as the models.
    edges = models.aminmax()
    for row in (edges.min, edges.max):
        if not row.isfinite():
            number = int((~models.isfinite()).any(1).nonzero()[0, 0])
            expected = "a finite number; a mean over no client is not finite"
            check(False, f"{name}: model {number}", float(row), expected)


def _check_same_kind(state: State, before: State) -> None:
    """Raise `UsageError` for a state of another class than the one that checkpoints are read as."""
    kinds = (before, *within(before)[1])  # a state within it, as when `Restarts` ends its trial
    names = " or ".join(dict.fromkeys(type(kind).__name__ for kind in kinds))
    expected = f"the {names} that it was given: let fields that come later be empty at first"
    fine = type(state) in map(type, kinds)
    check(fine, "the state that round returns", type(state).__name__, expected)
    if type(state) is type(before):
        for after, inside in zip(within(state)[1], within(before)[1], strict=False):
            _check_same_kind(after, inside)


def _check_can_be_held(state: State, function: str) -> None:
    """Raise `UsageError` for a field that a checkpoint would not give back unchanged."""
    place, others = within(state)
    for member in fields(state):
        value = getattr(state, member.name)
        if member.name != place and not can_hold(value):
            name = f"{member.name} of the state that {function} returns"
            several = value if isinstance(value, tuple | list) else ()
            inside = ", ".join(dict.fromkeys(map(_kind, several)))
            layout = getattr(value, "layout", torch.strided)
            sparse = "" if layout == torch.strided else f" ({layout})"
            said = _kind(value) + sparse + (f" of {inside}" if inside else "")
            check(False, name, said, HELD)
    for other in others:
        _check_can_be_held(other, function)


def _check_type(value: object, expected: type, name: str) -> None:
    wanted = f"{with_article(expected.__name__)}: give it to `return`"
    check(isinstance(value, expected), name, _kind(value), wanted)


def _check_numbers(values: Any, name: str, count: int, end: int, of: str) -> None:
    """Check (count,) int64 numbers in 0 to `end` - 1."""
    shape = tuple(values.shape) if isinstance(values, Tensor) else (count,)
    check(shape == (count,), f"{name}: shape", shape, f"({count},), one for each client")
    check_numbers(values, name, end, of)


def _check_weights(weights: Any, shape: tuple[int, int]) -> None:
    name = "weights that serve returns"
    floating = isinstance(weights, Tensor) and weights.is_floating_point()
    check(floating, name, _kind(weights), "a tensor of floating-point numbers")
    expected = f"{shape}, a row for each client and a column for each row of models.table"
    check(tuple(weights.shape) == shape, f"{name}: shape", tuple(weights.shape), expected)
    smallest = float(weights.min()) if weights.numel() else 0.0
    check(smallest >= 0, name, smallest, "0 or more")
    sums = weights.double().sum(1)
    off = (sums - 1).abs() > rounding(weights.dtype)
    if off.any():
        check(False, f"{name}: sum for a client", float(sums[off][0]), "1")


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
