"""Checks before the first round that a network and a federation fit each other."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.parametrizations import _Orthogonal

from umbel.checks import UsageError, check
from umbel.client.batches import Batch
from umbel.client.layout import tensors_of
from umbel.client.net import Net
from umbel.client.objectives import BINARY, CLASSIFICATION, OBJECTIVES, REGRESSION, Objective
from umbel.data.federation import Federation
from umbel.data.labels import are_indicators
from umbel.data.tables.encoding import Encoding
from umbel.engines.devices import repeatable
from umbel.preflight.examples import check_examples
from umbel.preflight.objective import check_accuracy, check_objective
from umbel.preflight.outputs import warn_of_outputs
from umbel.preflight.plain_pytorch import check_against_plain, check_derived, check_writes
from umbel.preflight.sample import FEW_EXAMPLES, SOME_EXAMPLES, sample
from umbel.preflight.torch_errors import explained

log = logging.getLogger(__name__)


def check_fit(net: Net, federation: Federation) -> None:
    """Run the network on a few examples, forward and back.

    Raises `UsageError`, which says what to write, if the network does not accept the examples or if
    its outputs do not fit their y.
    """
    check_gradients_are_on()
    batch, theta = sample(net, federation), net.new(seed=0)
    _check_first_values(net, theta)
    with explained(batch.x):
        # First, as other passes may write in what copies of the module share.
        check_writes(net, theta, batch.x)
        outputs = net.outputs(theta, batch.x)
        expected = f"a value or more for each of {len(batch.x)} examples"
        fits = outputs.dim() > 0 and len(outputs) == len(batch.x)
        check(fits, "the network's outputs", tuple(outputs.shape), expected)
        _check_outputs(outputs, federation)
        _check_no_indicators(net.objective, outputs, federation)
        if net.objective == CLASSIFICATION and not batch.y.is_floating_point():
            _check_classes(outputs, batch.y, federation)
        if net.objective == BINARY:
            _check_answers(federation)
        check_objective(net.objective, outputs, batch.y, _or_scale(federation))
        if net.objective not in OBJECTIVES.values():
            _check_own_objective(net, theta, federation)
        check_derived(net, theta, batch)
        more = sample(net, federation, 4)
        check_against_plain(net, theta, batch, Batch(more.x[1:3], more.y[1:3]))
    _warn_of_equal_starts(net)
    check_examples(net, theta, federation, batch.x)
    with explained(batch.x):
        warn_of_outputs(net.using("in-place"), federation, sample(net, federation, FEW_EXAMPLES))


def check_there(net: Net, federation: Federation, device: torch.device) -> None:
    """Raise `UsageError` if a network that runs on the CPU does not run on this device.

    The network may refer to tensors that are not moved with it, such as tensors in a closure. A
    warning names operations that do not give the same bits each time on the device.
    """
    batch, theta = sample(net, federation), net.new(seed=0).to(device)
    there, moved = Batch(batch.x.to(device), batch.y.to(device)), net.to(device)

    def passed() -> None:
        moved.gradient(theta, there)
        moved.outputs(theta, there.x)

    with explained(batch.x), repeatable(device):
        if device.type != "cuda" or not _repeats(passed, device):
            passed()


def _repeats(passed: Callable[[], None], device: torch.device) -> bool:
    """Return True if a pass needs only repeatable operations; log the others."""
    torch.use_deterministic_algorithms(mode=True)
    try:
        passed()
        return True
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        said = str(error).partition(",")[0]
        log.warning("on %s, repeated runs may differ in the last bits: %s", device, said)
        return False
    finally:
        torch.use_deterministic_algorithms(mode=True, warn_only=True)  # as in `repeatable`


def check_gradients_are_on() -> None:
    """Raise `UsageError` if gradients are turned off in PyTorch."""
    if not torch.is_grad_enabled():
        raise UsageError(
            "gradients are turned off here, by torch.no_grad() or torch.inference_mode(), and "
            "training needs them: leave that block before the run begins; if there is none, a run "
            "that was interrupted has left them so: torch.set_grad_enabled(True)"
        )


def advice(federation: Federation) -> str:
    """Return what to change if training diverges."""
    y = federation.train.y
    wide = float(y.abs().max()) if y.is_floating_point() else 0.0
    table = isinstance(federation.encoding, Encoding)
    way = " (scenario.scale_target = true)" if table else ""
    targets = f"scale y, which reaches {wide:.3g}, to about 1{way}" if wide > 100 else ""
    lower = "lower the learning rate (algorithm.local.lr)"
    return " and ".join(filter(None, (_scale(federation), targets, lower)))


def _scale(federation: Federation) -> str:
    """Return advice about large inputs; "" if they are not large."""
    x = federation.train.x
    largest = max(abs(float(x.min())), abs(float(x.max()))) if x.is_floating_point() else 0.0
    return f"scale the inputs, which reach {largest:.3g}, to about 1" if largest > 10 else ""


def _or_scale(federation: Federation) -> str:
    """Return the advice about large inputs as the end of a sentence."""
    scale = _scale(federation)
    return f"; and {scale}" if scale else ""


def _check_outputs(outputs: Tensor, federation: Federation) -> None:
    """Refuse outputs that are NaN. Infinite ones may be intended, as with masked logits."""
    if outputs.isnan().any():
        raise UsageError(
            "the network's outputs: nan before any training: look for a division by 0 or the "
            f"logarithm of a negative number in forward{_or_scale(federation)}"
        )


def _check_own_objective(net: Net, theta: Tensor, federation: Federation) -> None:
    """Try an objective of the user's own on more examples: two examples may agree by chance."""
    some = sample(net, federation, SOME_EXAMPLES)
    outputs = net.outputs(theta, some.x)
    _check_outputs(outputs, federation)
    check_objective(net.objective, outputs, some.y, _or_scale(federation))
    check_accuracy(net.objective, outputs, some.y)


