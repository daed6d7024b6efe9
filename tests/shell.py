"""A shell for tests of the command line, and small experiments to run in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from umbel import cli

SMALL = """
rounds = 4
participation = 0.5
[scenario]
name = "rotated-digits"
clients = 8
examples = [40]
[model]
name = "mlp"
hidden = [16]
[algorithm]
name = "{name}"
[algorithm.local]
epochs = 1
"""


class Shell:
    """Runs `umbel` in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys

    def clustering(self) -> None:
        """Put `both/ifca.toml` in the place of FLACC's, whose clusters soon have a model each."""
        file = (self.folder / "both" / "flacc.toml").rename(self.folder / "both" / "ifca.toml")
        file.write_text(SMALL.format(name="ifca").replace('"ifca"', '"ifca"\nnum_clusters = 3'))

    def __call__(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """What `umbel ARGUMENTS` prints on its two streams."""
        self.monkeypatch.setattr(sys, "argv", ["umbel", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = self.capsys.readouterr()
        assert (end.value.code or 0) == status, printed.err
        return printed.out, printed.err

    def refused(self, *arguments: str) -> str:
        """The one line that bad input gets, with exit status 2, no traceback and no table."""
        printed, errors = self(*arguments, status=2)
        assert "─" not in printed
        assert "Traceback" not in errors
        lines = [line for line in errors.strip().splitlines() if not line.startswith("imports '")]
        assert len(lines) == 1, errors
        return lines[0]
