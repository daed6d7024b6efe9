"""Result files as Markdown: `python -m benchmarks.report benchmarks/results/cpu.json`.

Those of peers, growth, whole rounds and both precisions have their own tables. Without a file, the
tables of docs/benchmarks.md are written anew from benchmarks/results.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.table import markdown as peers_markdown
from benchmarks.stopwatch import PARTS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"

KEPT = {"peers": "peers.json", "shares": "cpu.json", "growth": "growth.json"}
"""The result file of each table of the page."""


def renewed(page: str) -> str:
    """The page with its tables, each between its name and `end` in comments."""
    for name, file in KEPT.items():
        before, _, after = page.partition(f"<!-- {name} -->\n")
        _, _, rest = after.partition("<!-- end -->")
        results = json.loads((ROOT / "benchmarks" / "results" / file).read_text())
        page = f"{before}<!-- {name} -->\n{shown(results)}<!-- end -->{rest}"
    return page


def shown(results: dict[str, Any]) -> str:
    """The tables of a file; that of a comparison of precisions may have any of its parts."""
    if "rounds" in results:
        return rounds_markdown(results)
    if "peers" in results:
        return peers_markdown(results)
    if "growth" in results:
        return growth_markdown(results)
    return markdown(results) if "clients" in results else precision_markdown(results)


def markdown(results: dict[str, Any]) -> str:
    """One table of what clients do, and one of the server's own work, if it was timed.

    Shares are of the best matrix product of all commands that the file is of.
    """
    peak = f"one core whose best matrix product reaches {results['peak_gflops']:.0f} GFLOP/s"
    half = {row["name"]: f"{row['ratio']:.2f}" for row in results["clients"] if _is_half(row)}
    clients = _table(
        "workload|seconds|of the plain loop|ratio|in bf16|share of peak|plain's",
        [
            _client_row(row, half.get(row["name"], ""), results["peak_gflops"])
            for row in results["clients"]
            if not _is_half(row)
        ],
    )
    lines = [f"Machine: {results['machine']}, {peak}.", "", *clients, ""]
    if results["server"]:
        rows = [_server_row(row) for row in results["server"]]
        lines += [*_table("step|clients|CPU seconds|MiB", rows), ""]
    return "\n".join(lines)


def rounds_markdown(results: dict[str, Any]) -> str:
    """One table of milliseconds per workload.

    Shares are of the best matrix product of all commands that the file is of: on a machine that
    does other things, a slow one would make rounds look fast.
    """
    every = results["rounds"]
    peaks = sorted({row["peak_gflops"] for row in every})
    said = ", ".join(f"{peak:.0f}" for peak in peaks)
    lines = [f"Machine: {results['machine']}; best matrix products of {said} GFLOP/s.", ""]
    for name in dict.fromkeys(row["name"] for row in every):
        rows = [row for row in every if row["name"] == name]
        timed = rows[0]["rounds"] - 1
        lines += [f"**{name}** {rows[0]['what']}; {timed} rounds timed:", ""]
        header = f"method|round|{'|'.join(PARTS)}|slowest|share of peak"
        lines += [*_table(header, [_round_row(row, peaks[-1]) for row in rows]), ""]
    return "\n".join(lines)


def growth_markdown(results: dict[str, Any]) -> str:
    """One line for each size of what grows."""
    told = {row["growing"]: row["what"] for row in results["growth"] if row["part"] != "server"}
    what = "; ".join(f"{growing}: {each}" for growing, each in told.items())
    rows = [
        [
            row["growing"] if row["part"] != "server" else f"clients, {row['what']}",
            f"{row['size']:,}",
            f"{row['seconds']:.3g}",
            _short(1e6 * row["seconds"] / row["size"]),
            "" if row["evaluation"] is None else f"{row['evaluation']:.2g}",
            f"{row['memory_mb']:,.0f}",
        ]
        for row in results["growth"]
    ]
    table = _table("growing|to|CPU s a round|µs for each|evaluation, CPU s|MiB", rows)
    return "\n".join([f"Machine: {results['machine']}. {what}.", "", *table, ""])


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def precision_markdown(results: dict[str, Any]) -> str:
    """Whole workloads, experiments and single products, in full precision and in bfloat16."""
    lines = [f"Machine: {results['machine']}.", ""]
    if "speeds" in results:
        header = "workload|precision|seconds|times as fast|best product, GFLOP/s|share of it|apart"
        lines += [*_table(header, [_speed_row(row) for row in results["speeds"]]), ""]
    if "experiments" in results:
        header = "experiment|seeds|precision|accuracy, %|by seed|clusters|ARI"
        lines += [*_table(header, _experiment_rows(results["experiments"])), ""]
    if "networks" in results:
        header = "network|full, ms|bf16, ms|times as fast|taken"
        lines += [*_table(header, [_network_row(row) for row in results["networks"]]), ""]
    if "products" in results:
        widths = list(results["products"][0]["times"])
        header = f"product|in, or examples|out|{'|'.join(widths)}"
        lines += [*_table(header, [product_row(row, widths) for row in results["products"]]), ""]
    return "\n".join(lines)


def _speed_row(row: dict[str, Any]) -> list[str]:
    return [
        f"**{row['name']}** {row['what']}",
        row["precision"],
        f"{row['seconds']:.3g} ({row['low']:.3g} to {row['high']:.3g})",
        f"**{row['times']:.2f}**",
        f"{row['peak_gflops']:.0f}",
        f"{row['share_of_peak']:.0%}",
        f"{row['apart']:.2g}" if row["apart"] else "",
    ]


def _experiment_rows(rows: list[dict[str, Any]]) -> list[list[str]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["what"], row["precision"]), []).append(row)
    lines = []
    for (what, precision), runs in found.items():
        accuracies = [100 * run["accuracy"] for run in runs]
        spread = f" ± {statistics.pstdev(accuracies):.2f}" if len(runs) > 1 else ""
        lines.append(
            [
                f"{what}, {runs[0]['rounds']} rounds",
                str(len(runs)),
                precision,
                f"{statistics.mean(accuracies):.2f}{spread}",
                ", ".join(f"{accuracy:.2f}" for accuracy in accuracies),
                ", ".join(str(run["num_clusters"]) for run in runs),
                ", ".join(f"{run['ari']:.3f}" for run in runs),
            ]
        )
    return lines


def _network_row(row: dict[str, Any]) -> list[str]:
    said = [f"{1000 * row['full']:.0f}", f"{1000 * row['half']:.0f}"]
    return [
        row["network"],
        *said,
        f"{row['full'] / row['half']:.2f}",
        "bf16" if row["taken"] else "full",
    ]


def product_row(row: dict[str, Any], widths: list[str]) -> list[str]:
    """The cells of one kind of product and one layer; times are by rows, in bold where taken."""
    said = {rows: f"{times:.2f}" for rows, times in row["times"].items()}
    said |= {str(rows): f"**{said[str(rows)]}**" for rows in row["taken"]}
    return [row["kind"], *map(str, row["sizes"]), *(said.get(rows, "") for rows in widths)]


def _round_row(row: dict[str, Any], best: float) -> list[str]:
    times = [row["seconds"], *(row[part] for part in PARTS), row["slowest"]]
    said = [f"{1000 * seconds:,.1f}" for seconds in times]
    share = row["share_of_peak"]
    shown = "" if share is None else f"{share * row['peak_gflops'] / best:.0%}"
    return [row["method"], f"**{said[0]}**", *said[1:], shown]


def _is_half(row: dict[str, Any]) -> bool:
    return bool(row["precision"] == "bf16")


def _client_row(row: dict[str, Any], half: str, best: float) -> list[str]:
    own = row.get("peak_gflops", best) / best
    return [
        f"**{row['name']}** {row['what']}",
        f"{row['seconds']:.3g}",
        f"{row['plain_seconds']:.3g}",
        f"**{row['ratio']:.2f}**",
        half,
        f"{row['share_of_peak'] * own:.0%}",
        f"{row['plain_share_of_peak'] * own:.0%}",
    ]


def _server_row(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        f"{row['clients']:,}",
        f"{row['seconds']:.3g}",
        f"{row['memory_mb']:.0f}",
    ]


def _table(header: str, rows: list[list[str]]) -> list[str]:
    titles = header.split("|")
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


if __name__ == "__main__":
    if files := sys.argv[1:]:
        sys.stdout.write("\n".join(shown(json.loads(Path(file).read_text())) for file in files))
    else:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
