"""A run that goes on under another release says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.folder.test_finishing import stopped
from umbel.data.sources import Sources
from umbel.folder.execution import execute


@pytest.mark.parametrize("package", ["umbel.version.__version__", "torch.__version__"])
def test_a_checkpoint_resumed_by_another_release_is_told_of_with_both(
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = stopped(tmp_path / "run", 4, 2)
    name = package.removesuffix(".version.__version__").removesuffix(".__version__")
    monkeypatch.setattr(package, "2.99.0")
    list(execute(folder, Sources.default(None)))
    (said,) = caplog.messages
    assert said.startswith(f"the 4 rounds so far were done with {name} ")
    assert said.endswith("(here 2.99.0): the rest may differ from a run with one version")
