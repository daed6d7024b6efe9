"""Whether newcomers' examples are of the kind that a run was made with."""

from __future__ import annotations

from dataclasses import replace

from umbel.checks import check
from umbel.client.objectives import BINARY, CLASSIFICATION
from umbel.data.federation import Federation
from umbel.folder.saved_run import SavedRun


def alike(result: SavedRun, newcomers: Federation) -> Federation:
    """The newcomers with the run's number of classes, as labels of some may not occur among them.

    Raises `UsageError` where their examples are not of the run's kind.
    """
    made_for = result.made_for[0]
    # All newcomers have one form, so that only the first is checked.
    first, shape = f"client {newcomers.names[0]}", newcomers.input_shape
    expected = f"{made_for.input_shape}, the run's"
    check(shape == made_for.input_shape, f"{first}: shape of an input", shape, expected)
    if result.net.objective == BINARY:
        # Answers may be of either kind, and are checked where the model is tried on them.
        return newcomers
    kinds = ("whole numbers, as class labels are", "floating-point numbers")
    given, wanted = (kinds[n is None] for n in (newcomers.num_classes, made_for.num_classes))
    check(given == wanted, f"{first}: y", given, f"{wanted}, as in the run")
    if result.net.objective != CLASSIFICATION:  # other whole numbers may be amounts
        return newcomers
    fine = (newcomers.num_classes or 0) <= (made_for.num_classes or 0)
    expected = f"at most {made_for.num_outputs}, as in the run"
    check(fine, "number of classes", newcomers.num_classes, expected)
    return replace(newcomers, num_classes=made_for.num_classes)
