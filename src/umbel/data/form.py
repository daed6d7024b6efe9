"""The form of examples, to which models must fit; it is the same for all clients."""

from __future__ import annotations

from dataclasses import dataclass

from umbel.client.objectives import (
    CLASSIFICATION,
    OBJECTIVES,
    REGRESSION,
    Objective,
    ObjectiveName,
)


@dataclass(frozen=True, kw_only=True)
class Form:
    """The common form of all examples of a model; subclasses add fields."""

    input_shape: tuple[int, ...]  # shape of the input of one example
    num_outputs: int  # number of outputs of a model
    num_classes: int | None  # None: regression

    def objective(self, name: ObjectiveName = "auto") -> Objective:
        """The objective of a model; "auto" is classification for labels, otherwise regression."""
        if name != "auto":
            return OBJECTIVES[name]
        return REGRESSION if self.num_classes is None else CLASSIFICATION
