"""What `umbel advise` chooses for flights and watches, and how every way does on their tests.

    python -m benchmarks.natural

It needs `natural/` in the data directory (docs/tables.md says how to make it). The test of every
way is opened here to judge the advice, which does not see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

import umbel
from umbel.advice.gain_per_client import on_test
from umbel.data.sources import Sources
from umbel.experiment.toml_file import structured
from umbel.networks import MLP

ROWS = (100, 400, 2000)


@dataclass(frozen=True)
class Asked:
    """One question."""

    name: str
    scenario: dict[str, object]
    hidden: int


def questions() -> Iterator[Asked]:
    """Flights with more and more training rows a client, and watches with four windows a class."""
    for rows in ROWS:
        yield Asked(f"flights, {rows} rows", {"name": "flights", "train_rows": rows}, 16)
    yield Asked("watch, 4 windows", {"name": "watch", "windows_per_class": 4}, 32)


def main() -> None:
    """Print a table in Markdown: a row for each question and way."""
    console = Console()
    console.print("| data | way | validation loss | test loss | test accuracy | advised |")
    console.print("|---|---|---|---|---|---|")
    for asked in questions():
        scenario = structured(asked.scenario, umbel.Scenario)
        federation = scenario.build(0, Sources.default(None))
        model = MLP((asked.hidden,))
        shape, outputs = federation.input_shape, federation.num_outputs
        net = umbel.Net(lambda m=model, s=shape, o=outputs: m.build(s, o))  # type: ignore[misc]
        advice = umbel.advise(federation, net)
        for each in advice.standings:
            tested = on_test(net, federation, each)
            assert tested is not None  # all of these have test examples
            here = "←" if each is advice.verdict.chosen else ""
            cells = (f"{each.mean:.4f}", f"{tested[0]:.4f}", f"{tested[1]:.3f}", here)
            row = f"| {asked.name} | {each.contender.name} | {' | '.join(cells)} |"
            console.print(row, soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
