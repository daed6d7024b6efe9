"""What the documents show works, and what there is to configure is in them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import umbel
from umbel.aggregation import Averaging
from umbel.algorithms import ALGORITHMS
from umbel.config import structured
from umbel.data.scenarios import SCENARIOS
from umbel.data.shifts import SHIFTS
from umbel.engines import EngineSettings
from umbel.engines.wrappers import Faults
from umbel.experiment import Experiment
from umbel.models import MODELS
from umbel.optimizers import OPTIMIZERS
from umbel.privacy import Privacy
from umbel.validation import Limits
from umbel.work import LocalTraining

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_documents_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "python"):
        if block.startswith("def round(self"):  # an excerpt of a class
            compile(block, page.name, "exec")
        else:
            exec(compile(block, page.name, "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_experiments_in_the_documents_are_accepted(page: Path) -> None:
    for block in blocks(page, "toml"):
        assert isinstance(structured(tomllib.loads(block), Experiment), Experiment)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]*)", page.read_text(encoding="utf-8")):
        assert not target or (page.parent / target).exists(), target


def test_every_setting_is_documented() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    examples = [block for page in PAGES for block in blocks(page, "toml")]
    code = " ".join([*re.findall(r"`([^`]*)`", text), *examples])
    named = set(re.findall(r"[a-z_0-9]+", code))
    kinds: list[Any] = [
        Experiment,
        Limits,
        Faults,
        Privacy,
        EngineSettings,
        LocalTraining,
        Averaging,
        *(entry for entry in SCENARIOS.values() if isinstance(entry, type)),
        *ALGORITHMS.values(),
        *MODELS.values(),
        *SHIFTS.values(),
        *OPTIMIZERS.values(),
    ]
    for kind in kinds:
        missing = {member.name for member in fields(kind)} - named
        assert not missing, f"{kind}: {missing}"


def test_every_method_has_a_section_and_a_row() -> None:
    sections = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ALGORITHMS:
        assert f"\n## {name}\n" in sections
        assert f"| `{name}` |" in readme


def test_the_example_method_finds_the_groups(tmp_path: Path) -> None:
    experiment = umbel.read(ROOT / "examples" / "my_algorithm.toml", ["rounds=12"])
    folder = umbel.RunFolder.create(tmp_path / "run", experiment)
    *_, record = umbel.execute(folder, umbel.Sources.default())
    assert record.ari == 1.0
