"""Compression of long scripts, which the page unpacks, to keep pages small for mail."""

from __future__ import annotations

import gzip
from base64 import b85encode

SAFE = bytes.maketrans(b"<>&", b".,:")
"""Replacements for the three of the 85 characters that have a meaning in HTML."""


def packed(script: str) -> str:
    """The compressed script, five characters for four bytes: `unpack.js` is the inverse.

    Base 64 would take four signs for three bytes, which is one part in fifteen more.
    """
    squeezed = gzip.compress(script.encode(), 9, mtime=0)
    return b85encode(squeezed).translate(SAFE).decode()
