"""Methods on words of eight unknown languages: `python -m benchmarks.words`.

It makes the runs of the comparisons `words-lstm` and `words-transformer` that are not there yet,
which takes `natural/words.parquet` in the data directory (docs/tables.md says how to make it), and
prints a table for each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import umbel

COMPARISONS = ("words-lstm", "words-transformer")

ONE_MODEL = "fedavg"

HEADS = ("method", "perplexity", "ARI with the language", "clusters", "less perplexity than FedAvg")


def made(name: str, seeds: int, runs_dir: Path, jobs: str) -> umbel.Results:
    """The finished runs of a comparison."""
    command = [sys.executable, "-m", "umbel", "compare", name, "--seeds", str(seeds)]
    command += ["--jobs", jobs, "--runs-dir", str(runs_dir), "--csv"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return umbel.results(runs_dir / name)


def table(results: umbel.Results) -> Iterator[tuple[str, ...]]:
    """A row for each method, the best first: means over seeds, and the gain over one model."""
    gains = dict(over_one_model(results))
    names = dict.fromkeys(map(str, results.column("name")))
    rows = {name: [row for row in results if row["name"] == name] for name in names}
    perplexity = {name: column(rows[name], "perplexity") for name in names}
    for name in sorted(names, key=lambda name: float(np.mean(perplexity[name]))):
        shown = name.partition("-words-")[0]
        spread = f"{np.mean(perplexity[name]):.2f} ± {np.std(perplexity[name]):.2f}"
        agrees = ", ".join(f"{value:.2f}" for value in column(rows[name], "ari_language"))
        clusters = ", ".join(f"{value:.0f}" for value in column(rows[name], "num_clusters"))
        yield f"`{shown}`", spread, agrees, clusters, gains.get(shown, "")


def over_one_model(results: umbel.Results) -> Iterator[tuple[str, str]]:
    """Each method, and how much less perplexity than FedAvg it has, with the 95% interval."""
    for row in results.differences("perplexity"):
        pair = str(row["method"]), str(row["other"])
        if ONE_MODEL in pair:
            sign = 1.0 if pair[1] == ONE_MODEL else -1.0
            gain, *ends = (sign * float(str(row[name])) for name in ("gain", "low", "high"))
            low, high = sorted(ends)
            yield pair[pair[0] == ONE_MODEL], f"{gain:+.2f} ({low:+.2f} to {high:+.2f})"


def column(rows: Sequence[Mapping[str, object]], name: str) -> list[float]:
    """One value of each run."""
    return [float(str(row[name])) for row in rows]


def main() -> None:
    """Print a table in Markdown for each comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.words", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", default="auto")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    given = parser.parse_args()
    for name in given.only:
        sys.stdout.write(f"\n{name}\n\n{line(HEADS)}|{'---|' * len(HEADS)}\n")
        results = made(name, given.seeds, given.runs_dir, given.jobs)
        sys.stdout.writelines(map(line, table(results)))


def line(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
