"""Signs that clients write the same inputs or labels in different ways: other units or types.

What is beyond doubt is refused, and what is only likely is a warning. Messages never show values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf, isfinite
from typing import Any, TypeAlias

import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.batches import IGNORED
from umbel.summary import joined_by_and, three_digits

log = logging.getLogger(__name__)

SAMPLED = 2**20
"""Most values, of all clients together, that are looked at."""

LOWS, HIGHS = (0.0, -1.0, -inf), (1.0, 127.0, 255.0, 65535.0, inf)
"""Bounds of values, the closest first, that say on which scale they are."""

UNUSUAL_FACTOR = 20.0
"""A ratio of sizes from which units probably differ."""

LEAST_ROWS = 10
"""Examples of a client from which it can be told how often its values are negative."""

MOST_COLUMNS = 256
"""Wider inputs are looked at as a whole only, not column by column."""

LONG = {"train": "training"}
"""What messages call a split, if not by its name."""

MOST_NAMED = 3
"""Clients whose names a message has, so that it stays short."""


@dataclass(frozen=True)
class Written:
    """How one client's inputs are written, in round numbers."""

    stored: str  # bool, bytes (8 or 16 bits without a sign), whole, table or float
    whole: bool  # whether all values are whole numbers
    low: float  # -1, 0, or below: -inf
    high: float  # 1, 127, 255, 65535, or above: inf
    size: float  # mean size of a value, with two digits
    # share of an example's positions that often have negative values; 0.5: too few to tell
    negative: float

    @property
    def plain(self) -> list[float]:
        """All but how it is stored, as numbers for a message."""
        return [float(self.whole), self.low, self.high, self.size, self.negative]

    @classmethod
    def from_plain(cls, stored: str, numbers: Any) -> Written:
        """The inverse of `plain`. Raises `ValueError` or `TypeError` for anything else."""
        whole, low, high, size, negative = map(float, numbers)
        fine = whole in (0, 1) and low in LOWS and high in HIGHS and 0 <= negative <= 1
        if not fine or not isfinite(size) or size <= 0:
            raise ValueError("no summary of inputs")
        return cls(stored, bool(whole), low, high, size, negative)

    @property
    def is_fractions(self) -> bool:
        """Whether values are fractions in 0 to 1, or in -1 to 1."""
        return not self.whole and self.low >= -1 and self.high == 1

    @property
    def is_bytes(self) -> bool:
        """Whether values are those of pictures as files store them: 0 to 255, or 0 to 65,535."""
        least = 1 if self.stored == "bytes" else 127
        most = 65535 if self.stored == "bytes" else 255
        return self.whole and self.low == 0 and least < self.high <= most

    @property
    def is_floats(self) -> bool:
        """Whether values are floating-point numbers that are not all whole."""
        return self.stored == "float" and not self.whole


Entry: TypeAlias = tuple[str, str, Written]
"""The name of a client or a site, which of its splits, and how that is written."""


