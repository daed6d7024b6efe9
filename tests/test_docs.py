"""What the documents show works, and what there is to configure is in them."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor

import umbel
from tests.pages import EXCERPT, PAGES, ROOT
from umbel import method
from umbel.algorithms import ALGORITHMS
from umbel.algorithms import base as algorithms_base
from umbel.algorithms.base import Algorithm, Setup, State
from umbel.client.optimizers import OPTIMIZERS
from umbel.client.work import LocalTraining
from umbel.data.scenarios import SCENARIOS
from umbel.data.shifts import SHIFTS
from umbel.engines import EngineSettings
from umbel.engines.privacy import Privacy
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.validation import Limits
from umbel.experiment.toml_file import structured
from umbel.networks import MODELS
from umbel.result.run import Experiment
from umbel.run.participation import PARTICIPATIONS
from umbel.run.personal import Personal
from umbel.server import aggregation, ask
from umbel.server.aggregation import RULES, Averaging
from umbel.server.ask import Context

VERBS = ROOT / "docs" / "reference" / "method.md"
LINK = r"\]\((?!https?:)([^)#]+)"


def read(*pages: Path) -> str:
    return "".join(page.read_text(encoding="utf-8") for page in pages)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", read(page), re.DOTALL)


def test_rounds_that_the_documents_show_work() -> None:
    shown = [block for page in (*PAGES, VERBS) for block in blocks(page, "python")]
    excerpts = [block for block in shown if block.startswith(EXCERPT)]
    assert excerpts
    for block in excerpts:
        namespace = {**vars(algorithms_base), **vars(aggregation), **vars(ask)}
        exec(compile(block, "a document", "exec"), namespace)
        drive_a_round(namespace["round"])


@dataclass(frozen=True)
class Mixed(State):
    """What the methods that the documents show rounds of need of a state."""

    weights: Tensor  # (M, K)


@dataclass(frozen=True)
class Shown(Algorithm[Any]):
    """A method with a round from the documents."""

    shown: Callable[..., Any]
    num_clusters: int = 2
    local: LocalTraining = field(default_factory=lambda: LocalTraining(epochs=1))
    averaging: Averaging = field(default_factory=Averaging)

    def init(self, setup: Setup) -> Mixed:
        models = setup.new_models(self.num_clusters)
        nobody = torch.zeros(setup.num_clients, dtype=torch.long)
        return Mixed(models, nobody, torch.full((setup.num_clients, 2), 0.5))

    def round(self, state: Any, ctx: ask.Context) -> Any:
        after = yield from self.shown(self, state, ctx)
        return replace(state, models=after.models, labels=after.labels)


def drive_a_round(shown: Callable[..., Any]) -> None:
    net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    federation = umbel.scenario("rotated-digits", clients=4)
    run = umbel.Run(Shown(shown), federation, net, participation=0.5)
    before = run.start(1)
    ((after, _),) = run.rounds(1)
    assert not torch.equal(after.models, before.models)
    assert after.models.shape == before.models.shape
    assert after.labels.shape == before.labels.shape


def verbs() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(ask).items():
        if inspect.isgeneratorfunction(member):
            assert getattr(method, name) is member
            yield name, member


def test_the_table_of_verbs_is_complete_and_true() -> None:
    text = read(VERBS)
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \| (.*) \|$", text, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted(name for name, _ in verbs())
    kinds = [kind for kind in vars(ask).values() if is_dataclass(kind) and kind is not Context]
    columns = {member.name for kind in kinds for member in fields(kind)}
    for name, arguments, answer in rows:
        verb = getattr(ask, name)
        needed = [
            parameter.name
            for parameter in inspect.signature(verb).parameters.values()
            if parameter.default is parameter.empty
        ]
        assert arguments.split(", ") == needed, name
        _, _, reply = get_args(get_type_hints(verb)["return"])
        members = {member.name for member in fields(reply)} - {"clients"}
        assert members == columns & set(re.findall(r"`(\w+)`", answer)), name


def test_every_name_of_the_package_in_the_documents_is_there() -> None:
    text = re.sub(r"```.*?```", "", read(*PAGES), flags=re.DOTALL)
    for name in re.findall(r"`(umbel(?:\.[A-Za-z_]\w*)+)\b", text):
        module, found = umbel.__name__, umbel
        for part in name.split(".")[1:]:
            module = f"{module}.{part}"
            if not hasattr(found, part):
                importlib.import_module(module)
            found = getattr(found, part)


def test_experiments_in_the_documents_are_accepted() -> None:
    for page in PAGES:
        for block in blocks(page, "toml"):
            experiment = structured(tomllib.loads(block), Experiment)
            assert isinstance(experiment, Experiment), page.name


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(LINK, read(page))]
    assert [(p.name, link) for p, link in links if not (p.parent / link).exists()] == []


def test_files_that_the_documents_name_are_there() -> None:
    pages = [*PAGES, VERBS, ROOT / "CONTRIBUTING.md"]
    files = set(re.findall(r"(?:src/umbel|tests|examples)/[\w/-]*\w(?:\.\w+)?", read(*pages)))
    assert "src/umbel/flow.py" in files
    assert sorted(file for file in files if not (ROOT / file).exists()) == []


def test_every_setting_is_documented() -> None:
    text = read(*PAGES)
    examples = [block for page in PAGES for block in blocks(page, "toml")]
    code = " ".join([*re.findall(r"`([^`]*)`", text), *examples])
    named = set(re.findall(r"[a-z_0-9]+", code))
    kinds: list[Any] = [
        Experiment,
        Limits,
        Faults,
        Privacy,
        Personal,
        EngineSettings,
        LocalTraining,
        Averaging,
        *(entry for entry in SCENARIOS.values() if isinstance(entry, type)),
        *(entry for entry in ALGORITHMS.values() if isinstance(entry, type)),
        *RULES.values(),
        *PARTICIPATIONS.values(),
        *MODELS.values(),
        *SHIFTS.values(),
        *OPTIMIZERS.values(),
    ]
    for kind in kinds:
        missing = {member.name for member in fields(kind)} - named
        assert not missing, f"{kind}: {missing}"


def test_every_method_has_a_section_and_a_row() -> None:
    sections = read(ROOT / "docs" / "methods.md")
    readme = read(ROOT / "README.md")
    for name in ALGORITHMS:
        assert f"\n## {name}\n" in sections
        assert f"| `{name}` |" in readme


def test_the_example_method_finds_the_groups(tmp_path: Path) -> None:
    experiment = umbel.read(ROOT / "examples" / "my_algorithm.toml", ["rounds=12"])
    folder = umbel.RunFolder.create(tmp_path / "run", experiment)
    *_, record = umbel.execute(folder, umbel.Sources.default())
    assert record.ari == 1.0
