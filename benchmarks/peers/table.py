"""The results of `python -m benchmarks.peers` as a table."""

from __future__ import annotations

from typing import Any

HEADER = [
    *("workload", "beside"),
    *("CPU s a round", "its", "times"),
    *("wall s on 2 cores", "its", "times"),
    *("evaluation, µs an example", "its"),
    *("MiB", "its"),
    *("accuracy, %", "its"),
    *("s to the first round's end", "its"),
]

FIVE = ("mlp-fedavg", "mlp-ifca", "mlp-fedem", "mlp-pfedme", "mlp-per-fedavg")


def markdown(results: dict[str, Any]) -> str:
    """A line for each workload and each side beside umbel: first umbel's value, then its."""
    found = {(row["task"], row["side"], row["cores"]): row for row in results["peers"]}
    lines = [HEADER, ["---", "---", *["---:"] * (len(HEADER) - 2)]]
    one_core = [key for key in found if key[2] == 1 and key[1] != "umbel"]
    for task, side, _ in one_core:
        ours, theirs = found[task, "umbel", 1], found[task, side, 1]
        two = [found.get((task, each, 2), {}).get("wall") for each in ("umbel", side)]
        of_example = [
            1e6 * max(0.0, row["evaluation_cpu"]) / row["evaluated"] for row in (ours, theirs)
        ]
        lines.append(
            [
                f"`{task}`",
                side,
                *_compared(ours["cpu"], theirs["cpu"]),
                *(_compared(*two) if all(two) else ["", "", ""]),
                *(f"{each:.0f}" for each in of_example),
                *(f"{row['memory_mb']:,.0f}" for row in (ours, theirs)),
                *(f"{100 * row['accuracy']:.1f}" for row in (ours, theirs)),
                *(f"{row['first_round_over']:.1f}" for row in (ours, theirs)),
            ]
        )
    for side in dict.fromkeys(side for _, side, _ in one_core):
        if all((task, side, 1) in found for task in FIVE):
            sums = [
                sum(found[t, s, 1]["cpu"] + found[t, s, 1]["evaluation_cpu"] for t in FIVE)
                for s in ("umbel", side)
            ]
            empty = [""] * (len(HEADER) - 5)
            lines.append(["the first five and evaluations", side, *_compared(*sums), *empty])
    told = {row["task"]: row["what"] for row in results["peers"]}
    what = "; ".join(
        dict.fromkeys(f"`{task.split('-')[0]}`: {each}" for task, each in told.items())
    )
    text = ["| " + " | ".join(line) + " |" for line in lines]
    repeats = min((row["repeats"] for row in results["peers"]), default=0)
    about = f"Machine: {results['machine']}; repeats: {repeats} or more. {what}."
    return "\n".join([about, "", *text, ""])


def _compared(ours: float, theirs: float) -> list[str]:
    return [f"{ours:.3g}", f"{theirs:.3g}", f"**{theirs / ours:.2f}**"]
