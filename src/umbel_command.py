"""The command `umbel`, outside the package so that it can be stopped while that is loading."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Load the command line and run it."""
    try:
        from umbel import cli
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(INTERRUPTED)
    cli.main()
