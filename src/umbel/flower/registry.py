"""The roll of a run: which clients there are, and what the server knows of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from umbel.checks import UsageError
from umbel.data.federation import Federation, Split
from umbel.flower.messages import Form, Site


@dataclass(frozen=True)
class Roll:
    """Clients by number, which stays theirs as long as the run lasts."""

    names: Sequence[str]
    train: Sequence[int]  # examples of each
    test: Sequence[int]
    groups: Sequence[int] | None  # planted, where they are known
    form: Form

    @classmethod
    def call(cls, sites: Sequence[Site]) -> Roll:
        """Of all clients of these sites, in the order of their names."""
        every = [(name, site, n) for site in sites for n, name in enumerate(site.clients)]
        every.sort(key=lambda one: _natural(one[0]))
        names = [name for name, _, _ in every]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"client {twice!r}: at two nodes; each needs a name of its own")
        groups = [site.groups[n] for _, site, n in every if site.groups is not None]
        return cls(
            names,
            [site.train[n] for _, site, n in every],
            [site.test[n] for _, site, n in every],
            groups if len(groups) == len(names) else None,
            sites[0].form,
        )

    @classmethod
    def read(cls, file: Path) -> Roll:
        """Raises `UsageError` for a damaged file."""
        try:
            table = json.loads(file.read_text(encoding="utf-8"))
            form = table.pop("form")
            return cls(**table, form=Form(**{**form, "input_shape": tuple(form["input_shape"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{file}: damaged: {error}") from None

    @property
    def text(self) -> str:
        """What `read` reads."""
        return json.dumps(asdict(self)) + "\n"

    def federation(self) -> Federation:
        """All but the examples, which stay where they are."""
        form = self.form
        y = torch.zeros(1, form.num_outputs)
        if form.num_classes is not None:  # labels, of which an example may have several
            one = form.num_outputs in (1, form.num_classes)
            y = torch.zeros((1,) if one else (1, form.num_outputs), dtype=torch.long)

        def split(sizes: Sequence[int]) -> Split:
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            return Split(torch.zeros(1, *form.input_shape), y, offsets)

        groups = None if self.groups is None else np.asarray(self.groups, dtype=np.int64)
        return Federation(
            split(self.train), split(self.test), groups, form.num_classes, tuple(self.names)
        )


def some(names: Sequence[str], most: int = 5) -> str:
    """The first of these clients by name, and how many more there are, with their verb."""
    first = ", ".join(map(repr, names[:most]))
    if len(names) == 1:
        return f"client {first} is"
    return f"clients {first}" + f" and {len(names) - most} more" * (len(names) > most) + " are"


def _natural(name: str) -> tuple[bool, int, str]:
    """Numbers first, in their order, then words."""
    return not name.isdecimal(), int(name) if name.isdecimal() else 0, name
