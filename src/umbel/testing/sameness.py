"""Checks that a run depends only on its settings and seed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError
from umbel.engines.choice import EngineSettings
from umbel.experiment.toml_file import structured, writable
from umbel.folder import checkpoint
from umbel.testing.engines import Shuffled
from umbel.testing.federations import blobs
from umbel.testing.runs import ROUNDS, last_state, run_of, uninterrupted
from umbel.testing.sentences import saying, told
from umbel.testing.states import assert_same_state

OTHER_SEED = 4


@told
def engines_agree(algorithm: Algorithm[Any]) -> None:
    """The sequential and the vectorised engine give the same models, up to rounding.

    A run in single precision, which networks usually have, also comes to its end.
    """
    batched, one_by_one = (
        last_state(run_of(algorithm, engine=EngineSettings(name, "cpu")))
        for name in ("vectorised", "sequential")
    )
    with saying("the vectorised engine and the sequential one end in different states"):
        assert_same_state(batched, one_by_one, 1e-9)
    last_state(run_of(algorithm, torch.float32))


@told
def the_order_of_replies_is_free(algorithm: Algorithm[Any]) -> None:
    """The order of replies does not change a single bit of the results."""
    run = run_of(algorithm)
    shuffled = last_state(replace(run, engine=Shuffled(run.clients)))
    with saying("replies in another order lead to another state"):
        assert_same_state(shuffled, uninterrupted(algorithm)[-1][0])


@told
def the_same_run_twice_gives_the_same_records(algorithm: Algorithm[Any]) -> None:
    """A run is a function of its settings and seed."""
    again = run_of(algorithm).rounds(ROUNDS)
    for (_, one), (_, other) in zip(again, uninterrupted(algorithm), strict=True):
        first, second = vars(one.untimed()), vars(other.untimed())
        differ = {
            name: (first[name], second[name]) for name in first if first[name] != second[name]
        }
        assert not differ, (
            f"the same run twice gives other records of round {one.round}, as if something is "
            f"drawn from a global generator, or kept outside the state: {differ}"
        )


@told
def a_resumed_run_ends_as_the_uninterrupted_one(algorithm: Algorithm[Any]) -> None:
    """Everything that a round passes to the next one is in the state, and a file can hold it."""
    run = run_of(algorithm)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        *_, (third, _) = islice(run.rounds(ROUNDS), 3)
        checkpoint.save(file, third, 3)
        restored, first = checkpoint.load(file, run.start(ROUNDS))
    # A resumed run is often in another process, where values outside of the state are lost.
    next(run_of(algorithm, seed=OTHER_SEED).rounds(ROUNDS))
    assert first == 3, f"the state of round 2 is read back as that before round {first}"
    with saying("the state after the third round changes when it is read back from a file"):
        assert_same_state(restored, third)
    resumed = last_state(run, state=restored, first=first)
    with saying(
        "a run resumed after its third round, with another run in between, ends in another state; "
        "all that a method remembers must be in its State"
    ):
        assert_same_state(resumed, uninterrupted(algorithm)[-1][0])


@told
def its_settings_read_back_from_toml_the_same(algorithm: Algorithm[Any]) -> None:
    """All settings of the method can be written to an experiment file and read back."""
    read = structured(writable(algorithm), Algorithm)
    assert read == algorithm, f"settings read back from TOML as {read} instead of {algorithm}"


@told
def a_round_leaves_the_state_before_it_as_it_was(algorithm: Algorithm[Any]) -> None:
    """Rounds are functions: they change no tensor in place."""
    kept = [(state, deepcopy(state)) for state, _ in run_of(algorithm).rounds(ROUNDS)]
    for number, (state, copy) in enumerate(kept):
        with saying(f"the state after round {number} was changed in place later"):
            assert_same_state(state, copy)


@told
def planted_groups_make_no_difference(algorithm: Algorithm[Any]) -> None:
    """The planted groups do not influence a run, unless the method refuses to run without them."""
    bare = run_of(algorithm, federation=replace(blobs(), groups=None))
    try:
        bare.start(ROUNDS)
    except UsageError:
        return
    except Exception as error:
        raise AssertionError(
            f"init fails without planted groups, by {error!r}: only a method that needs them may "
            "know them, and must raise a UsageError without them"
        ) from error
    with saying("without planted groups, which are for scores alone, the run ends differently"):
        assert_same_state(last_state(bare), uninterrupted(algorithm)[-1][0])
