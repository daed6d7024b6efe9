"""Runs whose reports are tested, made once for all tests of a process."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import unescape
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from umbel.algorithms import FLACC, IFCA
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.sources import Sources
from umbel.engines.replies.faults import Faults
from umbel.experiment.library import find_experiment
from umbel.folder.execution import advance, execute
from umbel.folder.run_folder import RunFolder
from umbel.result.run import Experiment, read

NASTY = "<script>alert(1)</script>"
"""A name that would be a program if it were not escaped."""


@cache
def made(name: str, *settings: str) -> Path:
    """The folder of a shipped experiment, run with these settings."""
    path = Path(mkdtemp()) / name
    experiment = read(find_experiment(name), settings)
    for _ in execute(RunFolder.create(path, experiment), Sources.default()):
        pass
    return path


@cache
def own(rounds: int = 8, stop: int | None = None) -> Path:
    """Clients with names and without planted groups, some of which do not answer."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, (12, 30))
    x = rng.normal(size=(12, 30, 6)) + 2 * np.eye(3, 6)[(y + np.arange(12)[:, None] % 2) % 3]
    rows = [(x[n].astype(np.float32), y[n]) for n in range(12)]
    names = [NASTY, *(f"site <b>{n}</b> & co" for n in range(1, 12))]
    train, test = [(a[:20], b[:20]) for a, b in rows], [(a[20:], b[20:]) for a, b in rows]
    federation = Federation.from_arrays(train, test, names=names, num_classes=3)
    return _advanced(federation, "own & <i>odd</i>", rounds, stop)


@cache
def many(num_clusters: int | None = 2, count: int = 3000) -> Path:
    """More clients than a page shows, and without a number, more clusters."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, (count, 5))
    x = rng.normal(size=(count, 5, 6)).astype(np.float32)
    train = [(x[n, :3], y[n, :3]) for n in range(count)]
    test = [(x[n, 3:], y[n, 3:]) for n in range(count)]
    federation = Federation.from_arrays(
        train, test, groups=[n % 2 for n in range(count)], num_classes=3
    )
    local = LocalTraining(epochs=1)
    method = FLACC(local) if num_clusters is None else IFCA(num_clusters, local)
    changes = {"algorithm": method, "participation": 0.02, "faults": Faults()}
    return _advanced(federation, "many", 2, None, **changes)


def _advanced(
    federation: Federation, name: str, rounds: int, stop: int | None, **changes: Any
) -> Path:
    base: Experiment = replace(
        read(find_experiment("flacc-digits")),
        name=name.replace("/", ""),
        rounds=rounds,
        participation=1.0,
        faults=Faults(drop=0.1, not_finite=0.05),
        algorithm=FLACC(LocalTraining(lr=0.1, epochs=1), n_sep=1),
    )
    experiment = replace(base, **changes)
    folder = RunFolder.create(Path(mkdtemp()) / "run", experiment)
    records = advance(folder, experiment.run(federation, experiment.engine))
    for _ in islice(records, stop):
        pass
    records.close()  # type: ignore[attr-defined]
    return folder.path


@cache
def compared(seeds: int = 2, *settings: str) -> Path:
    """A folder of two methods under several seeds."""
    return _compared("two-methods", ("fedavg-digits", "ifca-digits"), seeds, settings)


@cache
def beside_baselines() -> Path:
    """A method, what clients would have alone, and what they would have in one federation."""
    return _compared("baselines", ("fedavg-digits", "ifca-digits", "local-only-digits"), 2, ())


def _compared(title: str, names: Sequence[str], seeds: int, settings: Sequence[str]) -> Path:
    path = Path(mkdtemp()) / title
    for name in names:
        for seed in range(seeds):
            experiment = read(find_experiment(name), ["rounds=4", *settings]).with_seed(seed)
            folder = RunFolder.create(path / f"{name}-seed{seed}", experiment)
            for _ in execute(folder, Sources.default()):
                pass
    return path


@dataclass(frozen=True)
class Element:
    """An element of a page as a browser would read it."""

    name: str
    attributes: dict[str, str | None]


class Page(HTMLParser):
    """The elements, headings and figures of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.elements: list[Element] = []
        self.words: list[str] = []
        self.figures: list[dict[str, Any]] = []
        self._inside: list[str] = []
        self._json_of_a_figure = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs)))
        self._json_of_a_figure = dict(attrs) == {"type": "application/json"}
        if tag not in ("meta", "link", "input"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        inside = self._inside[-1] if self._inside else ""
        if inside == "script":
            if self._json_of_a_figure:
                self.figures.append(json.loads(data))
        elif inside != "style":
            self.words.append(data)

    @property
    def said(self) -> str:
        """All words on the page."""
        return re.sub(r"\s+", " ", " ".join(self.words))

    @property
    def headings(self) -> list[str]:
        """What the sections are called."""
        without_scripts = re.sub(r"<script.*?</script>", "", self.text, flags=re.DOTALL)
        return re.findall(r"<h2[^>]*>([^<]*)</h2>", without_scripts)

    @property
    def titles(self) -> list[str]:
        """What the figures are called."""
        found = re.findall(r"<figcaption><h3>([^<]*)</h3>", self.text)
        return list(map(unescape, found))
