"""Runs documents from top to bottom, as a reader would: `python -m tests.pages [PAGE ...]`.

Every page gets an empty folder of its own, and each of its Python and shell blocks runs there in
order. What a page shows of setting up, and what takes more than a few minutes, is left out here:
`ELSEWHERE` says where it is run instead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from umbel import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]

ELSEWHERE: Mapping[str, str] = {
    "git clone": "setting up",
    "make ": "the continuous integration",
    "PIP_EXTRA_INDEX_URL": "the continuous integration",
    ". .venv": "setting up",
    "pip install": "setting up",
    "eval ": "an interactive shell",
    "_UMBEL_COMPLETE": "an interactive shell",
    "python -m benchmarks": "tests/test_benchmarks.py, small",
    "python -m tests.pages": "this file",
    "python -m tests.fuzz": "tests/fuzz, in bounded form",
    "python -m umbel.papers.page": "tests/papers",
    "umbel advise flights": "`python -m benchmarks.natural`, where the data are",
    "umbel advise watch": "`python -m benchmarks.natural`, where the data are",
    "umbel compare words": "`python -m benchmarks.words`, where the data are",
    "umbel compare packages-adapters": "by hand, where the encoder and the data are",
    "umbel compare watch": "tests/data/scenarios/test_watch.py, on made recordings",
    "umbel bench": "tests/bench, at size smoke",
    "umbel reproduce": "tests/papers/test_reproductions.py, at size smoke",
    "umbel compare rotated-digits --seeds 5": "`make run`",
}
"""How lines begin that are not run here, and what runs them."""

EXCERPT = "def round(self"
"""How an excerpt of a class begins: `tests/test_docs.py` runs those."""

WITH_SERVERS = ("flower.md", "ray.md")
"""Their commands start servers: `tests/flower` and `tests/engines/test_ray.py` run them."""


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    language: str
    text: str
    line: int  # where it begins


def blocks(page: Path) -> Iterator[Block]:
    """The Python and shell blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(python|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield Block(found[1], found[2], text[: found.start()].count("\n") + 1)


def commands(block: Block) -> Iterator[str]:
    """The lines of a shell block without their comments; a line may go on with a backslash."""
    for line in block.text.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s)#.*", "", line).strip()
        if command and not command.startswith(tuple(ELSEWHERE)):
            yield command


def shortened(words: Sequence[str]) -> list[str]:
    """The same command of `umbel` with fewer rounds, where it runs something."""
    rounds = {"run": 25, "compare": 4}.get(words[0])  # a run goes on until clusters separate
    return list(words) if rounds is None else [*words, "--set", f"rounds={rounds}"]


def run_page(page: Path, folder: Path, short: bool = False) -> None:
    """Run the blocks of a page in a folder. Raises what goes wrong, with the line of the block."""
    for name in ("examples", "tests"):
        (folder / name).symlink_to(ROOT / name)
    with contextlib.chdir(folder):
        for block in blocks(page):
            try:
                if block.language == "python":
                    if not block.text.startswith(EXCERPT):
                        exec(compile(block.text, page.name, "exec"), {})
                elif page.name not in WITH_SERVERS:
                    for command in commands(block):
                        run_command(command, short)
            except Exception as error:
                error.add_note(f"{page.name}, line {block.line}")
                raise


def run_command(command: str, short: bool) -> None:
    """Run a line of shell; `umbel` by itself in this process, which is faster."""
    words = shlex.split(command)
    if words[0] == "umbel" and not set(command) & set("|>$`&;"):
        umbel(shortened(words[1:]) if short else words[1:])
        return
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": f"{ROOT}"}
    done = subprocess.run(
        ["bash", "-ec", command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def umbel(words: Sequence[str]) -> None:
    """What `umbel WORDS` does; it must end well."""
    before, sys.argv = sys.argv, ["umbel", *words]
    status: object = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # what libraries of other programs warn of is theirs
            cli.main()
    except SystemExit as end:
        status = end.code
    finally:
        sys.argv = before
    assert not status, f"umbel {shlex.join(words)}: exit status {status}"


def main(names: Sequence[str]) -> None:
    """Run the pages of these names, or all."""
    for page in PAGES:
        if not names or page.name in names:
            with tempfile.TemporaryDirectory() as folder:
                run_page(page, Path(folder))
            sys.stdout.write(f"{page.name}: runs from top to bottom\n")


if __name__ == "__main__":
    main(sys.argv[1:])
