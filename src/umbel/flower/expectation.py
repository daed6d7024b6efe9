"""What the server expects of sites: a form that the experiment's model is made for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import prod

import torch

from umbel.client.net import Net
from umbel.flower.greeting import SiteForm
from umbel.flower.refusals import RefusedError, refusing
from umbel.runs.experiment import Experiment

MAX_VALUES = 2**29
"""Largest number of values of a model whose form only the sites know."""

SMALL_INPUT, SMALL_OUTPUT = 2**16, 2**12


@dataclass(frozen=True)
class Expectation:
    """The form that a site must have, as far as the server knows it."""

    experiment: Experiment
    input_shape: tuple[int, ...] | None = None  # None: any
    outputs: int | None = None

    @refusing
    def __call__(self, form: SiteForm) -> None:
        """Raise `RefusedError` for an unfit form. Nothing large is allocated to find out."""
        for name, found, wanted in (
            ("input-shape", form.input_shape, self.input_shape),
            ("outputs", form.num_outputs, self.outputs),
        ):
            if wanted is not None and found != wanted:
                raise RefusedError(f"{name}: {found} is not {wanted}, as the server expects")
        net = self._net(form)
        if net.layout.num_values > MAX_VALUES:
            values = f"{net.layout.num_values} values, more than the {MAX_VALUES} expected"
            raise RefusedError(f"a model for inputs {form.input_shape} has {values}")
        if form.model != model_name(net):
            raise RefusedError(
                f"its model, {form.model}, is not that of the experiment for inputs "
                f"{form.input_shape} and {form.num_outputs} outputs"
            )

    def _net(self, form: SiteForm) -> Net:
        """The network for this form, without memory for its values where the module allows it.

        Of a module that must have its values, only a small one, or what the settings ask for, is
        built.
        """
        try:
            with torch.device("meta"):
                return self.experiment.net_of(form)
        except Exception:
            small = prod(form.input_shape) <= SMALL_INPUT and form.num_outputs <= SMALL_OUTPUT
            if small or None not in (self.input_shape, self.outputs):
                return self.experiment.net_of(form)
            raise


def model_name(net: Net) -> str:
    """Return a name that nets share if their models have the same tensors in the same order."""
    entries = [(e.name, tuple(e.shape)) for e in net.layout.weights + net.layout.rest]
    return hashlib.sha256(repr((entries, str(net.dtype))).encode()).hexdigest()
