"""Commands that take runs elsewhere: to a page, or to another tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from umbel.checks import check
from umbel.cli.completing import complete_runs

if TYPE_CHECKING:
    from umbel.runs.model_export import Format

COURSES = ("tensorboard", "mlflow")
MODELS = ("onnx", "torch", "safetensors")


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the page goes. Default: report.html in the folder.",
)
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the figures there, too, as PNG and SVG.",
)
def report(runs: Path, out: Path | None, figures: Path | None) -> None:
    """Write one page, to be opened in a browser, about a run or a folder of RUNS."""
    from umbel.report import write_report

    written = write_report(runs, out, figures)
    click.echo(f"{written[0]}: {written[0].stat().st_size / 1e6:.1f} MB")
    if figures is not None:
        click.echo(f"{figures}: {len(written) - 1} files")


@click.command()
@click.argument("run", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option("--to", type=click.Choice([*COURSES, *MODELS]), required=True)
@click.option(
    "--out", help="A folder for TensorBoard, a tracking URI of MLflow, a file for a model."
)
@click.option("--client", help="Export the model that this client is served.")
@click.option("--cluster", type=int, help="Export the model of this cluster.")
@click.option("--net", help="The net of a run made in Python, where you have it: module:name.")
def export(
    run: Path,
    to: str,
    out: str | None,
    client: str | None,
    cluster: int | None,
    net: str | None,
) -> None:
    """Write a RUN for other tools: its course, or the model of a client or a cluster.

    The course goes to TensorBoard or MLflow, a model into an ONNX file, a program of torch.export
    (torch), or a file of its tensors (safetensors).
    """
    from umbel.report import exporting
    from umbel.runs.execution import load
    from umbel.runs.folder import RunFolder
    from umbel.runs.model_export import export_model
    from umbel.runs.own import find_net

    folder = RunFolder.open(run)
    if to in COURSES:
        given = {"--client": client, "--cluster": cluster, "--net": net}
        for name, value in given.items():
            check(value is None, name, value, f"for --to {to}: a model goes to {', '.join(MODELS)}")
    if to == "tensorboard":
        where = exporting.to_tensorboard(folder, None if out is None else Path(out))
        click.echo(f"{where}: see it by tensorboard --logdir {where.parent}")
    elif to == "mlflow":
        found = exporting.to_mlflow(folder, out)
        click.echo(f"experiment {folder.experiment.name}: run {found}")
    else:
        result = load(run, None if net is None else find_net(net))
        done = export_model(result, cast("Format", to), client=client, cluster=cluster, out=out)
        most = f"{done.largest_difference:.2g} at most, on {done.num_examples} random examples"
        click.echo(f"{done.file}: its outputs differ from the model's by {most}")
