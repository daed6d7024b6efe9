"""The installed command, before the package is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import umbel_command


@pytest.mark.parametrize("module", ["click", "torch"])  # needed by all commands, and by this one
def test_stopped_while_it_loads_it_says_so_without_a_traceback(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt\n")  # as Ctrl-C raises it
    source = Path(umbel_command.__file__).parent
    program = "import sys, umbel_command; sys.argv = ['umbel', 'show', 'run']; umbel_command.main()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr.strip(), ended.stdout) == (130, "stopped", "")
