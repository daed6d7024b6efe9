"""Decisions by majority of the nodes: the form of examples, and the meaning of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from umbel.checks import UsageError
from umbel.flower.errors import RefusedError, abbreviated
from umbel.flower.handshake import Site, SiteForm
from umbel.summary import MOST_LISTED, counted

T = TypeVar("T")

ALIKE = (
    "occurs at its site: let all sites encode rows alike, and give arrays "
    "(umbel.Federation.from_arrays)"
)

MORE_CLASSES = (
    "; if a site only lacks examples of the last classes, set classes = {0} in the settings of its "
    "node (--node-config), or num_classes={0} in a load function of its own"
)
"""Advice for sites that count different numbers of classes; `{0}` is the largest of them."""


def leading_form(sites: Iterable[Site]) -> SiteForm | None:
    """Return the form that the most sites have; None without sites, and for a tie."""
    return _winner(Counter(site.form for site in sites))


def leading_table(sites: Iterable[Site], form: SiteForm) -> str | None:
    """The meaning that most tables of this form have; "" without tables, None if none leads.

    After a tie, sites go on without these tables if at least half of them have arrays. Raises
    `UsageError` if fewer have.
    """
    told = [site.inputs for site in sites if site.form == form]
    votes = Counter(filter(None, told))
    leading = _winner(votes) if votes else ""
    # A tie, and more than half of the sites have tables: too few would be left without them.
    if leading is None and 2 * votes.total() > len(told):
        raise UsageError(
            "sites' tables differ in columns, categories, classes or tokenizers, and no "
            "table is that of most nodes: let all sites encode rows alike, and give arrays"
        )
    return leading


def fits(inputs: str, expected: str | None) -> bool:
    """Return True if inputs of this meaning are usable; arrays, which have none, always are.

    `expected` is the decision: "" for none yet, and None if no table is usable.
    """
    return not inputs or expected == "" or inputs == expected


def check_alike(site: Site, expected: SiteForm | None) -> None:
    """Raise `RefusedError` for another form than the one that was decided, if any was."""
    form = site.form
    if expected is None or form == expected:
        return
    found, others = vars(form), vars(expected)
    unlike = _unlike([form, expected])
    said = ", ".join(f"{name} is {found[name]}" for name in unlike)
    wanted = ", ".join(str(others[name]) for name in unlike)
    raise RefusedError(
        f"{said}, but at the other sites {wanted}{_advice([form, expected], bool(site.inputs))}"
    )


def differences(sites: Iterable[Site]) -> str:
    """Describe how the forms of these sites differ, and the setting that makes them equal."""
    sites = list(sites)
    votes = Counter(site.form for site in sites)
    unlike = _unlike(votes)
    said = [
        ", ".join(f"{name} is {abbreviated(getattr(form, name))}" for name in unlike)
        + f" at {counted(count, 'node')}"
        for form, count in votes.most_common()
    ]
    return "; ".join(said[:MOST_LISTED]) + _advice(votes, any(site.inputs for site in sites))


def _advice(forms: Iterable[SiteForm], tables: bool) -> str:
    """Return advice if forms may differ only because a site lacks some classes or categories.

    A site without examples of the last classes counts fewer classes.
    """
    forms = list(forms)
    if tables:
        return (
            f"; a table has a feature for each category, and a class for each label, that {ALIKE}"
        )
    if not {*_unlike(forms)} <= {"num_outputs", "num_classes"}:
        return ""
    counts = [form.num_classes for form in forms if form.num_classes is not None]
    return MORE_CLASSES.format(max(counts)) if len(counts) == len(forms) else ""


def _unlike(forms: Iterable[SiteForm]) -> list[str]:
    """The fields in which forms differ.

    If other fields differ, the network differs because of them and need not be named.
    """
    tables = [vars(form) for form in forms]
    found = [name for name in tables[0] if any(each[name] != tables[0][name] for each in tables)]
    return [name for name in found if name not in ("model", "frozen")] or found


def check_table(inputs: str, expected: str | None) -> None:
    """Raise `RefusedError` for a table of another meaning than was decided, if any was."""
    if not fits(inputs, expected):
        raise RefusedError(
            "the columns of its table, their categories, the classes or the tokenizer are not "
            "those of other sites' tables: the same position of an example would mean different "
            "things"
        )


def _winner(votes: Counter[T]) -> T | None:
    """The choice with the most votes; None without votes, and for a tie."""
    ranked = votes.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]
