"""Words of several languages, for prediction of the next character."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check_least, check_memory
from umbel.client.batches import IGNORED
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.data.splits import for_validation
from umbel.data.tables.clients import clients_of, known_of, texts_of
from umbel.data.tables.parts import PARTS, check_fractions, client_generator, divided
from umbel.data.tables.reading import CsvFormat, read_rows

EDGE, OTHER, FIRST = 0, 1, 2
"""Symbols: word boundary, character of too few clients, and the first of all others."""

Examples: TypeAlias = tuple[NDArray[np.generic], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Words(Scenario):
    """Clients that hold words of one language each; models predict the next character.

    Symbol 0 marks the start and the end of a word, 1 stands for characters that too few clients
    have in their training words, and all other symbols stand for one character each. The attribute
    `language` is known of each client; no groups are planted.
    """

    source: str = "natural/words.parquet"  # in the data directory: columns client, language, word
    words: int = 200  # number of words per client, drawn at random; 0: all
    form: Literal["context", "sequence"] = "context"  # an example: a character, or a word
    context: int = 3  # number of characters from which the next is predicted
    longest: int = 24  # most characters of a word; longer words are cut
    least_clients: int = 2  # fewest clients with a character that has its own symbol
    validation_fraction: float | None = None  # of what is not for the test
    test_fraction: float = 0.15  # of each client's words

    def __post_init__(self) -> None:
        check_least(self, 0, "words")
        check_least(self, 1, "context", "longest", "least_clients")
        check_fractions(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        columns = ("client", "word", "language")
        rows = read_rows(sources.path(self.source), CsvFormat(",", ("",)), lambda *_: columns)
        clients = clients_of(rows, "client", np.ones(len(rows), dtype=bool))
        found = texts_of(rows, "word")
        parts: dict[str, list[list[str]]] = {part: [] for part in PARTS}
        for client, mine in enumerate(clients.rows):
            rng = client_generator(seed, client)
            drawn = rng.permutation(mine)[: self.words or len(mine)]
            shard = divided(drawn, (self.validation_fraction or 0.0, self.test_fraction))
            for part in PARTS:
                texts = [(found.word(row) or "")[: self.longest] for row in getattr(shard, part)]
                parts[part].append(texts)
        symbols = symbols_of(parts["train"], self.least_clients)
        self._check_room(parts, len(symbols) + FIRST)
        train, validation, test = (
            [self._examples(texts, symbols) for texts in parts[part]] for part in PARTS
        )
        return Federation.from_arrays(
            train,
            test,
            validation=for_validation(validation, self.validation_fraction),
            attributes=known_of(rows, clients, ["language"]),
            names=clients.names,
            num_classes=len(symbols) + FIRST,
        )

    def _check_room(self, parts: dict[str, list[list[str]]], classes: int) -> None:
        texts = [text for clients in parts.values() for client in clients for text in client]
        each = 4 * self.context * classes
        needed = sum(each * (len(text) + 1) for text in texts)
        if self.form == "sequence":
            needed = 8 * len(texts) * (self.longest + 1)
        check_memory(2 * needed, "words: examples of all clients")

    def _examples(self, texts: Sequence[str], symbols: dict[str, int]) -> Examples:
        coded = [[symbols.get(c, OTHER) for c in text] for text in texts]
        if self.form == "sequence":
            return _sequences(coded, self.longest + 1)
        return _contexts(coded, self.context, len(symbols) + FIRST)


def symbols_of(clients: Sequence[Sequence[str]], least: int) -> dict[str, int]:
    """A number for each character of at least `least` clients, in sorted order."""
    holders = Counter(character for texts in clients for character in set("".join(texts)))
    known = sorted(character for character, count in holders.items() if count >= least)
    return {character: place for place, character in enumerate(known, start=FIRST)}


def _contexts(words: Sequence[Sequence[int]], context: int, classes: int) -> Examples:
    """A row for each character and word end: the characters before, one-hot (context, classes)."""
    padded = [[EDGE] * context + [*word, EDGE] for word in words]
    before = [word[p : p + context] for word in padded for p in range(len(word) - context)]
    after = [symbol for word in padded for symbol in word[context:]]
    places = np.array(before, dtype=np.int64).reshape(-1, context)
    return np.eye(classes, dtype=np.float32)[places], np.array(after, dtype=np.int64)


def _sequences(words: Sequence[Sequence[int]], length: int) -> Examples:
    """A row for each word: its symbols (length,), and the next ones; padding is ignored."""
    x = np.full((len(words), length), EDGE, dtype=np.int64)
    y = np.full((len(words), length), IGNORED, dtype=np.int64)
    for row, word in enumerate(words):
        x[row, 1 : len(word) + 1] = word
        y[row, : len(word) + 1] = [*word, EDGE]
    return x, y
