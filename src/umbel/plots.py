"""Figures, by an optional library."""

from __future__ import annotations

from pathlib import Path

from umbel.checks import UsageError, check
from umbel.cluster_count import ClusterCount

FORMATS = (".png", ".svg", ".pdf")


def check_format(file: Path) -> None:
    """Raise `UsageError` where figures can't be written to such a file."""
    check(file.suffix in FORMATS, "--plot", str(file), f"a file that ends in {', '.join(FORMATS)}")


def draw_singular_values(count: ClusterCount, file: Path) -> None:
    """The singular values with their largest gap, and k-means with the estimates, side by side.

    Raises `UsageError` without the plotting library, or for a file of another kind.
    """
    check_format(file)
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise UsageError('--plot: needs an extra: pip install "umbel[plot]"') from None
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    values, inertia = count.singular_values, count.inertia
    left.plot(range(1, len(values) + 1), values, marker="o")
    gap = f"largest gap: s = {count.rank}"
    left.axvline(count.rank + 0.5, linestyle="--", color="grey", label=gap)
    left.set(xlabel="singular value", ylabel="size", title="vectors of the clients")
    left.legend()
    right.plot(range(1, len(inertia) + 1), inertia, marker="o")
    right.axvline(count.elbow, linestyle="--", color="grey", label=f"elbow: {count.elbow}")
    chosen = f"gap statistic: {count.gap_statistic}"
    right.axvline(count.gap_statistic, linestyle=":", color="black", label=chosen)
    right.set(xlabel="clusters", ylabel="within-cluster sum of squares", title="k-means")
    right.legend()
    for axis in (left.xaxis, right.xaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(file, dpi=150)
