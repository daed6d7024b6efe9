"""Distances of clients by the losses of each other's models: Gu et al. 2024, eqs. 2 and 6."""

from __future__ import annotations

from torch import Tensor


def loss_distance(
    metric: str, theirs: Tensor, own: Tensor, medoid_own: Tensor, returned: Tensor | None
) -> Tensor:
    """Distances (N, K) of clients i to others m by eq. 2 ("loss"), or eq. 6 ("loss-gap").

    theirs (N, K) is L_i(w_m), own (N,) is L_i(w_i), medoid_own (K,) is L_m(w_m), and returned (K,
    N) is L_m(w_i). Without `returned`, the result is only the half of the distance that does not
    need it.
    """
    if metric == "loss-gap":
        half = (theirs - medoid_own).abs()
        return half if returned is None else half + (own[:, None] - returned.T).abs()
    half = (theirs - own[:, None]).abs()
    return half if returned is None else half + (returned.T - medoid_own).abs()
