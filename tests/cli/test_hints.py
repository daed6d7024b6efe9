"""Options and commands that others have are answered by those of umbel."""

from __future__ import annotations

import pytest

from tests.shell import Shell

GUESSES = {
    "run flacc-digits --lr 0.1": "No such option '--lr'; write --set algorithm.local.lr=0.1",
    "run flacc-digits --rounds 3": "write --set rounds=3",
    "run flacc-digits --n-clusters 4": "write --set algorithm.num_clusters=4",
    "run flacc-digits --out here": "write --runs-dir here",
    "run flacc-digits algorithm.local.lr=0.1": "write --set algorithm.local.lr=0.1",
    "advise digits --rounds 3": "write --budget 3",
    "run flacc": "'flacc' is a method: `umbel list experiments flacc` shows its experiments",
    "train flacc-digits": "No such command 'train'; did you mean run?",
    "run flacc-digits --seeds 3": "No such option '--seeds'; an option of `umbel compare`",
    "run v.csv": "'v.csv' is a file of data: `umbel advise v.csv` says how to cluster its clients,",
    "help": "No such command 'help'; did you mean --help?",
    "list optimizers": "write `umbel list settings algorithm.local.optimizer.name`",
    "list objectives": "write `umbel list settings objective`",
    "lst": "did you mean list?",
    "list flacc": "kind: 'flacc' is not known; write `umbel list methods flacc`",
    "list datasets": "did you mean scenarios?",
    "run flacc-digits --set lr=0.1": "unknown key; did you mean algorithm.local.lr?",
    "run flacc-digits --set algorithm.num_clusters=4": "unknown key; a setting of ",
}


@pytest.mark.parametrize(("line", "answer"), GUESSES.items())
def test_a_guess_is_answered_by_what_to_write(line: str, answer: str, umbel: Shell) -> None:
    assert answer in umbel.refused(*line.split())
