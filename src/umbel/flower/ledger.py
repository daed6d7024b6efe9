"""The ledger of a node: the updates that it has released, and the secret of its noise, in files."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, check
from umbel.client.constants import digest_of
from umbel.data.splits import Split
from umbel.engines.clipping_and_noise import Granted
from umbel.engines.privacy import NONE, Privacy
from umbel.files.atomic import alone, replacing, write_text
from umbel.files.seals import json_text, json_value
from umbel.flow import Request
from umbel.flower.memory import row_digest

RELEASED, SECRET, LOCK = "released.json", "secret", ".lock"

NOISE = "SHAKE-256, by answer"
"""Version of the noise function: under another version, repeated answers are new releases."""

Entries = dict[str, list[str]]

EXCEEDED = "another update would exceed epsilon"

HOW_TO_REPAIR = "nothing more is released: bring back a copy of both, or begin in an empty folder"
"""Advice that ends the message if the ledger or the secret is damaged or lost."""


OF_A_SITE = "-node"
"""Suffix of a site's ledger folders. A site has its own folder; simulated nodes share one."""


@dataclass(frozen=True)
class Kept:
    """The content of a ledger's file; None without a file."""

    entries: Entries
    secret: str | None = None  # its digest
    noise: Mapping[str, float] | None = None  # the settings of all releases


def read_ledger(folder: Path) -> Kept:
    """Read a ledger; it is empty without a file. Raises `UsageError` for a damaged file."""
    known = json_value(folder / RELEASED, _from_plain, HOW_TO_REPAIR)
    return Kept({}) if known is None else known


def spent_elsewhere(folder: Path) -> dict[str, Counter[float]]:
    """Count the updates that each client released in other runs of the node, by noise multiplier.

    Raises `UsageError` for a damaged file.
    """
    spent: dict[str, Counter[float]] = {}
    folder = folder.resolve()  # "." has no name
    others = folder.parent.glob(f"*{OF_A_SITE}/{RELEASED}") if _of_a_site(folder) else ()
    for place in sorted({file.parent.resolve() for file in others} - {folder}):
        kept = read_ledger(place)
        for client, questions in kept.entries.items():
            assert kept.noise is not None  # of a file that is there
            spent.setdefault(client, Counter())[kept.noise["noise_multiplier"]] += len(questions)
    return spent


def _of_a_site(folder: Path) -> bool:
    return folder.name.endswith(OF_A_SITE)


def _with(noted: list[str], release: str) -> list[str]:
    """Return a client's releases with one more, unless it is among them.

    The answer takes the place of its question, which was noted before the work; another answer to
    the same question is a release of its own.
    """
    question, _, answer = release.partition(":")
    if release in noted or (not answer and any(n.startswith(f"{question}:") for n in noted)):
        return noted
    return [*(n for n in noted if not answer or n != question), release]


def _from_plain(table: dict[str, Any]) -> Kept:
    """Read a ledger's table. Raises `ValueError`, `TypeError` or `KeyError` if it is damaged."""
    entries: Entries = table["clients"]
    for client, questions in entries.items():
        if not isinstance(questions, list) or {*map(type, questions)} - {str}:
            raise ValueError(f"{client!r} has no list of questions")
    noise = {name: table["noise"][name] for name in ("clip", "noise_multiplier")}
    return Kept(entries, str(table["secret"]), noise)


