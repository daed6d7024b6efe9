"""The example notebooks run from top to bottom in a kernel of their own, and are kept bare."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def cells(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return found


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_notebooks_are_kept_without_outputs_and_their_links_lead_somewhere(file: Path) -> None:
    for cell in cells(file):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
        for target in re.findall(r"\]\((?!https?:)([^)#]*)", "".join(cell["source"])):
            assert cell["cell_type"] == "code" or (file.parent / target).exists(), target


def executed(file: Path, folder: Path) -> list[dict[str, Any]]:
    """The cells of a copy that a kernel was through with."""
    copy = folder / file.name
    shutil.copy(file, copy)
    homes = {
        name: str(folder) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")
    }
    done = subprocess.run(
        [sys.executable, "-c", "import nbclient.cli as c; c.main()", "--inplace", copy.name],
        cwd=folder,
        env=os.environ | homes | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return cells(copy)


@pytest.mark.long
def test_the_first_look_shows_what_it_promises(tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel", "vl_convert"):
        pytest.importorskip(package, reason="the extra umbel[test] is not installed")
    (file,) = (file for file in NOTEBOOKS if file.name == "first-look.ipynb")
    outputs = [out for cell in executed(file, tmp_path) for out in cell.get("outputs", [])]
    shown = [out["data"] for out in outputs if "data" in out]
    pages = ["".join(data.get("text/html", "")) for data in shown]
    assert sum("image/png" in data for data in shown) == 2
    assert "Federation: 12 clients" in pages[0]
    bars = [page for page in pages if "<progress" in page]
    assert len(bars) == 3
    assert all('value="30" max="30"' in bar and "round 30/30" in bar for bar in bars)
    (table,) = (page for page in pages if "worst client" in page)
    assert all(f">{name}<" in table for name in ("fedavg", "ifca", "flacc"))
    said = "".join("".join(out["text"]) for out in outputs if out.get("name") == "stdout")
    assert "new pump of maker 2 joins pump 2, pump 5, pump 8, pump 11" in said
    assert "new pump of maker 0 joins pump 0, pump 3, pump 6, pump 9" in said
    # Nothing warns, and no bar is drawn a second time as text.
    assert not [out["text"] for out in outputs if out.get("name") == "stderr"]
