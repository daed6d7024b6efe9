"""Loading PyTorch and the package, which takes half of the time of a short run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Inside, a command imports what it needs, and no garbage is looked for.

    Modules stay until the process ends, with 300,000 objects. A short run would spend an eighth of
    its time looking through these for garbage, so they are left out later, too.
    """
    if "torch" in sys.modules or not gc.isenabled():  # another program has called this command
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
