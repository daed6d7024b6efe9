"""The reference's own directive: an entry for each public name of a module, from its docstring.

    ```{entries} umbel
    Run
    Record
    ```

gives a table of what each is for, and an entry for each. What `umbel` has itself gets its entry
there, and elsewhere a row that leads to it.

Docstrings are plain text with `code` in single backticks and examples after `>>>`; names of other
entries in backticks become links. Fields of dataclasses are told by the comments `#:` beside them.
"""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import umbel
from umbel.help.field_docs import TITLE

MODULES = ("umbel", "umbel.method", "umbel.networks", "umbel.testing")


@cache
def public() -> dict[str, object]:
    """Every public object by its full name, those of `umbel` first."""
    modules = [import_module(name) for name in MODULES]
    return {f"{m.__name__}.{name}": getattr(m, name) for m in modules for name in m.__all__}


@cache
def homes() -> dict[int, str]:
    """The public name of every public object, by the object's identity."""
    found = {name: thing for name, thing in public().items() if not isinstance(thing, str | int)}
    return {id(thing): name for name, thing in reversed(found.items())}


@cache
def linked() -> dict[str, str]:
    """Where a name in backticks leads; `losses` and other verbs may be fields as well."""
    bare = {full: full.rpartition(".")[2] for full in reversed(public())}
    return {n: full for full, n in bare.items() if full == f"umbel.{n}" or n[0].isupper()}


class Entries(SphinxDirective):
    """The table and the entries of the names in its content."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = import_module(self.arguments[0])
        rows, entries = [".. list-table::", "   :widths: 25 75", ""], [""]
        for name in self.content:
            thing = getattr(module, name)
            full = homes().get(id(thing), f"{module.__name__}.{name}")
            rows += [f"   * - :py:obj:`~{full}`", f"     - {restructured(summary(full, thing))}"]
            if full == f"{module.__name__}.{name}":
                shown = [] if directive(thing) != "autodata" else ["   :no-value:"]
                entries += [f".. {directive(thing)}:: {full}", *shown, ""]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *rows, *entries, "```"]))


def directive(thing: object) -> str:
    """What autodoc calls a thing of this kind."""
    if isinstance(thing, type):
        return "autoexception" if issubclass(thing, BaseException) else "autoclass"
    return "autofunction" if inspect.isroutine(thing) else "autodata"


def summary(full: str, thing: object) -> str:
    """The first line of what is said of a public thing."""
    return told(full, thing).strip().partition("\n")[0]


def told(full: str, thing: object) -> str:
    """The docstring of a class or a function; of a value, the one below it in the source."""
    if directive(thing) != "autodata":
        return inspect.getdoc(thing) or ""
    name = full.rpartition(".")[2]
    for module in [m for n, m in sorted(sys.modules.items()) if n.split(".")[0] == "umbel"]:
        if vars(module).get(name) is thing:
            try:
                comments = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
            except PycodeError:
                continue
            if ("", name) in comments:
                return "\n".join(comments["", name])
    return ""


def restructured(text: str) -> str:
    """Plain text with code in backticks -> reStructuredText."""
    parts = re.split(r"`([^`]+)`", text)
    for n, part in enumerate(parts):
        parts[n] = code(part) if n % 2 else re.sub(r"([\\*|_])", r"\\\1", part)
    return "".join(parts)


def code(text: str) -> str:
    """Code, which leads to its entry if it is a public name or a member of one."""
    name, dot, member = text.removeprefix("umbel.").partition(".")
    if name not in linked() or not re.fullmatch(r"\w*", member):
        return f"``{text}``"
    return f":py:obj:`{text} <{linked()[name]}{dot}{member}>`"


def read_docstring(
    app: Sphinx, what: str, full: str, thing: Any, options: object, lines: list[str]
) -> None:
    """Replace a docstring by its reStructuredText, but for its examples.

    The source of a method is what its module names.
    """
    if what == "data":
        lines[:] = told(full, thing).splitlines()
    if what == "class" and TITLE in lines:  # each field has an entry of its own below
        lines[:] = lines[: lines.index(TITLE)]
    if what == "class" and issubclass(thing, umbel.Algorithm):
        _, _, paper = (sys.modules[thing.__module__].__doc__ or "").partition(": ")
        lines += [f"Source: {paper}".replace("\n", " ")] if re.search(r"\d{4}", paper) else []
    parts = re.split(r"(^>>> (?:.|\n(?!\n))*)", "\n".join(lines), flags=re.MULTILINE)
    parts = [part if n % 2 else restructured(part) for n, part in enumerate(parts)]
    lines[:] = [*"".join(parts).splitlines(), ""]


def write_signature(
    app: Sphinx, what: str, full: str, thing: Any, options: object, signature: str, returned: str
) -> tuple[str, str] | None:
    """The fields of a dataclass without types, which stand beside each field below."""
    if what != "class" or not is_dataclass(thing):
        return None
    shown = [f"{f.name}{default(f)}" for f in fields(thing) if f.init]
    return f"({', '.join(shown)})", returned


def default(field: Field[Any]) -> str:
    """A field's default, if it has one, as it is written in Python."""
    if field.default_factory is not MISSING:
        return f"={short(field.default_factory())}"
    return "" if field.default is MISSING else f"={short(field.default)}"


def short(value: Any) -> str:
    """A value as Python; of a dataclass only the fields that are not at their defaults."""
    if inspect.isroutine(value):
        return str(value.__name__)
    if not is_dataclass(value):
        return repr(value)
    given = [(f.name, short(getattr(value, f.name)), default(f)) for f in fields(value)]
    shown = [f"{name}={text}" for name, text, usual in given if f"={text}" != usual]
    return f"{type(value).__name__}({', '.join(shown)})"


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.Node | None:
    """Lead from where a type is defined to its public name; an inner type is only text."""
    module, _, name = str(node.get("reftarget", "")).rpartition(".")
    if module.split(".")[0] != "umbel" or module not in sys.modules:
        return None
    thing = getattr(sys.modules[module], name, None)
    full = homes().get(id(thing))
    if thing is None or full == node["reftarget"]:
        return None
    if full is None:
        return shown
    domain = env.domains.python_domain
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, shown)


def leave_out_fields(app: Sphinx, page: nodes.document) -> None:
    """Name no fields in the contents beside a page, which would hide the classes among them."""
    for entry in page.findall(desc):
        entry["no-contents-entry"] = entry["objtype"] == "attribute"


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what is here."""
    app.add_directive("entries", Entries)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", write_signature)
    app.connect("missing-reference", resolve)
    app.connect("doctree-read", leave_out_fields, priority=0)  # before contents are collected
    return {"parallel_read_safe": True, "parallel_write_safe": True}
