"""The rules of the code that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import umbel

ROOT = Path(umbel.__file__).parent
CHECKOUT = Path(__file__).parents[1]

MAY_BE_SEEN_BY_ALGORITHMS = (
    "umbel.flow",
    "umbel.server.ask",
    "umbel.client.work",
    "umbel.server.numbering",
    "umbel.server.clustering",
    "umbel.server.clusterers",
    "umbel.server.aggregation",
    "umbel.server.averaging_rules",
    "umbel.server.robust_rules",
    "umbel.server.robust_rules",
    "umbel.server.cluster_test",
    "umbel.server.repeated_rows",
    "umbel.server.features",
    "umbel.server.shares",
    "umbel.algorithms.base",
    "umbel.algorithms.by_batch",
    "umbel.algorithms.mixing",
    "umbel.algorithms.watched",
    "umbel.checks",
    "umbel.client.layout",
    "umbel.client.optimizers",
    "umbel.client.routing",
    "umbel.summary",
)

FLOORS = (
    ("version", "checks", "cores", "seeds", "settings", "summary", "notebooks", "help", "files"),
    ("client", "networks"),
    ("data", "flow", "reduction"),
    ("server", "preflight", "engines"),
    ("algorithms", "method"),
    ("run",),
    ("experiment",),
    ("folder",),
    ("newcomers", "export"),
    ("result", "testing"),
    ("report",),
    ("papers", "flower", "advice", "bench"),
    ("cli",),
)
"""The rooms of the package, lowest floor first: what a module imports is on its floor or below."""

PRINTING = {"print", "pprint"}
SHOWING = (
    "report/terminal/progress.py"  # `umbel.progress`, which shows how a run goes if it is asked to
)


@dataclass(frozen=True)
class Source:
    """One file of the package, read once."""

    name: str
    text: str
    tree: ast.Module
    imported: frozenset[str]

    def calls(self) -> set[str]:
        """The names of the functions that are called by their bare names."""
        called = (node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return {function.id for function in called if isinstance(function, ast.Name)}


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno} imports relatively"
            names = [f"umbel.{alias.name}" for alias in node.names]
            yield from names if node.module == "umbel" else [str(node.module)]


def source(file: Path) -> Source:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text, str(file))
    above = ROOT if file.is_relative_to(ROOT) else CHECKOUT
    return Source(file.relative_to(above).as_posix(), text, tree, frozenset(imported(tree)))


@cache
def sources() -> list[Source]:
    return [source(file) for file in sorted(ROOT.rglob("*.py"))]


def benchmark_sources() -> list[Source]:
    return [source(file) for file in sorted((CHECKOUT / "benchmarks").rglob("*.py"))]


def algorithms() -> list[Source]:
    return [each for each in sources() if each.name.startswith("algorithms/")]


def floor(module: str) -> int | None:
    """The number of the floor of a module of the package."""
    room = f"{module}.".split(".")[1]
    return next((number for number, rooms in enumerate(FLOORS) if room in rooms), None)


def test_algorithms_see_no_engine_no_data_and_not_each_other() -> None:
    offenders = {
        f"{each.name} imports {module}"
        for each in algorithms()
        if each.name != "algorithms/__init__.py"
        for module in each.imported
        if f"{module}.".startswith("umbel.")
        and not f"{module}.".startswith(tuple(f"{name}." for name in MAY_BE_SEEN_BY_ALGORITHMS))
    }
    of_all = {f"algorithms/base.py imports umbel.{module}" for module in ("seeds", "settings")}
    assert offenders <= of_all


def test_only_the_flower_package_imports_flwr() -> None:
    users = [s.name for s in sources() if any(f"{m}.".startswith("flwr.") for m in s.imported)]
    assert [name for name in users if not name.startswith("flower/")] == []


def test_only_the_command_line_prints() -> None:
    others = [each for each in sources() if not each.name.startswith("cli/")]
    assert [each.name for each in others if each.calls() & PRINTING] == []
    showing = {"click", "rich.console", "rich.progress"}
    assert {each.name for each in others if each.imported & showing} <= {SHOWING}


def test_no_floor_imports_a_higher_one() -> None:
    for each in sources():
        here = floor(f"umbel.{each.name.removesuffix('.py').replace('/', '.')}")
        if here is not None and "/template/" not in each.name:
            higher = [module for module in each.imported if (floor(module) or 0) > here]
            assert not higher, f"{each.name} is on floor {here} and imports {higher}"


def modules_imported(each: Source, known: Mapping[str, str]) -> set[str]:
    """The files of the package that one imports, in functions and for type checkers, too."""
    found = set[str]()
    for node in ast.walk(each.tree):
        if isinstance(node, ast.ImportFrom):
            within = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= within if within <= known.keys() else {str(node.module), *within}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {known[name] for name in found if name in known} - {each.name}


def test_no_file_is_in_a_circle_of_files() -> None:
    names = {each.name.removesuffix(".py").removesuffix("/__init__"): each for each in sources()}
    known = {f"umbel.{name.replace('/', '.')}": each.name for name, each in names.items()}
    graph = {each.name: modules_imported(each, known) for each in names.values()}
    assert list(TopologicalSorter(graph).static_order())  # raises `CycleError`


def test_every_module_is_on_a_floor_and_few_are_loose() -> None:
    rooms = {each.name.split("/")[0].removesuffix(".py") for each in sources()}
    nowhere = {room for room in rooms if floor(f"umbel.{room}") is None}
    assert nowhere == {"__init__", "__main__", "experiments"} & nowhere
    assert len([each for each in sources() if "/" not in each.name]) <= 12


def test_files_say_what_they_are() -> None:
    files = [*sources(), *benchmark_sources()]
    assert [each.name for each in files if not ast.get_docstring(each.tree)] == []


def test_nothing_is_pickled_and_no_global_generator_is_used() -> None:
    modules = {"pickle", "random", "dill", "cloudpickle", "joblib"}
    calls = ("torch.load(", "torch.save(", "np.random.seed", "np.random.rand")
    seeding = ["client/seeding.py"]  # for modules of others, and it leaves them as they were
    assert [each.name for each in sources() if each.imported & modules] == seeding
    found = [each.name for each in sources() if any(call in each.text for call in calls)]
    assert found == seeding


def test_public_names_are_pinned() -> None:
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
        *(
            "SGD",
            "Adam",
            "Algorithm",
            "Sattler",
            "FedEM",
            "FedLEASE",
            "Sharing",
            "Joint",
            "Oracle",
            "Assignment",
        ),
        *("ClusterCount", "CosineRestarts", "count_clusters", "Results", "results"),
        *("Advice", "advise", "FixedClusters"),
        *("Attack", "Averaging", "EngineSettings", "Experiment", "Faults", "FedAvg", "FedProx"),
        *("FedAdagrad", "FedAdam", "FedAvgM", "FedYogi", "TrimmedMean"),
        *("Median", "GeometricMedian", "Krum", "MultiKrum", "CentredClipping", "NormBound"),
        *("FLTrust", "FLAME"),
        *("Available", "OwnTraining", "Participation", "Weighted"),
        *(
            "Federation",
            "Gradient",
            "InverseTime",
            "Limits",
            "LocalOnly",
            "LocalTraining",
            "Net",
            "Objective",
        ),
        *(
            "QuorumError",
            "Record",
            "Restarts",
            "Result",
            "Run",
            "RowEncoder",
            "RunFolder",
            "Scenario",
            "Sequential",
        ),
        *("PFedMe", "PerFedAvg", "Personal", "Privacy", "RandomClusters"),
        *("CLoVE", "FedProto", "FeSEM", "FedGroup", "FedRC", "FedSoft", "SRFCA", "StoCFL"),
        *("AdaptiveFedAvg", "Event", "FedCCFA", "FedDrift", "Membership", "Time"),
        *(
            "Contrast",
            "ControlVariates",
            "DynamicPenalty",
            "HeadFirst",
            "MixedModel",
            "PersonalModel",
        ),
        *("Served", "Setup", "Sources", "State", "UsageError", "Vectorised", "__version__"),
        *("execute", "find_experiment", "finish", "load", "read", "resume", "scenario"),
        *("plot", "plot_clusters", "progress", "table", "write_report"),
    }
    for public in umbel.__all__:
        assert hasattr(umbel, public)


def test_only_the_oracle_is_shown_the_planted_groups() -> None:
    nodes = {each.name: ast.walk(each.tree) for each in algorithms()}
    readers = {
        name
        for name, found in nodes.items()
        if any(isinstance(node, ast.Attribute) and node.attr == "groups" for node in found)
    }
    assert readers == {"algorithms/oracle.py"}
