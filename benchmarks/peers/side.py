"""One side's rounds, in a process of its own: prints their times as JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.peers.tasks import TASKS
from benchmarks.peers.watch import Watch

if __name__ == "__main__":
    side, task, file, cores = sys.argv[1:]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-int(cores) :])
    watch = Watch()
    import_module(f"benchmarks.peers.in_{side}").run(TASKS[task], Path(file), watch)
    sys.stdout.write("\n" + json.dumps(watch.told()) + "\n")
