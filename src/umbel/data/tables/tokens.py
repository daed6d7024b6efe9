"""A column of texts as token ids, by the tokenizer in an encoder's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_memory, first_line
from umbel.data.tables.kinds import ColumnWords
from umbel.data.tables.parts import Places
from umbel.files.reading import read_text
from umbel.networks.encoders import encoder_folder
from umbel.networks.packages import optional
from umbel.summary import in_short

NEGATIVE = -1
"""Padding id if a network names none: networks treat negative ids as padding."""


@dataclass(frozen=True)
class Tokens:
    """The ids of each text, padded to the right."""

    codes: NDArray[np.int64]  # (n,) index of each row's text
    ids: NDArray[np.int64]  # (texts, width)
    cut: NDArray[np.bool_]  # (texts,) whether a text has more tokens than these
    digest: str  # of everything that decides which ids a text has

    __repr__ = in_short

    @property
    def width(self) -> int:
        """Number of token ids of an example."""
        return int(self.ids.shape[1])

    def __call__(self, rows: Places) -> NDArray[np.int64]:
        """The ids (rows, width)."""
        return self.ids[self.codes[rows]]


def tokens_of(column: ColumnWords, encoder: str, longest: int | None) -> Tokens:
    """The token ids of a column's texts, by an encoder's tokenizer; missing texts are empty.

    All are padded to the longest, or padded or cut to `longest` ids. Raises `UsageError` if there
    is no tokenizer.
    """
    folder = encoder_folder(encoder, "scenario.tokenizer")
    pad = _pad(folder)
    tokenizer, digest = _tokenizer(folder / "tokenizer.json", pad)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if longest is not None:
        least = tokenizer.num_special_tokens_to_add(False)
        expected = f"at least {least}, the special tokens that the tokenizer adds to each text"
        check(longest >= least, "scenario.text_tokens", longest, expected)
        tokenizer.enable_truncation(longest)
    read, cut = [], []
    # One at a time: batches start threads, and forked workers would warn about these.
    for word in (*column.words, ""):
        text = tokenizer.encode(word)
        read.append(text.ids)
        cut.append(bool(text.overflowing))
    width = max(1, max(map(len, read))) if longest is None else longest
    check_memory(16 * width * len(read), "table: the tokens of all texts")
    codes = np.where(column.codes < 0, len(column.words), column.codes)
    return Tokens(codes, _matrix(read, width, pad), np.array(cut), digest)


def _matrix(read: Sequence[Sequence[int]], width: int, pad: int) -> NDArray[np.int64]:
    ids = np.full((len(read), width), pad, dtype=np.int64)
    for row, mine in enumerate(read):
        ids[row, : len(mine)] = mine
    return ids


def _tokenizer(file: Path, pad: int) -> tuple[Any, str]:
    """The tokenizer in a file, and a digest of its content and of the padding id."""
    tokenizers = optional("tokenizers", "tokenizer")
    text = read_text(file)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
        content = json.loads(text)
    except Exception as error:  # the library raises no more specific type
        said = first_line(error)
        raise UsageError(f"{file}: is no tokenizer: {said}") from None
    # Texts are padded and cut here, and never by the tokenizer's own settings.
    used = {key: value for key, value in content.items() if key not in ("padding", "truncation")}
    said = json.dumps([_however_written(used), pad], sort_keys=True)
    return tokenizer, hashlib.sha256(said.encode()).hexdigest()


def _however_written(content: dict[str, Any]) -> dict[str, Any]:
    """The same for a tokenizer that another version of the library has saved again.

    Merges were texts such as "a b" once, and a setting may be left out while it is off.
    """
    model = content.get("model")
    if not isinstance(model, dict):
        return content
    model = {key: value for key, value in model.items() if value is not None and value is not False}
    merges = [
        pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges") or ()
    ]
    return {**content, "model": {**model, "merges": merges}}


def _pad(folder: Path) -> int:
    """The id of padding, from the network's configuration.

    A tokenizer may name another, which the network would read as text.
    """
    try:
        pad = json.loads(read_text(folder / "config.json", 1 << 20)).get("pad_token_id")
    except (ValueError, AttributeError):
        pad = None
    return pad if isinstance(pad, int) else NEGATIVE
