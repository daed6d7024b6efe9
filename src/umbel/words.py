"""Numbers in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 client`, `1,200 clients`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in minutes, or a short one in seconds."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
