"""The form of examples that a model must fit; it is the same for all clients of a federation."""

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

    input_shape: tuple[int, ...]  # of one example
    num_outputs: int  # of a model
    num_classes: int | None  # None: regression

    def objective(self, name: ObjectiveName = "auto") -> Objective:
        """What a model is trained for: unless said, classification of labels, else regression."""
        if name != "auto":
            return OBJECTIVES[name]
        return REGRESSION if self.num_classes is None else CLASSIFICATION
