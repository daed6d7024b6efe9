"""Ordinary tables are read right, or refused with what to write."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import umbel
from umbel.checks import UsageError
from umbel.data.tables.encoding import Encoding

pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

from tests.data.tables.forty import ORDINARY, PLAIN, Ordinary, frame


def read(table: Ordinary, file: Path) -> umbel.Federation:
    table.write(frame(), file)
    settings = {"client": "site", "target": "outcome", **table.settings}
    return umbel.scenario("table", path=str(file), **settings)


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_table_is_read_right_or_refused_with_what_to_write(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = ORDINARY[name]
    file = tmp_path / f"t.{table.ending}"
    if table.refused:
        with pytest.raises(UsageError, match=table.refused):
            read(table, file)
        return
    with caplog.at_level(logging.WARNING):
        federation = read(table, file)
    assert isinstance(federation.encoding, Encoding)
    assert federation.encoding.features == table.features
    if table.warned:
        assert table.warned in caplog.text
        return
    assert caplog.text == ""
    if table.features == PLAIN:
        plain = read(ORDINARY["plain"], tmp_path / "plain.csv")
        for split, same in zip(federation.splits, plain.splits, strict=True):
            torch.testing.assert_close(split.x, same.x)
            assert torch.equal(split.y, same.y)
