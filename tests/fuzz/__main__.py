"""Attacks in full: `python -m tests.fuzz commands --count 500`."""

from __future__ import annotations

import argparse
import importlib
import sys

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("attack", help="a module of tests.fuzz with a function main(count, seed)")
parser.add_argument("--count", type=int, default=500)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
sys.exit(importlib.import_module(f"tests.fuzz.{given.attack}").main(given.count, given.seed))
