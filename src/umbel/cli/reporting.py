"""Commands that take runs elsewhere: to a page, or to another tool."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("runs", type=click.Path(path_type=Path))
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
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--to", type=click.Choice(["tensorboard", "mlflow"]), required=True)
@click.option("--out", help="A folder for TensorBoard, or a tracking URI of MLflow.")
def export(run: Path, to: str, out: str | None) -> None:
    """Write the course of a RUN for TensorBoard, or log it to MLflow."""
    from umbel import exporting
    from umbel.folder import RunFolder

    folder = RunFolder.open(run)
    if to == "tensorboard":
        where = exporting.to_tensorboard(folder, None if out is None else Path(out))
        click.echo(f"{where}: see it by tensorboard --logdir {where.parent}")
    else:
        found = exporting.to_mlflow(folder, out)
        click.echo(f"experiment {folder.experiment.name}: run {found}")
