"""Tables with a row for each client, or for each cluster, which begin alike."""

from __future__ import annotations

from torch import Tensor

from umbel.checks import check_memory


def copies(row: Tensor, count: int, what: str) -> Tensor:
    """(count, P): copies of a row (1, P).

    Raises `UsageError`, which begins with `what` they are, if they do not fit in memory.
    """
    check_memory(count * row.nbytes, what)
    return row.repeat(count, 1)


def with_rows(table: Tensor, clients: Tensor, rows: Tensor) -> Tensor:
    """The table (M, P) with other rows (N, P) for clients (N,) in ascending order."""
    return rows if len(rows) == len(table) else table.index_copy(0, clients, rows)


def model_of_each(model: Tensor, count: int) -> Tensor:
    """(K, P): a model (1, P) for each of `count` clusters.

    Raises `UsageError` if they do not fit in memory.
    """
    said = f"{count:,} models of {model.shape[1]:,} values, one for each cluster"
    return copies(model, count, said)


def opinions(row: Tensor, clients: int) -> Tensor:
    """(M, K): what each client says of each model, at first the same `row` (1, K).

    Raises `UsageError` if it does not fit in memory.
    """
    return copies(row, clients, f"what {clients:,} clients say of {row.shape[1]:,} models")
