"""Greetings: a node names its clients to the server before any work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from umbel.data.conventions import Written
from umbel.data.form import Form
from umbel.flower import fields
from umbel.flower.errors import RefusedError, refusing
from umbel.flower.fields import VERSION, check_names, number, numbers, text, texts, versioned
from umbel.flower.messages import raise_refusal
from umbel.version import BESIDE, versions

MAX_EXAMPLES = 10**9  # of one client
MAX_GROUP = 2**31
MAX_INPUT = 2**24  # values of one example
MAX_WHOLE = 2**31  # an input that is a whole number; larger ones are told as this
MAX_OUTPUTS = 10**6
MAX_DIMENSIONS = 8

SITE_NAME = "site-name"
"""The node's setting with a name for the site."""

VERSIONS = "versions"
"""Record of a greeting and of a reply to one: the installed releases."""

CALLED = "called"
"""Record of a reply to a greeting: the name of the site."""


@dataclass(frozen=True, kw_only=True)
class SiteForm(Form):
    """Form of examples that all sites must share."""

    model: str  # a name for the layout of its tensors
    frozen: str = ""  # a digest of what the network has besides, in no model


@dataclass(frozen=True)
class Site:
    """Description that a node gives of itself: no example, only their number and form."""

    clients: Sequence[str]
    train: Sequence[int]  # examples of each client
    test: Sequence[int]
    groups: Sequence[int] | None  # planted group of each client, if known
    form: SiteForm
    # validation examples of each client; None: no client of the node has any
    validation: Sequence[int] | None = None
    # a digest of a table's columns, categories, classes and tokenizer; "": not told
    inputs: str = ""
    # the largest input if inputs are whole numbers; None: floats, or not told
    largest_input: int | None = None
    # type and scale of inputs, in round numbers; None: not told, or all are 0
    written: Written | None = None
    # for each client, what tells its examples from others; (): not told
    facts: Sequence[str] = ()


def greet() -> RecordDict:
    """The content of a greeting, which asks a node who its clients are."""
    return RecordDict({"greeting": ConfigRecord({"version": VERSION}), VERSIONS: own_versions()})


@refusing
def check_greeting(content: RecordDict) -> None:
    """Raise `RefusedError` for the greeting of a server of another version."""
    versioned(content, "greeting")


def introduce(site: Site) -> RecordDict:
    """Write the content of a reply to a greeting."""
    form = site.form
    config: dict[str, Any] = {
        "version": VERSION,
        "clients": list(site.clients),
        "train": list(site.train),
        "test": list(site.test),
        "input_shape": list(form.input_shape),
        "num_outputs": form.num_outputs,
        "model": form.model,
    }
    largest = site.largest_input
    optional = {
        "frozen": form.frozen or None,
        "inputs": site.inputs or None,
        "largest_input": None if largest is None else min(largest, MAX_WHOLE),
        "written": None if site.written is None else site.written.plain,
        "facts": list(site.facts) or None,
        "num_classes": form.num_classes,
        "groups": None if site.groups is None else list(site.groups),
        "validation": None if site.validation is None else list(site.validation),
    }
    config |= {name: value for name, value in optional.items() if value is not None}
    return RecordDict({"site": ConfigRecord(config)})


def called(config: Mapping[str, Any]) -> dict[str, ConfigRecord]:
    """Write the name of a site for a reply to a greeting, if the node's settings have one.

    Raises `RefusedError` for a name that can't be shown.
    """
    if SITE_NAME not in config:
        return {}
    name = str(config[SITE_NAME])
    check_names(SITE_NAME, [name], 1)
    return {CALLED: ConfigRecord({"name": name})}


@refusing
def name_in(content: RecordDict) -> str:
    """Read the name that `called` has written, or "". Raises `RefusedError` for anything else."""
    if CALLED not in content:
        return ""
    name = text(fields.config(content, CALLED), "name")
    check_names(SITE_NAME, [name], 1)
    return name


def own_versions() -> ConfigRecord:
    """The releases installed here, for a greeting or a reply to one."""
    here: dict[str, Any] = {**versions()}
    return ConfigRecord(here)


@refusing
def versions_in(content: RecordDict) -> dict[str, str]:
    """Read the releases of the other side; empty if unknown. Raises `RefusedError`."""
    if VERSIONS not in content:
        return {}
    told = fields.config(content, VERSIONS)
    found = {name: text(told, name) for name in ("umbel", "python", *BESIDE) if name in told}
    check_names(VERSIONS, [*found.values()], len(found))
    return found


@refusing
def site_in(content: RecordDict) -> Site:
    """Read the site that `introduce` has written. Raises `RefusedError` for anything else."""
    if "answer" in content:
        raise_refusal(fields.config(content, "answer"))
    config = versioned(content, "site")
    clients = texts(config, "clients")
    train = numbers(config, "train", 1, MAX_EXAMPLES)
    test = numbers(config, "test", 0, MAX_EXAMPLES)
    groups = numbers(config, "groups", -MAX_GROUP, MAX_GROUP) if "groups" in config else None
    validation = None
    if "validation" in config:
        validation = numbers(config, "validation", 0, MAX_EXAMPLES)
    # Lists with an item for each client must have as many items as there are clients.
    given = [each for each in (train, test, groups, validation) if each is not None]
    if len(set(clients)) != len(clients) or any(len(each) != len(clients) for each in given):
        raise RefusedError("clients do not match their examples")
    # The product is bounded, too: the server makes an example of this shape.
    shape = numbers(config, "input_shape", 1, MAX_INPUT)
    if len(shape) > MAX_DIMENSIONS or math.prod(shape) > MAX_INPUT:
        raise RefusedError(f"input_shape: {shape[:MAX_DIMENSIONS]} is more than {MAX_INPUT} values")
    classes = number(config, "num_classes", 1, MAX_OUTPUTS) if "num_classes" in config else None
    form = SiteForm(
        input_shape=tuple(shape),
        num_outputs=number(config, "num_outputs", 1, MAX_OUTPUTS),
        num_classes=classes,
        model=text(config, "model"),
        frozen=text(config, "frozen") if "frozen" in config else "",
    )
    check_names("model", [form.model], 1)
    check_names("frozen", [form.frozen] if form.frozen else [], 1)
    inputs = text(config, "inputs") if "inputs" in config else ""
    check_names("inputs", [inputs] if inputs else [], 1)
    largest = number(config, "largest_input", 0, MAX_WHOLE) if "largest_input" in config else None
    written = None
    if "written" in config:
        written = Written.from_plain("float" if largest is None else "whole", config["written"])
    facts = texts(config, "facts") if "facts" in config else []
    if len(facts) not in (0, len(clients)):
        raise RefusedError("facts do not match the clients")
    return Site(clients, train, test, groups, form, validation, inputs, largest, written, facts)
