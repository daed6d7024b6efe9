"""A disk that fails: at its n-th change this process is killed, or from then on there is no room.

Changes are counted where Python and safetensors ask the system for them. Of what is written when a
process is killed, one half is there.
"""

from __future__ import annotations

import errno
import io
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from umbel.folder import tensor_files

Fault = Literal["kill", "full"]

GROWING = ("open", "mkdir", "write", "save_file")
"""Changes that need room."""


@dataclass
class Disk:
    """Counts changes under a folder, and fails at one of them."""

    at: int | None = None
    fault: Fault = "kill"
    calls: list[str] = field(default_factory=list)

    def install(self) -> None:
        """Take the place of what changes files, for the rest of this process."""
        for name in ("fsync", "replace", "unlink", "rmdir", "mkdir", "link"):
            setattr(os, name, self._counted(name, getattr(os, name)))
        real_open, save = io.open, vars(tensor_files)["save_file"]

        def watching(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return real_open(file, mode, *args, **named)
            self.change("open", file=file)
            return Watched(real_open(file, mode, *args, **named), self)

        def saving(tensors: Any, file: Path, header: Any) -> None:
            def half() -> None:
                save(tensors, file, header)
                os.truncate(file, file.stat().st_size // 2)

            self.change("save_file", half)
            save(tensors, file, header)

        vars(io)["open"], vars(tensor_files)["save_file"] = watching, saving

    def change(self, name: str, half: Callable[[], object] = int, file: Any = None) -> None:
        """Count a change, and fail where it is time to; `half` makes a part of it."""
        self.calls.append(name)
        if self.at is None or len(self.calls) < self.at:
            return
        if self.fault == "kill":
            half()
            os.kill(os.getpid(), signal.SIGKILL)
        if name in GROWING:
            reason = os.strerror(errno.ENOSPC)
            if name == "save_file":
                raise SafetensorError(f"I/O error: {reason} (os error {errno.ENOSPC})")
            raise OSError(errno.ENOSPC, reason, None if file is None else str(file))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.change(name, file=args[0])
            return real(*args, **named)

        return call


class Watched:
    """A file that is written to."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self.file, self.disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, data: Any) -> None:
        def half() -> None:
            self.file.write(data[: len(data) // 2])
            self.file.flush()

        self.disk.change("write", half)
        self.file.write(data)
