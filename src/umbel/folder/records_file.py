"""The file `records.jsonl`: a line a round, each sealed after the one before it.

The seals reveal lines that were changed, removed, repeated or moved. A last line without a line
break is incomplete, because the process was killed while it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from umbel.checks import UsageError
from umbel.files.atomic import append_text, write_text
from umbel.files.reading import read_bytes
from umbel.files.seals import AGAIN, BLANK, BROKEN, KEY, intact, sealed
from umbel.run.records import Record

END = len(f'{BLANK}"}}\n')
"""Length of the end of a line: its seal and the closing characters."""


@dataclass(frozen=True)
class RecordLines:
    """The records of one run on disk."""

    file: Path

    @property
    def begun(self) -> bool:
        """True if there is a whole line."""
        return self.file.is_file() and b"\n" in read_bytes(self.file)

    def read(self) -> list[Record]:
        """The records of all whole rounds. Raises `UsageError` for a damaged line."""
        raw = read_bytes(self.file) if self.file.is_file() else b""
        *lines, last = raw.split(b"\n")
        records: list[Record] = []
        before = ""
        # The last piece is empty after a line break, or a line that a killed process left
        # incomplete.
        for line in lines + [last] * bool(last):
            record = _read(line, before, len(records))
            if record is None and line is not last:
                what = f"damaged: line {len(records) + 1} is not the line that was written"
                raise UsageError(f"{self.file}: {what}; {AGAIN}")
            if record is None:
                break
            before = _seal(line)
            records.append(record)
        return records

    def append(self, record: Record) -> None:
        """Add a line, on disk when this returns."""
        before = ""
        if self.file.is_file():
            # Only the end of the file is read: appending takes as long in round 10,000 as in round
            # 1.
            with self.file.open("rb") as lines:
                lines.seek(max(0, self.file.stat().st_size - END))
                before = _seal(lines.read().rstrip(b"\n"))
        append_text(self.file, _line(record, before))

    def write(self, records: Sequence[Record]) -> None:
        """Replace all lines."""
        lines, before = [], ""
        for record in records:
            lines.append(_line(record, before))
            before = _seal(lines[-1].rstrip("\n").encode())
        write_text(self.file, "".join(lines))


def _line(record: Record, before: str) -> str:
    return sealed(f'{record.to_json()[:-1]}, "{KEY}": "{BLANK}"}}', before) + "\n"


def _seal(line: bytes) -> str:
    """Return the seal at the end of a line."""
    return line[1 - END : -2].decode(errors="replace")


def _read(line: bytes, before: str, number: int) -> Record | None:
    """Read the record of a line; None unless it is of this round, and its seal follows `before`."""
    if not intact(line, before):
        return None
    try:
        record = Record.from_json(line.decode(errors="replace"))
    except BROKEN:
        return None
    return record if record.round == number else None
