"""Words become examples of which character comes next, with symbols from training words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from umbel.checks import UsageError
from umbel.client.batches import IGNORED
from umbel.data.scenarios.words import EDGE, OTHER, Words, symbols_of
from umbel.data.sources import Sources

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")


def write(folder: Path, words: dict[str, list[str]]) -> Sources:
    (folder / "natural").mkdir()
    rows = [(client, client[:2], word) for client, mine in words.items() for word in mine]
    table = pd.DataFrame(rows, columns=["client", "language", "word"])
    table.to_parquet(folder / "natural" / "words.parquet")
    return Sources(folder, folder / "cache")


def test_symbols_are_characters_that_enough_clients_have() -> None:
    assert symbols_of([["ab", "a"], ["bc"]], 1) == {"a": 2, "b": 3, "c": 4}
    assert symbols_of([["ab", "a"], ["bc"]], 2) == {"b": 2}


def test_an_example_is_a_character_and_those_before_it(tmp_path: Path) -> None:
    sources = write(tmp_path, {"aa-0": ["ab"], "bb-0": ["xb", "ba"]})
    federation = Words(words=0, test_fraction=0.0, context=2).build(0, sources)
    assert federation.names == ("aa-0", "bb-0")
    assert federation.attributes == {"language": ("aa", "bb")}
    assert federation.input_shape == (2, 4)
    assert federation.num_classes == 4  # edge, other, a, b
    x, y = federation.train.of(0)
    a, b = 2, 3
    assert x.argmax(2).tolist() == [[EDGE, EDGE], [EDGE, a], [a, b]]
    assert bool((x.sum(2) == 1).all())
    assert y.tolist() == [a, b, EDGE]
    of_other = federation.train.of(1)
    assert OTHER in of_other[1].tolist()  # x, which one client alone has
    assert len(of_other[1]) == 6


def test_an_example_may_be_a_word_whose_padding_is_ignored(tmp_path: Path) -> None:
    sources = write(tmp_path, {"aa-0": ["ab"], "bb-0": ["ba", "abba"]})
    scenario = Words(words=0, test_fraction=0.0, form="sequence", longest=3)
    federation = scenario.build(0, sources)
    x, y = federation.train.of(0)
    assert x.tolist() == [[EDGE, 2, 3, EDGE]]
    assert y.tolist() == [[2, 3, EDGE, IGNORED]]
    assert [2, 3, 3, EDGE] in federation.train.of(1)[1].tolist()  # cut to three characters
    assert federation.train.x.dtype == torch.int64


def test_words_of_one_split_are_in_no_other_and_symbols_are_those_of_training_words(
    tmp_path: Path,
) -> None:
    words = {f"l{n}-0": [f"{a}{b}" for a in "abcd" for b in "efgh"] for n in range(2)}
    scenario = Words(words=12, test_fraction=0.25, validation_fraction=0.34, form="sequence")
    federation = scenario.build(0, write(tmp_path, words))
    assert federation.validation is not None
    parts = (federation.train, federation.validation, federation.test)
    assert [part.sizes.tolist() for part in parts] == [[6, 6], [3, 3], [3, 3]]
    seen = [{tuple(row) for row in part.of(0)[0].tolist()} for part in parts]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]


def test_the_words_are_drawn_by_the_seed(tmp_path: Path) -> None:
    sources = write(tmp_path, {"aa-0": [f"{a}{b}" for a in "abcd" for b in "efgh"]})
    scenario = Words(words=5, least_clients=1)
    drawn = [scenario.build(seed, sources).train for seed in (0, 0, 1)]
    assert torch.equal(drawn[0].x, drawn[1].x)
    assert drawn[0].x.shape != drawn[2].x.shape or not torch.equal(drawn[0].x, drawn[2].x)


@pytest.mark.parametrize("change", [{"words": -1}, {"context": 0}, {"test_fraction": 1.0}])
def test_settings_that_can_not_be_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(change))}: .* is not"):
        Words(**change)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_the_real_words_are_there(real_data: Sources) -> None:
    if (
        real_data.data_dir is None
        or not (real_data.data_dir / "natural" / "words.parquet").is_file()
    ):
        pytest.skip("the data directory has no natural/words.parquet")
    federation = Words(words=20).build(0, real_data)
    assert federation.num_clients == 48
    assert len(set(federation.attributes["language"])) == 8
    assert np.isfinite(federation.train.x.numpy()).all()
