"""A trial that finds out if a module can run for many clients at once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from umbel.checks import first_line
from umbel.client.kernel_choice import Precision
from umbel.client.net import Net
from umbel.client.work import Gradient, LocalTraining, MeanLoss, Work
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines.sequential import Sequential
from umbel.engines.vectorised import Vectorised
from umbel.flow import Replies, Request, Rows
from umbel.preflight.properties import agree, draws_plainly, mixes
from umbel.preflight.sample import sample

MIXES = "the module mixes the examples of a batch, padding among them"


def why_not_batchable(net: Net, federation: Federation) -> str | None:
    """Return why the module can't run for many clients at once, or None if it can.

    Chains of linear layers can, and modules with buffers that training moves can't. Any other
    module is tried with two clients of unequal size: both engines compute a gradient, steps of
    training, and an evaluation of several models. Examples are also evaluated alone and beside
    others, because padding repeats an example and a mean might hide its influence.
    """
    if net.is_dense:
        return None
    if any(isinstance(part, _BatchNorm) for part in net.parts):
        return "batch normalisation mixes the examples of a batch, padding among them"
    if net.layout.rest:  # may be read in evaluation only, where the trial would not notice
        return "training moves buffers of the module, and padding may move them, too"
    few = _two_clients(net, federation)
    one_by_one = Sequential(net.using("in-place"), few)
    for work in PROBES:
        request = _request(work, net)
        expected = one_by_one.send(request)
        try:
            batched = _sent_quietly(Vectorised(net, few), request)
        except Exception as error:  # whatever the module does that vmap can't
            return _refused(error)
        # Other results than those of one client after another: the module takes examples for each
        # other's.
        bound = partial(agree, models=request.shared["models"], eps=net.eps)
        if not all(bound(batched.columns[n], c) for n, c in expected.columns.items()):
            return MIXES
    if mixes(net, federation):
        return MIXES
    if draws_plainly(net, federation):
        return "the module draws from Python's or NumPy's generator, one client after another"
    return None


def why_not_there(
    net: Net, federation: Federation, device: torch.device, precision: Precision
) -> str | None:
    """Return why a batchable module can't be batched on this device in this precision, or None.

    Some layers, such as layer normalisation, have no rule for bfloat16 and many models at once.
    """
    few = _two_clients(net, federation)
    try:
        batched = Vectorised(net.using("general", precision), few, device)
        for work in PROBES:
            _sent_quietly(batched, _request(work, net))
    except Exception as error:  # as above
        return (
            f"{_refused(error)} (in {precision}{'' if device.type == 'cpu' else f', on {device}'})"
        )
    return None


def _sent_quietly(engine: Vectorised, request: Request) -> Replies:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vmap warns of what it has no fast way for
        return engine.send(request)


def _refused(error: Exception) -> str:
    # The engine takes an error of vmap to be the work's, which is the module's here.
    return f"vmap refuses the module: {first_line(error.__cause__ or error)}"


PROBES: Sequence[Work] = (Gradient(), LocalTraining(lr=1e-3, steps=2, batch_size=2), MeanLoss())


def _two_clients(net: Net, federation: Federation) -> Federation:
    """A federation of two clients, with five and two examples taken from all parts of this one."""
    batch = sample(net, federation, 7)
    split = Split(batch.x, batch.y, np.array([0, 5, 7]))
    return replace(federation, train=split, test=split, groups=None, names=("five", "two"))


def _request(work: Work, net: Net) -> Request:
    models = torch.stack([net.new(seed=0), net.new(seed=1)])
    theta = Rows(models, torch.tensor([0, 1]))
    return Request(work, torch.tensor([0, 1]), [0, 1], {"models": models}, {"theta": theta})
