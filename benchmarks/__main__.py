"""`python -m benchmarks` times every workload; `--short` does so in about a minute."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import (
    alternate,
    difference,
    matmul_peak,
    peak_memory_mb,
    pin,
)
from benchmarks.result_files import check_folder, earlier
from benchmarks.server import server_table
from benchmarks.workloads import Contest, contests

Row = dict[str, str | float | None]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, time, print, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="smaller workloads, fewer repeats")
    parser.add_argument("--only", nargs="*", default=[], help="such as W1 W6 W7")
    parser.add_argument("--repeats", type=int, help="default: 5, in the short form 2")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--memory", action="store_true", help="also each one's peak memory")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--plot", type=Path, help="draw W7 here, as .svg or .png")
    parser.add_argument("--once", nargs=2, metavar=("NAME", "WAY"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    about: Row = {"machine": machine(), "device": given.device}
    earlier(given.json, about, TABLES)
    check_folder(given.plot)
    pin()
    if given.once:
        name, way = given.once
        run_once(name, way, given.short, given.device)
        return
    console, rows = Console(), list[Row]()
    peak = matmul_peak(given.device)
    about["peak_gflops"] = peak / 1e9
    for name, build in contests(given.short, given.device).items():
        if wanted(name, given.only):
            contest = build()
            repeats = given.repeats or (2 if given.short else 5)
            rows += rows_of(contest, peak, repeats, given.short, given.device, given.memory)
            print_rows(console, rows[-len(contest.ours) :])
            write(given.json, about, rows, [])
    server = server_table(given.short, console) if wanted("W7", given.only) else []
    write(given.json, about, rows, server)
    if given.plot and server:
        from benchmarks.picture import draw_server

        draw_server(server, given.plot)


TABLES = ("clients", "server")


def write(file: Path | None, about: Row, rows: list[Row], server: list[Row]) -> None:
    """Write the results, if a file is given; results of other workloads in it are kept.

    Each keeps the best matrix product of its own command; the file's is the best of all.
    """
    if file is None:
        return
    machine_and_device = {key: about[key] for key in ("machine", "device")}
    before = earlier(file, machine_and_device, TABLES) or {"clients": [], "server": []}
    new = {row["name"]: [r for r in rows if r["name"] == row["name"]] for row in rows}
    now: Any = about["peak_gflops"]
    best = before.get("peak_gflops", now)
    there: list[Row] = [{"peak_gflops": best, **row} for row in before["clients"]]
    old = {row["name"]: [r for r in there if r["name"] == row["name"]] for row in there}
    clients = [row for group in {**old, **new}.values() for row in group]
    results = {
        **about,
        "peak_gflops": max(best, now),
        "clients": clients,
        "server": server or before["server"],
    }
    file.write_text(json.dumps(results, indent=1) + "\n")


def wanted(name: str, only: list[str]) -> bool:
    """Whether this workload is to be run."""
    return not only or any(name.startswith(start) for start in only)


def rows_of(
    contest: Contest, peak: float, repeats: int, short: bool, device: str, memory: bool
) -> list[Row]:
    """Check that the results are equal, time all ways in turns, and compare."""
    ways, plain_way = contest.checked or (contest.ours, contest.plain)
    expected = plain_way()
    for label, way in ways.items():
        found = max(map(difference, way(), expected))
        if found > contest.tolerance[label]:
            raise SystemExit(f"{contest.name}, {label}: results differ by {found:.2g}")
    *ours, plain = alternate([*contest.ours.values(), contest.plain], repeats, device)
    rows: list[Row] = []
    for label, timing in zip(contest.ours, ours, strict=True):
        rows.append(
            {
                "name": contest.name,
                "what": contest.what,
                "precision": label,
                "seconds": timing.median,
                "low": timing.low,
                "high": timing.high,
                "samples_per_second": contest.samples / timing.median,
                "peak_gflops": peak / 1e9,
                "share_of_peak": contest.flops / timing.median / peak,
                "plain_seconds": plain.median,
                "plain_low": plain.low,
                "plain_high": plain.high,
                "plain_share_of_peak": contest.flops / plain.median / peak,
                "ratio": plain.median / timing.median,
                "goal": contest.goals.get(label),
                "memory_mb": once(contest.name, label, short, device) if memory else None,
                "plain_memory_mb": once(contest.name, "plain", short, device) if memory else None,
            }
        )
    return rows


def once(name: str, way: str, short: bool, device: str) -> float:
    """Peak memory of a separate process that does this once."""
    command = [sys.executable, "-m", "benchmarks", "--once", name, way, "--device", device]
    command += ["--short"] if short else []
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_once(name: str, way: str, short: bool, device: str) -> None:
    """Do one thing once, and print the peak memory."""
    contest = contests(short, device)[name]()
    (contest.plain if way == "plain" else contest.ours[way])()
    sys.stdout.write(f"{peak_memory_mb()}\n")


def print_rows(console: Console, rows: list[Row]) -> None:
    """One line each."""
    table = Table(box=None, show_header=True, title=str(rows[0]["what"]), title_justify="left")
    for header in ("", "umbel s", "plain s", "ratio", "goal", "samples/s", "peak", "plain peak"):
        table.add_column(header, justify="right")
    for row in rows:
        goal = f"{row['goal']:g}" if row["goal"] is not None else ""
        table.add_row(
            f"{row['name']} {row['precision']}",
            f"{row['seconds']:.4g} ({row['low']:.3g} to {row['high']:.3g})",
            f"{row['plain_seconds']:.4g} ({row['plain_low']:.3g} to {row['plain_high']:.3g})",
            f"{row['ratio']:.2f}",
            goal,
            f"{row['samples_per_second']:,.0f}",
            f"{row['share_of_peak']:.0%}",
            f"{row['plain_share_of_peak']:.0%}",
        )
    console.print(table)


def machine() -> str:
    """The machine of the measurement."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    told = {key.strip(): value.strip() for key, _, value in (one.partition(":") for one in lines)}
    name = told.get("model name", platform.processor())
    # One name may stand for several generations, as "AMD EPYC" does.
    family = f" (family {told['cpu family']})" if "cpu family" in told else ""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}{family}{gpu}, torch {torch.__version__}"


if __name__ == "__main__":
    main()
