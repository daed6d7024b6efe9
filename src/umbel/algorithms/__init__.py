"""The methods, one a file, by the names that experiments call them."""

from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.algorithms.fedavg import FedAvg
from umbel.algorithms.fedprox import FedProx
from umbel.algorithms.flacc import FLACC
from umbel.algorithms.ifca import IFCA
from umbel.algorithms.local_only import LocalOnly

__all__ = ["ALGORITHMS", "FLACC", "IFCA", "FedAvg", "FedProx", "LocalOnly"]

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "local-only": LocalOnly,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "ifca": IFCA,
    "flacc": FLACC,
}
