"""Mistakes in the core that tests should notice, one at a time: `python -m benchmarks.mutants`.

Names of files, such as `flow.py`, choose among them. A mistake that no test notices is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

PACKAGE = Path(__file__).parents[1] / "src" / "umbel"
TESTS = Path(__file__).parents[1] / "tests"

USUAL = "not (deployment or browser or long or thorough)"
"""The tests of `make test`."""

MUTANTS: dict[str, tuple[tuple[str, str], ...]] = {
    "reduction.py": (
        ("index_add_(0, labels, weights.double())", "index_add_(0, labels, weights.double() * 2)"),
        ("self.values + other.values", "self.values"),
        ("self.weights + other.weights", "self.weights"),
        ("wide * own[:, None]", "wide"),
        ("shares[labels, torch.arange(len(wide))] = own", "shares[labels, :] = own"),
        ("torch.where(self.weights > 0, self.weights, 1)", "self.weights"),
        ("columns[self.chosen] if self.labels is None else", "columns[self.chosen] if False else"),
    ),
    "server/aggregation.py": (
        ('if self.weights == "examples" else torch', 'if self.weights != "examples" else torch'),
        ("asked = torch.unique(labels[cohort])", "asked = torch.unique(labels)"),
        ("torch.where(layout.mask(self.shared), everyone.means(), means)", "means"),
        ("return models + step", "return models - step"),
        ("models.index_add(0, clusters, step[: len(clusters)])", "models + step.sum(0)"),
    ),
    "server/clustering.py": (
        ("(unit @ unit.T).clamp(-1, 1)", "(unit @ unit.T).abs()"),
        ("(products / length[:, None] / length)", "(products / length[:, None])"),
        ("vectors[:, -rank:].flip(1) * lengths", "vectors[:, -rank:].flip(1)"),
        ("(1 - _cosines(rows, others))", "(_cosines(rows, others))"),
        ('power = 1.0 if metric == "l1" else 2.0', "power = 2.0"),
        ('angles[:, 0] if measure == "smallest"', 'angles[:, -1] if measure == "smallest"'),
        ("fitted.labels_[first[kinds]]", "fitted.labels_"),
        ("min(found, key=lambda result: result[0])", "max(found, key=lambda result: result[0])"),
        ("in_order_of_appearance(labels[kinds])", "labels[kinds]"),
        ("1 + int((tree[:, 2] >= threshold).sum())", "int((tree[:, 2] >= threshold).sum()) or 1"),
        ("half + (own[:, None] - returned.T).abs()", "half"),
        ("half = (theirs - own[:, None]).abs()", "half = theirs - own[:, None]"),
    ),
    "flow.py": (
        ("self.table[int(self.index[position])]", "self.table[position]"),
        ("seeds=[self.seeds[n] for n in positions.tolist()]", "seeds=list(self.seeds)"),
        ("Rows(r.table, r.index[positions])", "Rows(r.table, r.index)"),
        ("self if sorted_already else", "self if True else"),
        ("flow.send(replies.in_order())", "flow.send(replies)"),
    ),
    "client/kernels/schedule.py": (
        ("torch.where(keep, rows, ~rows)", "torch.where(keep, rows, 0)"),
        ("torch.full((1, 1), 1 / w", "torch.full((1, 1), 1 / (w + 1)"),
        ("happens.sum(1).argsort(dim=0, descending=True", "happens.sum(1).argsort(dim=0"),
    ),
    "client/kernels/dense.py": (
        ("-descent.lr * batch.shares", "-batch.shares"),
        ("outputs - targets) * (2 * scale)", "outputs - targets) * scale"),
        ("(outputs.sigmoid() - targets) * scale", "(outputs - targets) * scale"),
        ("torch.sum(slope, 1, keepdim=True, out=into)", "into.zero_()"),
    ),
    "folder/checkpoint.py": (
        ('"next_round": next_round,', '"next_round": next_round + 1,'),
        ("tensor.clone() if pointer in memory[:place] else tensor", "tensor"),
        ('"lists": [name for name, value', '"lists": [name for name, value if False'),
        ("else _tuples(own[f.name])", "else own[f.name]"),
    ),
}
"""For each file: what stands there, and a mistake in its place."""

CATCHERS = {
    "reduction.py": ["test_reduction.py", "server", "algorithms", "engines"],
    "server/aggregation.py": ["server", "test_reduction.py", "algorithms"],
    "server/clustering.py": ["server", "algorithms"],
    "flow.py": ["test_flow.py", "engines", "server"],
    "client/kernels/schedule.py": ["client", "engines/test_equality.py"],
    "client/kernels/dense.py": ["client", "engines/test_equality.py"],
    "folder/checkpoint.py": ["folder/test_checkpoint.py", "folder/test_execution.py", "algorithms"],
}
"""Tests that may notice, the likeliest first."""


def is_noticed(file: str, old: str, new: str) -> bool:
    """Whether a test of `make test` fails with this mistake."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "umbel"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        text = (copy / file).read_text(encoding="utf-8")
        assert text.count(old) >= 1, f"{file}: lacks {old!r}"
        (copy / file).write_text(text.replace(old, new, 1), encoding="utf-8")
        tests = [TESTS / name for name in CATCHERS[file] if (TESTS / name).exists()]
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", USUAL]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            env={**os.environ, "PYTHONPATH": folder},
            cwd=TESTS.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return ran.returncode == 1


def main() -> None:
    """Print the mistakes that no test notices, and how many are noticed."""
    asked = sys.argv[1:] or list(MUTANTS)
    every = [(file, *each) for file in asked for each in MUTANTS[file]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        noticed = list(pool.map(lambda each: is_noticed(*each), every))
    for (file, old, new), caught in zip(every, noticed, strict=True):
        if not caught:
            click.echo(f"{file}: not noticed: {old} -> {new}")
    click.echo(f"{sum(noticed)} of {len(every)} noticed")


if __name__ == "__main__":
    main()
