"""Folders of advice: they hold an experiment to run next, and are not runs themselves."""

from __future__ import annotations

from pathlib import Path

from umbel.checks import UsageError, command

ADVICE = "advice.json"


def holds_advice(folder: Path) -> bool:
    """Whether `umbel advise` wrote this folder."""
    return (folder / ADVICE).is_file()


def check_no_advice(folder: Path) -> None:
    """Raise `UsageError` for a folder of advice; the message says what it can be used for."""
    if not holds_advice(folder):
        return
    next_ = folder / "experiment.toml"
    also = f", and `{command('run', next_)}` runs what it advises" if next_.is_file() else ""
    raise UsageError(
        f"{folder}: holds advice and no run; `{command('report', folder)}` shows it{also}"
    )
