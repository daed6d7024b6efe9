"""What a comparison of clients without planted groups says of them, in a terminal and on a page."""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.report.pages import Page
from umbel.algorithms import IFCA, FedAvg, LocalOnly
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.folder.run_folder import RunFolder
from umbel.report.comparison import Sheet, courses, sheet
from umbel.report.evenness import evenness
from umbel.report.figures.charts import Chart
from umbel.report.pages.writing import write_files
from umbel.report.terminal import by_round as course_tables
from umbel.report.terminal import comparison as standing_tables
from umbel.report.terminal import results as terminal
from umbel.result.outcomes import by_method
from umbel.result.run import Experiment, Result, Run
from umbel.result.tables import results
from umbel.run.records import Record
from umbel.testing import blobs, mlp

LOCAL = LocalTraining(epochs=1)

NAMES = ("macro-f1", "auroc", "log-loss", "perplexity")

METHODS: dict[str, Algorithm[Any]] = {
    "fedavg": FedAvg(LOCAL),
    "ifca": IFCA(num_clusters=2, local=LOCAL),
    "local-only": LocalOnly(LOCAL),
}


@pytest.fixture(scope="module")
def natural(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods under two seeds, on clients of whom attributes are known, but no groups."""
    place = tmp_path_factory.mktemp("natural")
    known = {"wrist": ("left", "right") * 4, "a very long attribute": tuple("aabbccdd")}
    federation = replace(blobs(), groups=None, attributes=known)
    for name, method in METHODS.items():
        for seed in range(2):
            run = Run(method, federation, mlp(), seed=seed)
            run.save(place / f"{name}-seed{seed}", rounds=3)
    return place


def of(place: Path) -> list[Result]:
    return [Result(RunFolder(path)) for path in sorted(place.glob("*-seed*"))]


def printed(place: Path, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    runs = of(place)
    console.print(terminal.comparison(runs), *standing_tables.statistics(runs), sep="\n")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_attributes_stand_in_place_of_planted_groups_and_all_fits_80_columns(natural: Path) -> None:
    text = printed(natural, 80)
    assert "ARI" not in text
    for head in ("worst", "tenth", "spread", "one model", "AMI", "wrist", "a very lon", "Holm"):
        assert head in text, head
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


@dataclass(frozen=True)
class Told(Result):
    """A run that is said to have had this accuracy in each round."""

    accuracy: float = 0.0

    @property
    def records(self) -> list[Record]:
        return [replace(record, accuracy=self.accuracy) for record in super().records]


@dataclass(frozen=True)
class Lost(Result):
    """A run of a regression that is said to have had this loss in each round."""

    loss: float = 0.0

    @property
    def records(self) -> list[Record]:
        measures = dict.fromkeys(NAMES, self.loss)
        return [
            replace(each, accuracy=None, loss=self.loss, measures=measures)
            for each in super().records
        ]

    @property
    def experiment(self) -> Experiment:
        return replace(super().experiment, metrics=NAMES)


@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_losses_of_any_scale_are_ordered_and_told(scale: float, natural: Path) -> None:
    losses = {"fedavg-seed0": 1.4 * scale, "ifca-seed0": 2.6 * scale}
    runs = [Lost(RunFolder(natural / name), loss=loss) for name, loss in losses.items()]
    assert [name for name, _ in by_method(runs)] == ["ifca", "fedavg"]
    whole = sheet(by_method(runs))
    told = whole.rows[-1][whole.heads.index("loss")]
    assert f"{float(told):.2g}" == f"{1.4 * scale:.2g}"
    tables = [terminal.comparison(runs), *course_tables.course(runs, [1])]
    for table in tables:
        console = Console(width=80, file=io.StringIO())
        console.print(table)
        assert told in console.file.getvalue()  # type: ignore[attr-defined]


def test_bands_over_seeds_end_where_the_measure_does(natural: Path) -> None:
    runs = [Told(of(natural)[0].folder, accuracy=accuracy) for accuracy in (0.4, 1.0, 1.0)]
    (chart,) = (p.figure for p in courses([("a", runs)]) if p.figure.title == "Accuracy")
    assert isinstance(chart, Chart)
    (line,) = chart.lines
    assert line.high == (1.0,) * 3
    assert line.low == pytest.approx((0.8 - 0.08**0.5,) * 3)


def test_the_means_over_seeds_are_those_of_the_tables_of_runs(natural: Path) -> None:
    table = results(natural)
    methods = by_method(of(natural))
    for (name, _), each in zip(methods, evenness(methods), strict=True):
        rows = [row for row in table.runs if row["name"] == name]
        worst = sum(row["worst_tenth"] for row in rows) / 2
        assert each.mean(lambda f: f.worst_tenth, by_loss=False) == f"{worst:.3f}"
        agrees = sum(row["ami_wrist"] for row in rows) / 2
        assert each.agrees("wrist") == f"{agrees:.2f}"
        alone = [row["worse_than_alone"] for row in rows]
        assert (None in alone) == (name == "local-only")
        assert [row["spread"] for row in rows] == pytest.approx([r["accuracy_std"] for r in rows])


def test_the_tables_of_runs_know_every_pair(natural: Path) -> None:
    found = results(natural).differences()
    assert len(found) == 3
    assert set(found.column("results")) == {16}
    assert set(found.column("seeds")) == {2}
    for row in found:
        assert row["low"] <= row["gain"] <= row["high"]
        assert row["p_holm"] >= row["p_value"]


def test_the_sheet_and_the_page_have_the_same_columns(natural: Path, tmp_path: Path) -> None:
    heads = sheet(by_method(of(natural))).heads
    assert "worst tenth" in heads
    assert "AMI with wrist" in heads
    assert "ARI" not in heads
    (file,) = write_files(natural, tmp_path / "report.html")
    page = Page(file.read_text(encoding="utf-8"))
    assert "Every pair of methods" in page.headings
    for head in ("surely worse than alone", "AMI with wrist", "p corrected (Holm)"):
        assert head in page.said


def test_the_page_of_one_run_says_what_its_clusters_agree_with(
    natural: Path, tmp_path: Path
) -> None:
    (file,) = write_files(natural / "ifca-seed0", tmp_path / "report.html")
    page = Page(file.read_text(encoding="utf-8"))
    for words in ("AMI with wrist", "Worst tenth of clients", "right", "test examples"):
        assert words in page.said


def without(place: Path, folder: str, to: Path) -> Path:
    """The same runs but for one."""
    shutil.copytree(place, to, ignore=shutil.ignore_patterns(folder, "report.html"))
    return to


def test_where_methods_have_different_numbers_of_seeds_a_column_says_how_many(
    natural: Path, tmp_path: Path
) -> None:
    place = without(natural, "ifca-seed1", tmp_path / "part")
    text = printed(place, 80)
    first = text[: text.index("accuracy: mean")].splitlines()
    assert {words[0]: words[1] for line in first if (words := line.split())[0] in METHODS} == {
        "fedavg": "2",
        "ifca": "1",
        "local-only": "2",
    }
    assert "population standard deviation over the seeds of each row" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    page = Page(write_files(place)[0].read_text())
    assert "3 methods, 1 to 2 seeds each (0, 1)." in page.said
    table = sheet(by_method(of(place)))
    counts = {row[0]: row[table.heads.index("seeds")] for row in table.rows}
    assert counts == {"fedavg": "2", "ifca": "1", "local-only": "2"}


def test_without_test_examples_nothing_is_said_of_how_well_clients_are_served(
    tmp_path: Path,
) -> None:
    federation = blobs()
    x, y = federation.test.of(0)
    empty = [(x[:0], y[:0])] * federation.num_clients
    train = [federation.train.of(client) for client in range(federation.num_clients)]
    untested = Federation.from_arrays(train, empty, num_classes=federation.num_classes)
    for name in ("fedavg", "ifca"):
        Run(METHODS[name], untested, mlp()).save(tmp_path / "runs" / f"{name}-seed0", rounds=1)
    runs = of(tmp_path / "runs")
    assert list(standing_tables.statistics(runs)) == []
    page = Page(write_files(tmp_path / "runs")[0].read_text())
    assert page.headings == ["Methods side by side", "Round by round", "Run it again"]
    assert "No method is named as the best: the loss of none is known." in page.said
    assert "losses of a client" in page.said
    assert "Loss is the mean over clients" not in page.said
    assert "inf" not in page.said.split()
    assert "Every seed" not in page.titles


def test_signs_that_latex_reads_otherwise_are_written_as_they_are() -> None:
    table = Sheet(("AMI with temp^2", "a~b", "c_\\d"), ())
    head = r"AMI with temp\textasciicircum{}2 & a\textasciitilde{}b & c\_\textbackslash{}d \\"
    assert head in table.latex


def test_signs_between_columns_of_markdown_are_escaped_in_names() -> None:
    table = Sheet(("method", "AMI with a|b"), (("c|d", "0.5"),))
    assert table.markdown == "| method | AMI with a\\|b |\n| --- | ---: |\n| c\\|d | 0.5 |\n"
