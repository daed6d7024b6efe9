"""Numbers in words."""

from __future__ import annotations


def plural(number: int, word: str) -> str:
    """A number of things: `1 seed`, `3 seeds`."""
    return f"{number} {word}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """A time in minutes, or a short one in seconds."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
