"""Checks that outputs can be what the objective takes them for, by models of large weights.

A linear last layer grows with its weights; outputs that do not have a bound.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from math import inf

import torch
from torch import Tensor, nn

from umbel.client.batches import IGNORED, Batch
from umbel.client.net import Net
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION
from umbel.data.federation import Federation
from umbel.preflight.plain_pytorch import changed

log = logging.getLogger(__name__)

WEIGHT_FACTORS = (100, 300)
"""Weights are made larger by these; outputs without a bound then grow by 3 or more."""

GROWS = 1.5
"""Outputs that grow by less have a bound."""

NARROW = 2.0
"""Logits in a range of this width or less tell classes apart by a factor of e^2 at most."""

PAIR = 2
"""Examples that go through a network at once."""

SLACK = 0.01
"""Targets may be beyond the outputs' range by this share of its width."""


def warn_of_outputs(net: Net, federation: Federation, some: Batch) -> None:
    """Warn of outputs that are squashed twice, can't reach the targets, or have no gradient.

    Networks that fail with other models than those of a run can't be tried.
    """
    with suppress(Exception):
        _warn_of_outputs(net, federation, some)


def _warn_of_outputs(net: Net, federation: Federation, some: Batch) -> None:
    if net.objective not in (CLASSIFICATION, BINARY, REGRESSION):
        return
    if not bool((some.y != IGNORED).any()):
        return
    models = [changed(net, net.new(seed)) for seed in (0, 1)]
    pairs = [
        Batch(*pair)
        for pair in zip(torch.split(some.x, PAIR), torch.split(some.y, PAIR), strict=True)
    ]
    whole = [pair for pair in pairs if len(pair.x) == PAIR] or pairs
    if not any(bool(net.gradient(theta, pair)[0].any()) for theta in models for pair in whole):
        log.warning(
            "every gradient of %d new models is 0, so that nothing is trained: look for round, "
            "sign, floor or a comparison in forward or in the objective",
            len(models),
        )
        return
    low, high = _range(net, models, some.x)
    if net.objective == REGRESSION:
        _warn_of_targets(net, models[0], some.x, federation.train.y, low, high)
    elif high - low <= NARROW or (net.objective == BINARY and (low >= 0 or high <= 0)):
        outputs = _outputs(net, models[0], some.x)
        sums = outputs.sum(1) if outputs.dim() > 1 else outputs
        many = outputs.dim() > 1 and outputs.shape[1] > 1
        rows = many and low >= 0 and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
        log.warning(
            "the network's outputs are always %s, as %s makes them, but the objective takes "
            "logits and squashes them itself: end the network with the layer before",
            "probabilities that sum to 1" if rows else f"in {_interval(low, high)}",
            _last(net, models[0], some.x),
        )


def _outputs(net: Net, theta: Tensor, x: Tensor) -> Tensor:
    """The outputs, two examples at a time, as memory may have no room for more."""
    return torch.cat([net.outputs(theta, pair).detach() for pair in torch.split(x, PAIR)])


def _range(net: Net, models: list[Tensor], x: Tensor) -> tuple[float, float]:
    """Return the smallest and largest outputs of all models; infinite without a bound."""
    cut, ends = net.layout.num_weights, []
    for factor in WEIGHT_FACTORS:
        large = [torch.cat([theta[:cut] * factor, theta[cut:]]) for theta in models]
        try:
            outputs = torch.stack([_outputs(net, theta, x) for theta in large]).double()
        except Exception:  # forward may have bounds for its values, which training may respect
            return -inf, inf
        outputs = outputs[~outputs.isnan()]
        if not len(outputs):
            return -inf, inf
        ends.append((float(outputs.min()), float(outputs.max())))
    (low, high), (lower, higher) = ends
    return (
        min(low, lower) if max(-lower, 0) <= GROWS * max(-low, 0) else -inf,
        max(high, higher) if max(higher, 0) <= GROWS * max(high, 0) else inf,
    )


def _warn_of_targets(
    net: Net, theta: Tensor, x: Tensor, y: Tensor, low: float, high: float
) -> None:
    slack = SLACK * (high - low if high - low < inf else 1.0)
    known = y[y.isfinite()]
    beyond = (known < low - slack) | (known > high + slack)
    if not beyond.any():
        return
    log.warning(
        "the network's outputs are always in %s, as %s makes them, and %.0f%% of the targets are "
        "not, which go from %.3g to %.3g: end the network with the layer before, or scale y",
        _interval(low, high),
        _last(net, theta, x),
        100 * float(beyond.double().mean()),
        float(known.min()),
        float(known.max()),
    )


def _interval(low: float, high: float) -> str:
    ends = (
        "-infinity" if low == -inf else f"{low:.3g}",
        "infinity" if high == inf else f"{high:.3g}",
    )
    return f"[{', '.join(ends)}]"


def _last(net: Net, theta: Tensor, x: Tensor) -> str:
    """The layer that gives the network's outputs, but for their shape; else forward itself."""
    module, seen = net.module(theta), list[tuple[str, Tensor]]()

    def noting(name: str) -> object:
        def note(_part: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                seen.append((name, output.detach().clone()))

        return note

    for name, part in module.named_modules():
        if not list(part.children()):
            said = f"{name} ({type(part).__name__})" if name else type(part).__name__
            part.register_forward_hook(noting(said))
    with torch.no_grad():
        outputs = module(x[:PAIR].clone())
    name, values = seen[-1] if seen else ("forward", outputs.new_zeros(0))
    same = torch.equal(values.flatten(), outputs.flatten())
    return f"the layer {name}" if same else "forward"
