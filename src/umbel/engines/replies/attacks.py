"""Attacks of dishonest clients, simulated: on models, and on the clustering."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import check, check_least, nearest
from umbel.client.work import MEMORY
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines.replies.validation import OF_LOSSES
from umbel.flow import STEPS, Engine, Flow, Layer, Replies, Request, ask, clusters_in
from umbel.seeds import Stream, generator, seed_of
from umbel.settings import Settings
from umbel.summary import in_short

Kind = Literal[
    "none",
    "sign-flip",
    "scaling",
    "noise",
    "label-flip",
    "alie",
    "ipm",
    "backdoor",
    "sybils",
    "free-rider",
    "hijack",
    "fragment",
    "false-alarm",
]

STRENGTHS = {
    "scaling": 10.0,
    "alie": 1.5,
    "backdoor": 0.5,
    "false-alarm": 10.0,
}
"""Strengths of attacks, unless given; 1 for the others."""

ON_DATA = ("label-flip", "backdoor")
"""Attacks of clients that train honestly on examples that they have changed."""

TRIGGER = 3
"""Width of the bright square of a backdoor, in pixels."""


@dataclass(frozen=True)
class Attack(Settings):
    """Simulated attackers: which clients they are, and what they do.

    >>> umbel.Attack("sign-flip", share=0.2, strength=10).kind
    'sign-flip'

    With x the client's own step, mean and std those of the honest steps in its cluster, and s the
    strength, an attacker sends: -s x (sign-flip), s x (scaling), x + s |x| z for a random direction
    z (noise), mean - s std (A Little Is Enough, Baruch et al. 2019: alie), -s mean (inner-product
    manipulation, Xie et al. 2020: ipm), -s times the step of one of the attackers (sybils), 0
    (free-rider). It trains on labels C - 1 - y (label-flip), or on a share s of examples with a
    bright patch and label 0 (backdoor). It attacks the clustering: it says what an honest client
    says, whatever the method compares clients by, and sends -s x as its step (hijack); it sends
    random directions, losses and choices (fragment); it claims losses s times as large in half of
    the rounds (false-alarm).

    Raises `UsageError` for values out of range.
    """

    kind: Kind = "none"  #: what attackers do
    _: KW_ONLY
    share: float = 0.2  #: share of the clients that attack, in each planted group alike, in [0, 1]
    clients: tuple[str, ...] = ()  #: names of the clients that attack; (): a share of all
    #: how strongly; None: 10 (scaling, false-alarm), 1.5 (alie), 0.5 (backdoor), else 1
    strength: float | None = None
    begin: int = 0  #: first round in which they attack: before it, they are honest
    claims: int | None = None  #: number of examples that each claims to have; None: its own
    seed: int | None = None  #: seed of who attacks; None: that of the run
    #: name of the client whose words a hijacker repeats; None: the first honest one that answers
    victim: str | None = None

    def __post_init__(self) -> None:
        check(0 <= self.share <= 1, "share", self.share, "in [0, 1]")
        check_least(self, 0, "strength", "begin")
        check_least(self, 1, "claims")
        now = self.kind not in ON_DATA or not self.begin
        check(now, "begin", self.begin, f"0: attackers change their examples once in a {self.kind}")
        part = self.kind != "backdoor" or self.force <= 1
        check(part, "strength", self.strength, "at most 1: it is a share of the examples")

    @property
    def any(self) -> bool:
        """True if clients attack."""
        return self.kind != "none" or self.claims is not None

    @property
    def force(self) -> float:
        """The strength, or the usual one of this kind."""
        return STRENGTHS.get(self.kind, 1.0) if self.strength is None else self.strength

    def around(
        self,
        engine: Engine,
        names: tuple[str, ...],
        groups: NDArray[np.int64] | None,
        seed: int,
    ) -> Attacked:
        """The engine, with attackers among its clients. Raises `UsageError` for unknown names."""
        victims = () if self.victim is None else (self.victim,)
        for key, given in (("clients", self.clients), ("victim", victims)):
            for name in given:
                expected = f"a client; {nearest(name, names)}"
                check(name in names, f"attack.{key}", name, expected)
        victim = -1 if self.victim is None else names.index(self.victim)
        return Attacked(engine, self, self.attackers(names, groups, seed), seed, victim)

    def attackers(
        self, names: tuple[str, ...], groups: NDArray[np.int64] | None, seed: int
    ) -> NDArray[np.int64]:
        """The numbers of the clients that attack, in increasing order."""
        if not self.any:
            return np.zeros(0, np.int64)
        if self.clients:  # some of which a node may not have
            return np.flatnonzero(np.isin(names, list(self.clients)))
        drawn = generator(seed if self.seed is None else self.seed, Stream.ATTACK)
        order = drawn.permutation(len(names))
        if groups is not None:
            order = order[np.argsort(groups[order], kind="stable")]
        # Every 1 / share-th client in the order of the groups.
        upto = np.floor(np.arange(len(names) + 1) * self.share + 0.5)
        return np.sort(order[np.diff(upto) > 0])

    def poisoned(self, federation: Federation, seed: int, part: bool = False) -> Federation:
        """The federation with the examples that attackers train on; `part`: it is some of a run's.

        Raises `UsageError` for clients without labels or numbers, and for a part of which nobody
        knows who attacks.
        """
        if self.kind not in ON_DATA:
            return federation
        expected = f"names of clients: a node that does not know all can't draw who has {self.kind}"
        check(not part or bool(self.clients), "attack.clients", self.clients, expected)
        known = federation.num_classes is not None and federation.train.x.is_floating_point()
        expected = "for clients that classify inputs of numbers"
        check(known, "attack.kind", self.kind, expected)
        split = federation.train
        whose = self.attackers(federation.names, federation.groups, seed)
        theirs = np.repeat(np.isin(np.arange(federation.num_clients), whose), split.sizes)
        if self.kind == "label-flip":
            assert federation.num_classes is not None
            flipped = federation.num_classes - 1 - split.y
            y = torch.where(torch.from_numpy(theirs), flipped, split.y)
            return replace(federation, train=replace(split, y=y))
        drawn = generator(seed, Stream.ATTACK, 1).random(len(theirs)) < self.force
        return replace(federation, train=_triggered(split, torch.from_numpy(theirs & drawn)))

    def triggered(self, federation: Federation) -> Federation:
        """The federation with the patch of a backdoor in all test examples but those of label 0.

        Their labels are 0, so that an accuracy on them is the share of successful attacks.
        """
        test, others = federation.test, federation.test.y != 0
        sizes = [
            int(others[a:b].sum()) for a, b in zip(test.offsets, test.offsets[1:], strict=False)
        ]
        kept = Split(test.x[others], test.y[others], np.concatenate([[0], np.cumsum(sizes)]))
        return replace(federation, test=_triggered(kept, torch.ones(len(kept.y), dtype=torch.bool)))

    def lies(
        self, request: Request, replies: Replies, bad: Tensor, draw: torch.Generator, victim: int
    ) -> dict[str, Tensor]:
        """The columns of replies, with what attackers (N,) send in place of the truth."""
        columns, clusters = dict(replies.columns), clusters_in(request, replies)
        if self.claims is not None and "num_examples" in columns:
            columns["num_examples"] = columns["num_examples"].masked_fill(bad, self.claims)
        honest = torch.nonzero(~bad)[:, 0]
        # The victim if it is there, else the first honest client.
        told = honest[(replies.clients[honest] != victim).int().argsort(stable=True)[:1]]
        alarm = bool(torch.rand(1, generator=draw) < 0.5)
        for name, column in replies.columns.items():
            if name in ("num_examples", MEMORY):
                continue
            if name in STEPS and not (self.kind == "hijack" and request.use == "compared"):
                columns[name] = self._steps(column, bad, clusters, draw)
            elif self.kind == "hijack" and len(told):
                columns[name] = _with(column, bad, column[told])
            elif self.kind == "fragment" and len(told):
                # What a random client says of another number: of another model, or direction.
                others = honest[torch.randint(len(honest), (int(bad.sum()),), generator=draw)]
                columns[name] = _with(column, bad, _reordered(column[others], draw))
            elif self.kind == "false-alarm" and alarm and name in OF_LOSSES:
                columns[name] = _with(column, bad, column[bad] * self.force)
        if self.kind == "fragment" and {"chosen", "losses"} <= columns.keys():
            best = columns["losses"].argmin(1)  # a contradiction would be refused
            columns["chosen"] = columns["chosen"].where(~bad, best)
        return columns

    def _steps(self, rows: Tensor, bad: Tensor, clusters: Tensor, draw: torch.Generator) -> Tensor:
        """Rows (N, ...) with the attackers' steps in place of their own."""
        found, s = rows.clone(), self.force
        for cluster in torch.unique(clusters[bad]).tolist():
            mine, others = bad & (clusters == cluster), ~bad & (clusters == cluster)
            own = rows[mine].float()
            honest = rows[others].float() if others.any() else own
            match self.kind:
                case "sign-flip" | "hijack":
                    sent = -s * own
                case "scaling":
                    sent = s * own
                case "noise" | "fragment":
                    noise = torch.randn(own.shape, generator=draw)
                    norms = [each.flatten(1).norm(dim=1) for each in (own, noise)]
                    far = (norms[0] / norms[1]).reshape(-1, *[1] * (own.dim() - 1))
                    sent = s * noise * far + (own if self.kind == "noise" else 0)
                case "alie":
                    sent = honest.mean(0) - s * honest.std(0, unbiased=False)
                case "ipm":
                    sent = -s * honest.mean(0)
                case "sybils":
                    sent = -s * own[0]
                case "free-rider":
                    sent = torch.zeros_like(own)
                case _:
                    sent = own
            found[mine] = sent.to(rows.dtype)
        return found