def _check_classes(outputs: Tensor, y: Tensor, federation: Federation) -> None:
    """Refuse too few outputs, and warn of more than there are classes."""
    if outputs.dim() != y.dim() + 1 or outputs.shape[2:] != y.shape[1:]:
        return  # the objective says more of these
    count, classes = outputs.shape[1], federation.num_classes or 0
    if count < classes:
        smallest = int(federation.train.y.clamp(min=0).min())
        hint = f"; labels count from 0, and the smallest here is {smallest}" if smallest else ""
        hint = "; or, for yes or no by one output, pass umbel.BINARY to Net" if count == 1 else hint
        check(False, "the network's outputs", count, f"one for each of {classes} classes{hint}")
    if count > classes:
        log.warning("the network has %d outputs, and there are %d classes", count, classes)


def _check_no_indicators(objective: Objective, outputs: Tensor, federation: Federation) -> None:
    """Refuse one-hot rows as targets: they mean a class, but would be learnt as something else.

    They are right where several answers may be yes, where the objective is the user's own, and
    where the network has classes for each step of an example.
    """
    if objective not in (CLASSIFICATION, REGRESSION) or outputs.dim() != 2:
        return
    # A few rows may happen to have one 1 each: it takes all to tell.
    if all(are_indicators(split.y) for split in federation.splits):
        raise UsageError(
            f"y: an example has {federation.train.y.shape[1]} numbers, one 1 and the others 0, for "
            "its class; give the number of the class instead: y.argmax(1); or, "
            'if several may be 1, pass umbel.BINARY to Net (in a file, objective = "binary")'
        )


def _check_answers(federation: Federation) -> None:
    for split in federation.splits:
        other = split.y[(split.y != 0) & (split.y != 1)]
        if len(other):
            check(False, "y", other[0].item(), "0 or 1, the only labels of umbel.BINARY")


def _check_first_values(net: Net, theta: Tensor) -> None:
    for name, values in net.layout.tensors(theta).items():
        wrong = values[~values.isfinite()]
        if len(wrong):
            raise UsageError(
                f"Net: {name} begins with {float(wrong[0])}: give it finite first values, as "
                "torch.empty does not"
            )


def _warn_of_equal_starts(net: Net) -> None:
    """Warn of orthogonal weights that PyTorch draws into a buffer, which all models share."""
    if not any(isinstance(part, _Orthogonal) for part in net.parts):
        return
    others = tensors_of(net.built(seed=1))
    first, trained = tensors_of(net.modules.training), [e.name for e in net.layout.weights]
    for name, part in net.modules.training.named_modules():
        base = f"{name}.base"
        own = isinstance(part, _Orthogonal) and f"{name.rpartition('.')[0]}.original" in trained
        if own and base in first and not torch.equal(first[base].cpu(), others[base].cpu()):
            log.warning(
                "%s: all models begin with the same orthogonal weight, whatever the seed, as it is "
                "drawn into a buffer that models share: write orthogonal(layer, "
                'orthogonal_map="householder", use_trivialization=False)',
                name,
            )
            return
