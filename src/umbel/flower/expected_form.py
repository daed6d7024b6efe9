"""The form that the server expects sites to have: one that suits the experiment's model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from math import prod

from umbel.client.net import Net
from umbel.experiment.experiment import ExperimentSettings
from umbel.flower.errors import RefusedError, refusing
from umbel.flower.handshake import SiteForm
from umbel.flower.majority import MORE_CLASSES
from umbel.networks.base import without_values

MAX_VALUES = 2**29
"""Largest number of values of a model whose size only the sites determine."""

SMALL_INPUT, SMALL_OUTPUT = 2**16, 2**12


@dataclass(frozen=True)
class Expectation:
    """The form that a site must have, as far as the server knows it."""

    experiment: ExperimentSettings
    input_shape: tuple[int, ...] | None = None  # None: any
    outputs: int | None = None
    begun: bool = False  # the kind of targets was decided before the first round
    #: of what is frozen, by the shape of inputs and the number of outputs
    digests: dict[tuple[tuple[int, ...], int], str] = field(default_factory=dict, compare=False)

    @refusing
    def __call__(self, form: SiteForm) -> SiteForm:
        """Check a form, and return it as it is compared with those of other sites.

        Raises `RefusedError` for an unfit form. Nothing large is allocated for the check.
        """
        for name, found, wanted in (
            ("input-shape", form.input_shape, self.input_shape),
            ("outputs", form.num_outputs, self.outputs),
        ):
            if wanted is not None and found != wanted:
                few = (
                    self.outputs is not None and form.num_classes == form.num_outputs < self.outputs
                )
                how = MORE_CLASSES.format(wanted) if name == "outputs" and few else ""
                raise RefusedError(f"{name}: {found} is not {wanted}, as the server expects{how}")
        self._check_classes(form)
        # A site that claims huge inputs must not make the server allocate a huge model.
        net = self._net(form)
        count = net.layout.num_values + net.num_frozen
        if count > MAX_VALUES:
            values = f"{count} values, more than the {MAX_VALUES} expected"
            raise RefusedError(f"a model for inputs {form.input_shape} has {values}")
        if form.model != model_name(net):
            raise RefusedError(
                f"its model, {form.model}, is not that of the experiment for inputs "
                f"{form.input_shape} and {form.num_outputs} outputs"
            )
        check_frozen(form.frozen, self._frozen(form, net), "the server's")
        return self.compared(form)

    def compared(self, form: SiteForm) -> SiteForm:
        """The form without irrelevant details: yes-or-no answers may be whole numbers or floats."""
        return replace(form, num_classes=2) if self.experiment.objective == "binary" else form

    def _check_classes(self, form: SiteForm) -> None:
        """Raise `RefusedError` if targets are numbers instead of classes, or the reverse."""
        found, outputs, name = form.num_classes, form.num_outputs, self.experiment.objective
        if name == "binary":
            return
        voted = self.begun or None in (self.input_shape, self.outputs)
        numbers = name == "regression" or (name == "auto" and (voted or outputs == 1))
        classes = name == "classification" or (name == "auto" and (voted or outputs > 1))
        # A model for labels has an output for each class, and is made by the number of classes.
        if (numbers and found is None) or (classes and found == outputs):
            return
        said = f"{'no' if found is None else found} classes and {outputs} outputs"
        if found is None and name == "auto":
            said += '; if targets are numbers, the experiment needs objective = "regression"'
        raise RefusedError(said if classes else f"{said}, but targets must be numbers")

    def _frozen(self, form: SiteForm, net: Net) -> str:
        """The digest of the frozen values of the server's network for this form.

        `net` may lack these values, so the network is built, once for each
        input shape and number of outputs.
        """
        if not net.num_frozen:
            return ""
        shape = form.input_shape, form.num_outputs
        if shape not in self.digests:
            self.digests[shape] = self.experiment.net_of(form).frozen_digest
        return self.digests[shape]

    def _net(self, form: SiteForm) -> Net:
        """Build the network for this form, without memory for its values if the module allows it.

        A module that must have its values is built only if it is small, or is what the settings ask
        for.
        """
        try:
            with without_values():
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


def check_frozen(found: str, expected: str, whose: str) -> None:
    """Raise `RefusedError` unless both sides have the same frozen values."""
    if found != expected:
        raise RefusedError(
            f"frozen values of digest {found[:12] or 'none'}, and {whose} have "
            f"{expected[:12] or 'none'}: server and nodes need the same files of the backbone"
        )
