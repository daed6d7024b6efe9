"""Commands that take runs elsewhere: to a page, or to another tool."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, cast

import click

from umbel.checks import check
from umbel.cli.catalogue import complete_runs
from umbel.cli.options import FilePath, no_import_option, only_option, without_option
from umbel.cli.printing import say

if TYPE_CHECKING:
    from umbel.export.models import Format

COURSES = ("tensorboard", "mlflow")
MODELS = ("onnx", "torch", "safetensors", "peft")


@click.command()
@click.argument("runs", type=FilePath(), shell_complete=complete_runs)
@click.option(
    "--out",
    type=FilePath(dir_okay=False),
    help="Where the page goes. Default: report.html in the folder.",
)
@click.option(
    "--figures",
    type=FilePath(file_okay=False),
    help="Write the figures there, too, as PNG, SVG and PDF.",
)
@only_option
@without_option
def report(
    runs: Path,
    out: Path | None,
    figures: Path | None,
    only: tuple[str, ...],
    without: tuple[str, ...],
) -> None:
    """Write one page, to be opened in a browser, about a run, a folder of RUNS, or advice."""
    from umbel.advice.advice_folder import write_page
    from umbel.files.reading import check_folder, check_place
    from umbel.folder.how_to_continue import holds_advice
    from umbel.report.pages.writing import write_files

    if out is not None:
        check_place(out, "--out")
    if figures is not None:
        check_folder(figures, "--figures")
    if holds_advice(runs):
        check(figures is None, "--figures", str(figures), "allowed: advice has only a page")
        page = write_page(runs, out)
        say(f"{page}: {page.stat().st_size / 1e6:.1f} MB")
        return
    written = write_files(runs, out, figures, only, without)
    say(f"{written[0]}: {written[0].stat().st_size / 1e6:.1f} MB")
    if figures is not None:
        say(f"{figures}: {len(written) - 1} files")


@click.command()
@click.argument("run", type=FilePath(), shell_complete=complete_runs)
@click.option("--to", type=click.Choice([*COURSES, *MODELS]), required=True)
@click.option(
    "--out",
    help="A folder for TensorBoard or peft, a tracking URI of MLflow, a file for a model.",
)
@click.option("--client", help="Export the model that this client is served.")
@click.option("--cluster", type=int, help="Export the model of this cluster.")
@click.option("--net", help="The net of a run made in Python, where you have it: module:name.")
@no_import_option
def export(
    run: Path,
    to: str,
    out: str | None,
    client: str | None,
    cluster: int | None,
    net: str | None,
    no_import: bool,
) -> None:
    """Write a RUN for other tools: its course, or the model of a client or a cluster.

    The course goes to TensorBoard or MLflow, a model into an ONNX file, a program of torch.export
    (torch), a file of its tensors (safetensors), or a folder of its adapters (peft).
    """
    from umbel.cli.options import allow_parts, announce
    from umbel.experiment.python_run import find_net
    from umbel.export import trackers
    from umbel.export.models import export_model
    from umbel.folder.run_folder import RunFolder
    from umbel.result.run import load

    folder = RunFolder.open(run)
    if to in COURSES:
        given = {"--client": client, "--cluster": cluster, "--net": net}
        for name, value in given.items():
            check(value is None, name, value, f"for --to {to}: a model goes to {', '.join(MODELS)}")
    if to == "tensorboard":
        where = trackers.to_tensorboard(folder, None if out is None else Path(out))
        say(f"{where}: see it by tensorboard --logdir {quote(str(where.parent))}")
    elif to == "mlflow":
        logged = trackers.to_mlflow(folder, out)
        say(f"experiment {folder.experiment.name}: run {logged}")
    else:
        if net is not None:
            announce([net], no_import)
        result = load(run, None if net is None else find_net(net))
        allow_parts(result.experiment, ["model"] if net is None else [], no_import)
        done = export_model(result, cast("Format", to), client=client, cluster=cluster, out=out)
        most = f"{done.largest_difference:.2g} at most, on {done.num_examples} random examples"
        compared = f"its outputs differ from the model's by {most}"
        refused = "written, but not compared: the model does not accept random inputs"
        say(f"{done.file}: {compared if done.num_examples else refused}")
        if done.encoding is not None:
            say(f"{done.encoding}: how its inputs are made")