@dataclass
class Attacked(Layer):
    """Replaces what attackers send by their lies, from the round in which they begin."""

    engine: Engine
    attack: Attack
    clients: NDArray[np.int64]  # those that attack
    seed: int
    victim: int  # the client whose words hijackers repeat, -1: none in particular
    round: int = 0  # the run sets it

    __repr__ = in_short

    def ask(self, request: Request) -> Flow[Replies]:
        replies = yield from ask(self.engine, request)
        bad = torch.isin(replies.clients, torch.from_numpy(self.clients))
        if self.round < self.attack.begin or not bad.any() or request.work.split != "train":
            return replies
        replies, bad = replies.in_order(), bad[replies.clients.argsort()]
        draw = torch.Generator().manual_seed(
            seed_of(self.seed, Stream.ATTACK, 1 + self.round, request.number)
        )
        lies = self.attack.lies(request, replies, bad, draw, self.victim)
        return replace(replies, columns=lies)


def _with(column: Tensor, bad: Tensor, rows: Tensor) -> Tensor:
    """The column (N, ...) with these rows, or this row, for attackers."""
    found = column.clone()
    found[bad] = rows
    return found


def _reordered(rows: Tensor, draw: torch.Generator) -> Tensor:
    """Each row (N, D, ...) with its entries along D in a random order of its own."""
    if rows.dim() == 1:
        return rows
    order = torch.rand(rows.shape[:2], generator=draw).argsort(1)
    return rows.gather(1, order.reshape(*order.shape, *[1] * (rows.dim() - 2)).expand_as(rows))


def _triggered(split: Split, which: Tensor) -> Split:
    """The split with a bright patch in the inputs `which` (n,), and label 0."""
    x, bright = split.x.clone(), split.x.max()
    if x.dim() > 2:
        x[which, ..., -TRIGGER:, -TRIGGER:] = bright
    else:
        x[which, -TRIGGER:] = bright
    return replace(split, x=x, y=split.y.where(~which, 0))
