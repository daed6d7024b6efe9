"""Commands that take runs elsewhere: to a page, or to another tool."""

from __future__ import annotations

from pathlib import Path

import click

from umbel.report import write_report


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
    written = write_report(runs, out, figures)
    click.echo(f"{written[0]}: {written[0].stat().st_size / 1e6:.1f} MB")
    if figures is not None:
        click.echo(f"{figures}: {len(written) - 1} files")


COMMANDS = (report,)
