"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

from umbel.data.sources import DATA_DIR_VARIABLE

runs_dir_option = click.option(
    "--runs-dir",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where the folders of runs are.",
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help=f"Where data sets are, one folder each. Default: {DATA_DIR_VARIABLE}, else the hub.",
)
