"""`python -m umbel` is `umbel`."""

from umbel.cli import main

main()