def written(x: Tensor, stored: str, most: int) -> Written | None:
    """How inputs x (n, ...) are written, by at most about `most` values; None if all are 0."""
    if not x.numel():
        return None
    some = x[:: max(1, -(-x.numel() // most))].flatten(1) if x.dim() > 1 else x[:most, None]
    some = some.double()
    low, high, size = map(float, (*some.aminmax(), some.abs().mean()))
    often = 0.0 if low >= 0 else float(((some < 0).double().mean(0) > 0.1).double().mean())
    if size == 0:
        return None
    return Written(
        stored,
        torch.equal(some, some.round()),
        next(bound for bound in LOWS if low >= bound),
        next(bound for bound in HIGHS if high <= bound),
        float(f"{size:.2g}"),
        round(often, 2) if some.shape[1] > 2 and len(some) >= LEAST_ROWS else 0.5,
    )


@dataclass(frozen=True)
class Comparison:
    """How the inputs of several clients, or of several sites, are written."""

    entries: Sequence[Entry]
    noun: str = "client"
    what: str = "x"

    def check(self) -> bool:
        """Raise `UsageError` if some can't mean what others do; else as `warn`."""
        if found := self.conflict():
            raise UsageError(found[1])
        return self.warn()

    def conflict(self) -> tuple[list[Entry], str] | None:
        """The fewer ones that can't mean what others do, and a message; None if there are none."""
        large = [entry for entry in self.entries if entry[2].is_bytes]
        small = [entry for entry in self.entries if entry[2].is_fractions]
        said, other = "has whole numbers beyond 1", "has fractions of at most 1"
        if not small:
            large = [entry for entry in large if entry[2].high > 127]
            small = [entry for entry in self.entries if entry[2].stored == "bool"]
            other = "is true or false"
        if not large or not small:
            return None
        odd, usual = (small, large) if len(small) < len(large) else (large, small)
        said, other = (other, said) if odd is small else (said, other)
        how = 'give all on one scale, pictures as x.astype("float32") / 255'
        whose = self._whose(usual)
        return odd, f"{self._whose(odd)}: {self.what} {said}, and that of {whose} {other}: {how}"

    def warn(self) -> bool:
        """Warn if some values probably do not mean what others do, and return whether."""
        said = next(chain(self._types(), self._sizes(), self._signs()), None)
        if said is not None:
            log.warning("%s", said)
        return said is not None

    def _types(self) -> Iterator[str]:
        """Yield what to say if types differ, and with them the numbers."""
        floats = [entry for entry in self.entries if entry[2].is_floats]
        for kind, words in (("bool", "true or false"), ("whole", "of whole numbers, as tokens")):
            others = [entry for entry in self.entries if entry[2].stored == kind]
            if not others or not floats:
                continue
            signs = {round(entry[2].negative) for entry in (*others, *floats)}
            sizes = [[entry[2].size for entry in each] for each in (others, floats)]
            apart = any(min(one) > 4 * max(two) for one, two in (sizes, reversed(sizes)))
            if kind == "bool" or apart or len(signs) > 1:
                yield (
                    f"{self._whose(others)}: {self.what} is {words}, and that of "
                    f"{self._whose(floats)} has fractions: all are taken as numbers on one scale; "
                    "if they mean different things, give the same type and scale to all"
                )

    def _sizes(self) -> Iterator[str]:
        """Yield what to say if sizes differ so much that units probably do."""
        ranked = sorted(self.entries, key=lambda entry: entry[2].size)
        factors = [large[2].size / small[2].size for small, large in pairwise(ranked)]
        if not factors or max(factors) < UNUSUAL_FACTOR:
            return
        cut = factors.index(max(factors)) + 1
        odd, usual, how = ranked[cut:], ranked[:cut], "large"
        if len(odd) > len(usual):
            odd, usual, how = usual, odd, "small"
        yield (
            f"{self._whose(odd)}: {self.what} is on average at least {three_digits(max(factors))} "
            f"times as {how} as that of {self._whose(usual)}: are these other units, such as "
            "percent beside fractions, or values before and after scaling? Give all on one scale"
        )

    def _signs(self) -> Iterator[str]:
        """Yield what to say if some have many negative values where others have hardly any."""
        known = [entry for entry in self.entries if entry[2].negative != 0.5]
        many = [entry for entry in known if entry[2].negative >= 0.9]
        hardly = [entry for entry in known if entry[2].negative < 0.5]
        if not many or not hardly or len(many) + len(hardly) < len(known):
            return
        odd, usual, said = many, hardly, ("many", "hardly any")
        if len(odd) > len(usual):
            odd, usual, said = usual, odd, said[::-1]
        yield (
            f"{self._whose(odd)}: {self.what} has {said[0]} negative values, and that of "
            f"{self._whose(usual)} {said[1]}: are only some standardised, or scaled to -1 to 1? "
            "Give all on one scale"
        )

    def _whose(self, some: Sequence[Entry]) -> str:
        """Name the clients of these entries, and their split if it is not all that they have."""
        held = {(name, split) for name, split, _ in some}
        rest = {(name, split) for name, split, _ in self.entries} - held
        names = list(dict.fromkeys(name for name, _, _ in some))
        splits = {split for _, split in held}
        if len(splits) > 1 or not any(name in names for name, _ in rest):
            return _named(names, self.noun)
        (split,) = splits
        said = f"the {LONG.get(split, split)} examples"
        if not any(other == split for _, other in rest):
            return said
        return f"{said} of {_named(names, self.noun)}"


def _named(names: Sequence[str], noun: str = "client") -> str:
    more = len(names) - MOST_NAMED
    shown = [*names[:MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])]
    return f"{noun}{'s' * (len(names) > 1)} {joined_by_and(shown)}"


def entries_of(
    splits: Mapping[str, Sequence[Tensor]],
    stored: Mapping[str, Sequence[str]],
    names: Sequence[str],
) -> list[Entry]:
    """How each client's values are written in each split, as far as it has any."""
    most = max(2**11, SAMPLED // (len(names) * len(splits)))
    return [
        (name, split, about)
        for split, shards in splits.items()
        for name, values, kind in zip(names, shards, stored[split], strict=True)
        if (about := written(values, kind, most))
    ]


def warn_of_numbering(shards: Sequence[tuple[object, Tensor]], names: Sequence[str]) -> None:
    """Warn if some clients seem to number their classes from 1, and others from 0."""
    held: dict[str, Tensor] = {}
    for (_, y), name in zip(shards, names, strict=True):
        counted = y[y != IGNORED] if y.dim() > 1 else y
        held[name] = torch.cat([held[name], counted]) if name in held else counted
    ends = {name: tuple(map(int, y.aminmax())) for name, y in held.items() if len(y)}
    top = max(high for _, high in ends.values())
    ones = [name for name, mine in ends.items() if mine == (1, top)]
    zeros = [name for name, mine in ends.items() if mine == (0, top - 1)]
    if top < 2 or not ones or not zeros or len(ones) + len(zeros) < len(ends):
        return  # of two classes a client may well have one
    if any(4 * len({*held[name].tolist()}) < 3 * top for name in ends):
        return  # clients that hold few of the classes may lack the first or the last one
    odd, usual, start = (ones, zeros, 1) if len(ones) <= len(zeros) else (zeros, ones, 0)
    log.warning(
        "%s: labels go from %d to %d, and those of %s from %d to %d: if these are the same "
        "classes, number them from 0 at all clients, as by y - 1; if some clients just lack a "
        "class, nothing is wrong",
        *(_named(odd), start, top - 1 + start, _named(usual), 1 - start, top - start),
    )


def warn_of_units(
    shards: Sequence[Tensor], names: Sequence[str], columns: Sequence[str] = ()
) -> None:
    """Warn if clients' values (n, F) in a column are in units of their own.

    Values may be missing (NaN). In columns without negative ones, clients where a column has a
    single value, or mostly 0, do not count. In others, some clients' may be standardised.
    """
    if any(shard.dim() != 2 or not 0 < shard.shape[1] <= MOST_COLUMNS for shard in shards):
        return
    some = [shard[: 2**12] for shard in shards]
    signed = torch.stack([(values < 0).any(0) for values in some]).any(0)
    found = torch.stack([_span(values.double()) for values in some])  # (M, 3, F)
    for place in signed.nonzero()[:, 0].tolist():
        both, none = _standardised([values[:, place].double() for values in some], names)
        if both and none:
            odd, usual, said = both, none, ("many negative values", "none")
            if len(odd) > len(usual):
                odd, usual, said = none, both, ("no negative values", "many")
            log.warning(
                "%s: column %s has %s, and that of %s %s: are only some standardised, or scaled to "
                "-1 to 1? Give all on one scale",
                *(_named(odd), repr(columns[place]) if columns else place, said[0]),
                *(_named(usual), said[1]),
            )
    for place in (~signed).nonzero()[:, 0].tolist():
        spans = zip(*found[:, :, place].T.tolist(), names, strict=True)
        known: list[tuple[float, float, float, str]]
        known = sorted(span for span in spans if isfinite(span[0]))
        for cut in range(1, len(known)):
            factor = known[cut][0] / known[cut - 1][0]
            if factor < UNUSUAL_FACTOR or min(o[1] for o in known[cut:]) <= max(
                o[2] for o in known[:cut]
            ):
                continue
            few, rest, how = known[:cut], known[cut:], "small"
            if len(few) > len(rest):
                few, rest, how = rest, few, "large"
            log.warning(
                "%s: column %s is at least %s times as %s as that of %s: are these other units, "
                "such as percent beside fractions? Give all in one unit",
                *(_named([one[3] for one in few]), repr(columns[place]) if columns else place),
                *(three_digits(factor), how, _named([one[3] for one in rest])),
            )
            break


def _standardised(shards: Sequence[Tensor], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The clients whose values (n,) seem standardised, and those with far larger ones from 0 up.

    Both are empty if a client has other values than these: clients may then differ by nature.
    """
    both: dict[str, float] = {}
    none: dict[str, float] = {}
    for values, name in zip(shards, names, strict=True):
        known = values[values.isfinite()]
        if len(known) < LEAST_ROWS:
            continue
        negative, size = float((known < 0).double().mean()), float(known.abs().median())
        if negative and not (0.3 <= negative <= 0.7 and 0.2 <= size <= 2):
            return [], []
        (both if negative else none)[name] = size
    apart = both and none and min(none.values()) >= UNUSUAL_FACTOR * max(both.values())
    return (list(both), list(none)) if apart else ([], [])


def _span(values: Tensor) -> Tensor:
    """The median and two other quantiles (3, F) of the values above 0; NaN if they tell little."""
    above = torch.where(values > 0, values, torch.nan)
    counts = (values > 0).sum(0)
    span = above.nanquantile(torch.tensor([0.5, 0.1, 0.9], dtype=torch.float64), dim=0)
    enough = (counts >= 10) & (2 * counts >= values.isfinite().sum(0))
    return torch.where(enough & (span[2] > 1.05 * span[1]), span, torch.nan)


def warn_of_layout(shards: Sequence[Tensor], names: Sequence[str]) -> None:
    """Warn if some clients' inputs fit those of the others far better with their axes moved.

    This is seen where all axes have one size, and their means differ along them: other layouts
    have other shapes.
    """
    shape = shards[0].shape[1:]
    if len(shape) not in (2, 3) or len(set(shape)) > 1 or shape[0] == 1:
        return
    means = [x.double().mean(0) for x in shards]
    if len(shape) == 2 and not all(map(_is_striped, means)):
        return  # pictures that are turned resemble those with their axes exchanged
    turns = [(1, 0)] if len(shape) == 2 else [(2, 0, 1), (1, 2, 0)]
    first, moved = means[0], []
    for mean, name in zip(means[1:], names[1:], strict=True):
        straight = float((mean - first).square().sum())
        turned = min(float((mean.permute(turn) - first).square().sum()) for turn in turns)
        if turned < straight / 10:
            moved.append(name)
    rest = [name for name in names if name not in moved]
    if moved:
        odd, usual = (moved, rest) if len(moved) <= len(rest) else (rest, moved)
        log.warning(
            "%s: the axes of x seem to be in another order than those of %s: give all in the same, "
            "such as channels first, by np.moveaxis(x, -1, 1)",
            *(_named(odd), _named(usual)),
        )


def _is_striped(mean: Tensor) -> bool:
    """Whether values (S, S) differ along one axis only, as means of channels or features do."""
    spread = float(mean.var(correction=0))
    return any(float(mean.mean(axis).var(correction=0)) > 0.95 * spread for axis in (0, 1))
