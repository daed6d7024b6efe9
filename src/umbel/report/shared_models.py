"""Clusters that still share a model, like those of FLACC before it separates them."""

from __future__ import annotations

from umbel.run.records import Record
from umbel.summary import counted


def not_served_apart(record: Record) -> str:
    """Text after a number of clusters if there are fewer models; otherwise empty."""
    models, clusters = record.num_models, record.num_clusters
    if models is None or clusters is None or models >= clusters:
        return ""
    return f", served {counted(models, 'model')} so far"
