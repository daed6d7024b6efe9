"""The installed command, before the package is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import umbel_command


def test_stopped_while_it_loads_it_says_so_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt\n")  # as Ctrl-C raises it
    source = Path(umbel_command.__file__).parent
    ended = subprocess.run(
        [sys.executable, "-c", "import umbel_command; umbel_command.main()"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (130, "stopped\n", "")
