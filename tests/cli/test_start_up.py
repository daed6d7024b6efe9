"""What the command line loads before it answers: help must not wait for PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import umbel
from umbel.cli import COMMANDS, app

SLOW = ("torch", "scipy", "sklearn", "numpy", "pandas", "datasets", "flwr", "vl_convert", "jinja2")

LIGHT = (
    "--help",
    "--version",
    "list",
    "list methods",
    "list experiments digits",
    "list papers --json",
    "run --help",
    "compare --help",
    "show --help",
    "report --help",
    "reproduce --help",
)


def ended_in(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """A program that a process of its own has run in this folder."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_what_needs_no_computation_loads_nothing_that_computes(tmp_path: Path) -> None:
    program = (
        "import sys, umbel_command\n"
        f"for line in {LIGHT!r}:\n"
        "    sys.argv = ['umbel', *line.split()]\n"
        "    try:\n"
        "        umbel_command.main()\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, end.code\n"
        f"    loaded = sorted(set({SLOW!r}) & set(sys.modules))\n"
        "    assert not loaded, (line, loaded)\n"
    )
    ended = ended_in(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


RUN = ("--set", "rounds=1", "--set", "scenario.clients=8", "--set", "scenario.examples=[20]")

AWAY = (
    "run fedavg-digits " + " ".join(RUN),
    "show runs/fedavg-digits-seed0",
)


@pytest.mark.long
def test_commands_load_no_papers_and_no_library_that_they_do_not_need(tmp_path: Path) -> None:
    program = (
        "import gc, sys, umbel, umbel.cli\n"
        f"for line in {AWAY!r}:\n"
        "    sys.argv = ['umbel', *line.split()]\n"
        "    try:\n"
        "        umbel.cli.main()\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, (line, end.code)\n"
        "loaded = [name for name in sys.modules if name.startswith('umbel.papers')]\n"
        "loaded += sorted({'sklearn', 'scipy', 'pandas'} & set(sys.modules))\n"
        "assert 'torch' in sys.modules\n"
        "assert not loaded, loaded\n"
        "assert gc.isenabled()\n"
        "assert gc.get_freeze_count() > 10**5, 'modules are searched for garbage'\n"
    )
    ended = ended_in(tmp_path, program)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.long
@pytest.mark.parametrize("module", ["Sequential", "Own"])
def test_a_run_of_any_module_loads_no_compiler(module: str) -> None:
    program = (
        "import sys, umbel\n"
        "from torch.nn import Linear, ReLU, Sequential\n"
        "class Own(Sequential): pass\n"
        "federation = umbel.testing.blobs()\n"
        f"net = umbel.Net(lambda: {module}(Linear(6, 8), ReLU(), Linear(8, 3)))\n"
        "for method in umbel.IFCA(2), umbel.PerFedAvg(variant='exact'):\n"
        "    run = umbel.Run(method, federation, net)\n"
        "    assert len(list(run.rounds(2))) == 2\n"
        "slow = ('sympy', 'torch._dynamo', 'torch.fx.experimental.symbolic_shapes')\n"
        "loaded = [name for name in slow if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_public_names_are_there_although_they_are_loaded_late() -> None:
    program = (
        "import sys, umbel\n"
        "assert 'torch' not in sys.modules\n"
        "assert {'FLACC', 'scenario', 'Net'} <= set(dir(umbel))\n"
        "from umbel import FLACC, UsageError\n"
        "assert umbel.FLACC is FLACC\n"
        "assert umbel.checks.UsageError is UsageError\n"
        "names = {}\n"
        "exec('from umbel import *', names)\n"
        "assert set(umbel.__all__) <= set(names)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert all(getattr(umbel, name) is not None for name in umbel.__all__)
    with pytest.raises(AttributeError, match="no attribute 'FLAC'"):
        umbel.FLAC  # type: ignore[attr-defined]  # noqa: B018


def test_every_command_is_where_its_line_of_help_says() -> None:
    context = app.make_context("umbel", ["list"])
    for name, place in COMMANDS.items():
        command = app.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert len(place.help) <= 50
    assert app.get_command(context, "fly") is None


@pytest.mark.long
def test_without_flower_the_extra_that_brings_it_is_named(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules['flwr'] = None\n"
        "try:\n"
        "    import umbel.flower\n"
        "except ModuleNotFoundError as error:\n"
        "    assert error.name == 'flwr'\n"
        "    print(error)\n"
        "import umbel\n"
        "assert not hasattr(umbel, 'flower')\n"
        "try:\n"
        "    umbel.flower\n"
        "except AttributeError as error:\n"
        "    print(error)\n"
        "from umbel import cli\n"
        "sys.argv = ['umbel', 'flower', 'new', 'app']\n"
        "cli.main()\n"
    )
    ended = ended_in(tmp_path, program)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    imported, asked = ended.stdout.splitlines()
    for said in (imported, asked, line):
        assert 'umbel.flower needs an extra: pip install "umbel[flower]"' in said
    assert not (tmp_path / "app").exists()
