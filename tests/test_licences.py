"""What is installed with the package may be used as freely as the package itself."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PERMISSIVE = re.compile(
    r"\b(MIT|BSD|0BSD|Apache|PSF|Python Software Foundation|Zlib|BSL|CC0|ISC|HPND|Unlicense)", re.I
)
OTHERS = ("docs", "test")  # extras for those who change the package


def needed(name: str, extra: str = "") -> Iterator[str]:
    """The names of the packages that a package needs on this machine."""
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield canonicalize_name(requirement.name)


def all_needed(names: Iterator[str]) -> set[str]:
    """These packages, and all that they need."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needed(name)
    return found


def licences(name: str) -> list[str]:
    """The licences that a package states: an expression, classifiers, or the first line of text.

    `A OR B` is either; any other licence must be permissive.
    """
    stated = importlib.metadata.metadata(name)
    if expression := "".join(stated.get_all("License-Expression", [])):
        return re.split(r"\s+AND\s+", expression)
    classifiers = [text for text in stated.get_all("Classifier", []) if "License ::" in text]
    texts = [
        file.read_text() for file in importlib.metadata.files(name) or () if file.name == "LICENSE"
    ]
    bsd = any("Redistribution and use in source and binary forms" in text for text in texts)
    said = "".join(stated.get_all("License", [])) or ("BSD" if bsd else "none stated")
    return classifiers or [said.strip().splitlines()[0]]


def restrictive(names: set[str]) -> dict[str, list[str]]:
    # Where PyTorch is built for CUDA, NVIDIA's libraries come with it, under NVIDIA's terms.
    free = (name for name in sorted(names) if not name.startswith(("nvidia-", "cuda-")))
    found = {
        name: [each for each in licences(name) if not PERMISSIVE.search(each)] for name in free
    }
    return {name: wrong for name, wrong in found.items() if wrong}


def test_all_that_is_installed_with_the_package_is_under_a_permissive_licence() -> None:
    names = all_needed(needed("umbel"))
    assert {"torch", "numpy", "scikit-learn"} <= names
    assert restrictive(names) == {}


def test_all_that_the_extras_name_is_under_a_permissive_licence() -> None:
    extras = set(importlib.metadata.metadata("umbel").get_all("Provides-Extra") or ())
    names = {name for extra in extras - {*OTHERS} for name in needed("umbel", extra)}
    assert {"flwr", "ray", "pandas"} <= names
    assert restrictive(names) == {}
