"""What a node has released of its clients, and the secret behind its noise, in files of its own."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from umbel.checks import UsageError
from umbel.engines.privacy import Privacy
from umbel.flow import Request
from umbel.flower.arrays import RefusedError
from umbel.flower.memory import digest
from umbel.runs.checkpoint import replace_durably

RELEASED, SECRET = "released.json", "secret"


def read_entries(folder: Path) -> dict[str, list[str]]:
    """The questions that each client has answered. Raises `UsageError` for a damaged file."""
    file = folder / RELEASED
    try:
        found: dict[str, list[str]] = json.loads(file.read_text()) if file.is_file() else {}
    except ValueError as error:
        raise UsageError(f"{file}: damaged, and so nothing more is released: {error}") from None
    return found


@dataclass(frozen=True)
class Ledger:
    """The noise of a node.

    It is a function of the node's secret and of what is asked: asked the same again, as a server
    does that goes on from a checkpoint, a client gives the same answer, and releases nothing new.
    """

    folder: Path
    clients: tuple[str, ...]  # of the node, by number
    privacy: Privacy

    def noise_seeds(self, request: Request) -> list[int]:
        """Enters what is about to be released. Raises `RefusedError` beyond `max_epsilon`."""
        secret, entries = self._secret(), read_entries(self.folder)
        seeds = []
        for position, number in enumerate(request.clients.tolist()):
            client = self.clients[number]
            question = self._question(request, position, client)
            asked = entries.setdefault(client, [])
            if question not in asked:
                self._check(client, len(asked) + 1)
                asked.append(question)
            words = hashlib.sha256(secret + question.encode()).digest()
            seeds.append(int.from_bytes(words[:8], "big") >> 1)
        beside = self.folder / f"{RELEASED}.partial"
        beside.write_text(json.dumps(entries))
        replace_durably(beside, self.folder / RELEASED)
        return seeds

    def _question(self, request: Request, position: int, client: str) -> str:
        sent = {name: digest(tensor) for name, tensor in request.sent_to(position).items()}
        what = json.dumps(
            [client, repr(request.work), request.seeds[position], sorted(sent.items())]
        )
        return hashlib.sha256(what.encode()).hexdigest()

    def _check(self, client: str, releases: int) -> None:
        most = self.privacy.max_epsilon
        if most is not None and self.privacy.epsilon(releases) > most:
            raise RefusedError(f"client {client!r}: another update would exceed epsilon {most:g}")

    def _secret(self) -> bytes:
        file = self.folder / SECRET
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            beside = file.with_suffix(".partial")
            beside.touch(mode=0o600)
            beside.write_bytes(secrets.token_bytes(32))
            replace_durably(beside, file)
        return file.read_bytes()
