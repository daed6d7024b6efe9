"""The rules of the code that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import umbel

SOURCE = Path(umbel.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ALGORITHMS = sorted((SOURCE / "algorithms").glob("*.py"))

MAY_BE_SEEN_BY_ALGORITHMS = (
    "umbel.flow",
    "umbel.server.ask",
    "umbel.server.answers",
    "umbel.client.work",
    "umbel.server.clustering",
    "umbel.server.clusterers",
    "umbel.server.aggregation",
    "umbel.algorithms.base",
    "umbel.checks",
    "umbel.client.layout",
    "umbel.summary",
)

FLOORS = (
    ("version", "checks", "seeds", "settings", "summary", "notebooks", "words"),
    ("client", "networks"),
    ("data", "flow", "reduction"),
    ("server", "engines"),
    ("algorithms",),
    ("runs",),
    ("report",),
    ("papers", "flower"),
    ("cli",),
)
"""The rooms of the package, lowest floor first: what a module imports is on its floor or below."""

PRINTING = {"print", "pprint"}
SHOWING = "report/watching.py"  # `umbel.progress`, which shows how a run goes if it is asked to


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            names = [f"umbel.{alias.name}" for alias in node.names]
            yield from names if node.module == "umbel" else [str(node.module)]


def floor(module: str) -> int | None:
    """The number of the floor of a module of the package."""
    room = f"{module}.".split(".")[1]
    return next((number for number, rooms in enumerate(FLOORS) if room in rooms), None)


def name(file: Path) -> str:
    return str(file.relative_to(SOURCE))


@pytest.mark.parametrize("file", ALGORITHMS, ids=name)
def test_algorithms_see_no_engine_no_data_and_not_each_other(file: Path) -> None:
    if file.name == "__init__.py":
        return
    seen = [module for module in imported(file) if module.split(".")[0] == "umbel"]
    if file.name == "base.py":  # what all of them are
        seen.remove("umbel.settings")
    for module in seen:
        assert any(
            module == allowed or module.startswith(f"{allowed}.")
            for allowed in MAY_BE_SEEN_BY_ALGORITHMS
        ), f"{file.name} imports {module}"


@pytest.mark.parametrize("file", FILES, ids=name)
def test_only_the_flower_package_imports_flwr(file: Path) -> None:
    if "flower" not in file.relative_to(SOURCE).parts:
        assert not [module for module in imported(file) if module.split(".")[0] == "flwr"]


@pytest.mark.parametrize("file", FILES, ids=name)
def test_only_the_command_line_prints(file: Path) -> None:
    if file.parent.name == "cli":
        return
    calls = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    assert not called & PRINTING
    if name(file) != SHOWING:
        assert not {"click", "rich.console", "rich.progress"} & set(imported(file))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_no_floor_imports_a_higher_one(file: Path) -> None:
    here = floor(f"umbel.{'.'.join(file.relative_to(SOURCE).with_suffix('').parts)}")
    if here is not None and "template" not in file.parts:
        higher = [m for m in imported(file) if (floor(m) or 0) > here]
        assert not higher, f"{name(file)} is on floor {here} and imports {higher}"


def test_every_module_is_on_a_floor_and_few_are_loose() -> None:
    rooms = {file.relative_to(SOURCE).parts[0].removesuffix(".py") for file in FILES}
    nowhere = {room for room in rooms if floor(f"umbel.{room}") is None}
    assert nowhere == {"__init__", "__main__", "experiments"} & nowhere
    assert len([file for file in FILES if file.parent == SOURCE]) <= 12


@pytest.mark.parametrize("file", FILES, ids=name)
def test_files_and_functions_are_small_and_say_what_they_are(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no docstring"
    assert len(text.splitlines()) <= 300
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            docstring = ast.get_docstring(node)
            own = len((docstring or "").splitlines())
            assert node.end_lineno - node.lineno - own <= 45, f"{node.name} is long"


@pytest.mark.parametrize("file", FILES, ids=name)
def test_nothing_is_pickled_and_no_global_generator_is_used(file: Path) -> None:
    assert not {"pickle", "random", "dill", "cloudpickle", "joblib"} & set(imported(file))
    text = file.read_text(encoding="utf-8")
    for banned in ("torch.load(", "torch.save(", "np.random.seed", "np.random.rand"):
        assert banned not in text


def test_public_names_are_pinned() -> None:
    assert umbel.__all__ == sorted(umbel.__all__, key=_constants_classes_functions)
    assert set(umbel.__all__) == {
        *(
            "BINARY",
            "CFLGP",
            "CLASSIFICATION",
            "FLACC",
            "FLHC",
            "IFCA",
            "LCFL",
            "PACFL",
            "REGRESSION",
        ),
        *("SGD", "Adam", "Algorithm", "Sattler", "FedEM", "Joint", "Oracle", "Assignment"),
        *("ClusterCount", "count_clusters", "Results", "results"),
        *("Averaging", "EngineSettings", "Experiment", "Faults", "FedAvg", "FedProx"),
        *("Federation", "Gradient", "Limits", "LocalOnly", "LocalTraining", "Net", "Objective"),
        *("QuorumError", "Record", "Result", "Run", "RunFolder", "Scenario", "Sequential"),
        *("PFedMe", "PerFedAvg"),
        *("Served", "Setup", "Sources", "State", "UsageError", "Vectorised", "__version__"),
        *("execute", "find_experiment", "finish", "load", "read", "resume", "scenario"),
        *("plot", "plot_clusters", "progress", "table", "write_report"),
    }
    for public in umbel.__all__:
        assert hasattr(umbel, public)


def _constants_classes_functions(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("file", ALGORITHMS, ids=name)
def test_only_the_oracle_is_shown_the_planted_groups(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert ("groups" in read) == (file.name == "oracle.py")
