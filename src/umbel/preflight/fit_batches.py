"""Whether a network that needs several examples at once would ever get a single one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.work import Gradient, PersonalTraining, Work
from umbel.data.federation import Federation
from umbel.preflight.fit_alone import evaluated_alone, trained_alone
from umbel.preflight.fit_slices import check_slices
from umbel.preflight.network import sample


def check_batches(net: Net, federation: Federation, settings: Any) -> None:
    """Raise `UsageError` if the network would get a mini-batch of one example and can't process it.

    That may be in training, or in an evaluation. `settings` are those of the method, or
    what clients do to fine-tune: the mini-batches are those of the works in them.
    """
    two = sample(net, federation).x
    if (trouble := evaluated_alone(net, two)) is not None:
        check_slices(trouble, federation, settings)
    if (trouble := trained_alone(net, two)) is None:
        return
    sizes = federation.train.sizes
    for work in _works_in(settings):
        for size in np.unique(sizes[sizes > 0]):
            plan = work.batching.plan(int(size), 0)
            alone = size == 1 and isinstance(work, Gradient)  # of all examples, without a plan
            if alone or ((plan >= 0).sum(1) == 1).any():
                name = federation.names[int(np.flatnonzero(sizes == size)[0])]
                if size == 1:
                    raise UsageError(
                        f"client {name}: it has one example, and {trouble.why}: leave the client "
                        f"out, or {trouble.otherwise}"
                    )
                raise UsageError(
                    f"client {name}: its {size} examples leave a mini-batch of one, and "
                    f"{trouble.why}: set {_way_out(settings)}, or {trouble.otherwise}"
                )


def _way_out(settings: Any) -> str:
    """The settings that say which mini-batches there are."""
    if isinstance(settings, PersonalTraining):
        return "another batch_size in [personal]"
    return "drop_last = true or another batch_size in the method's local training"


def _works_in(settings: Any) -> Iterator[Work]:
    """The works among the fields of a method, at any depth, that it has clients do."""
    send = getattr(settings, "send", None)
    unused = "local" if send == "gradient" else "gradient" if send is not None else ""
    for field in fields(settings) if is_dataclass(settings) else ():
        value = getattr(settings, field.name)
        if field.name == unused:
            continue
        if isinstance(value, Work):
            yield value
        yield from _works_in(value)