@dataclass(frozen=True)
class Ledger:
    """The noise of a node.

    The noise is a function of the node's secret, the request, the network and objective, the
    client's training examples, and the update itself. If a server repeats a request, for example
    when it resumes from a checkpoint, the client therefore gives the same answer and releases
    nothing new. If anything has changed that changes the update, such as the examples, the code of
    the network or a setting of the engine, the noise is new, and the answer counts: the difference
    of two answers with the same noise would contain none.

    Releases of a client in other runs of the node count towards `max_epsilon`, too.
    """

    folder: Path
    clients: tuple[str, ...]  # names of the node's clients, by number
    privacy: Privacy
    train: Split | None = None  # their training examples; None: they never change
    trained: str = ""  # name for the network and its objective; "": they never change

    def grant(self, request: Request) -> Granted:
        """Note the next release of each client; refuse clients that would exceed `max_epsilon`.

        The keys are final only when the answers are known: see `settle`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        numbers = request.clients.tolist()
        questions = {n: self._question(request, place, n) for place, n in enumerate(numbers)}
        granted = self._noted(questions)
        # The question is noted before the work: killed in it, the release counts, as it may be out.
        may = {number: questions[number] for number in granted.keys}

        def settle(answers: Mapping[int, str]) -> Granted:
            known = {n: f"{q}:{answers[n]}" for n, q in may.items() if n in answers}
            return self._noted(known)

        return replace(granted, settle=settle)

    def _noted(self, releases: Mapping[int, str]) -> Granted:
        """Note these releases, by the client's number: questions, or questions with answers."""
        keys: dict[int, bytes] = {}
        refused: dict[int, str] = {}
        # All runs of a site's node share one budget.
        with alone((self.folder.parent if _of_a_site(self.folder) else self.folder) / LOCK):
            secret, entries = self._secret()
            before = {number: entries.get(self.clients[number], []) for number in releases}
            after = {number: _with(before[number], release) for number, release in releases.items()}
            # A repeated question or answer releases nothing new, and costs nothing of the budget.
            more = {number for number in releases if len(after[number]) > len(before[number])}
            elsewhere = self._elsewhere() if more else {}
            for number, release in releases.items():
                client, count = self.clients[number], len(after[number])
                if number in more and self._exceeds(count, elsewhere.get(client, NONE)):
                    refused[number] = f"{EXCEEDED} {self.privacy.max_epsilon:g}"
                    continue
                entries[client] = after[number]
                # The noise's key: the same release gives the same noise, and nobody else can
                # compute it.
                keys[number] = hashlib.sha256(secret + release.encode()).digest()
            # On disk before any answer is sent: a killed node must not forget a release.
            self._enter(entries, secret)
        return Granted(keys, refused)

    def _enter(self, entries: Entries, secret: bytes) -> None:
        named = hashlib.sha256(secret).hexdigest()
        table = {"clients": entries, "secret": named, "noise": self._noise}
        write_text(self.folder / RELEASED, json_text(table))

    def _question(self, request: Request, position: int, number: int) -> str:
        client = self.clients[number]
        sent = {name: row_digest(tensor) for name, tensor in request.sent_to(position).items()}
        of = [request.seeds[position], sorted(sent.items()), *self._examples(number)]
        what = json.dumps([NOISE, client, repr(request.work), *of])
        return hashlib.sha256(what.encode()).hexdigest()

    def _examples(self, number: int) -> tuple[str, ...]:
        """Return names that change with a client's training examples and the network."""
        if self.train is None:
            return ()
        x, y = self.train.of(number)
        return (digest_of({"x": x, "y": y}), *([self.trained] if self.trained else []))

    @property
    def _noise(self) -> dict[str, float | None]:
        return {"clip": self.privacy.clip, "noise_multiplier": self.privacy.noise_multiplier}

    def _check_noise(self, kept: Kept) -> None:
        """Raise `UsageError` if earlier releases had other noise settings.

        Two answers with the same noise at different scales reveal both updates, and epsilon would
        not hold for them.
        """
        before = kept.noise or self._noise
        check(
            before == self._noise,
            f"{self.folder / RELEASED}: privacy",
            self._noise,
            f"{before}, as in earlier releases: choose another name or seed",
        )

    def _elsewhere(self) -> dict[str, Counter[float]]:
        """Return the releases in other runs if there is a budget, else none."""
        limited = self.privacy.max_epsilon is not None
        return spent_elsewhere(self.folder) if limited else {}

    def _exceeds(self, releases: int, elsewhere: Mapping[float, int]) -> bool:
        most = self.privacy.max_epsilon
        return most is not None and self.privacy.epsilon(releases, elsewhere) > most

    def _secret(self) -> tuple[bytes, Entries]:
        """The secret and the requests so far. Raises `UsageError` if they do not belong together.

        With another secret, repeated answers would have new noise, and their mean would reveal the
        update.
        """
        file, kept = self.folder / SECRET, read_ledger(self.folder)
        entries = kept.entries
        if not file.is_file() and not any(entries.values()):
            secret = secrets.token_bytes(32)
            # First the ledger: a secret without one tells that it was lost.
            self._enter({}, secret)
            with replacing(file) as beside:
                beside.touch(mode=0o600)
                beside.write_bytes(secret)
            return secret, {}
        lost = next((name for name in (SECRET, RELEASED) if not (self.folder / name).is_file()), "")
        if lost:
            raise UsageError(f"{self.folder / lost}: lost; {HOW_TO_REPAIR}")
        secret = file.read_bytes()
        if kept.secret not in (None, hashlib.sha256(secret).hexdigest()):
            raise UsageError(f"{file}: damaged: not the secret of the ledger; {HOW_TO_REPAIR}")
        self._check_noise(kept)
        return secret, entries
