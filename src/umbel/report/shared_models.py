"""Clusters that are known and share a model still, as FLACC's do until it separates them."""

from __future__ import annotations

from umbel.runs.records import Record
from umbel.summary import counted


def not_served_apart(record: Record) -> str:
    """What to add to a number of clusters where there are fewer models; else nothing."""
    models, clusters = record.num_models, record.num_clusters
    if models is None or clusters is None or models >= clusters:
        return ""
    return f", served {counted(models, 'model')} so far"
