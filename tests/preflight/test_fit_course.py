"""What can't be trained is told as training shows it, and models stay as they are."""

from __future__ import annotations

import pytest

import umbel
from tests.engines.modules import chain
from tests.preflight.fitted import LABELS, clients, numbers
from umbel.client.objectives import REGRESSION
from umbel.data.federation import Federation


def test_divergence_says_what_happened_and_what_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unscaled = clients(numbers(12, 6) * 1e6, numbers(12))
    run = umbel.Run(umbel.FedAvg(), unscaled, umbel.Net(chain(6, 1), REGRESSION))
    expected = r"training diverged for 3 of 3 clients.*scale the inputs, which reach .*e\+06.*lower"
    with pytest.raises(umbel.QuorumError, match=expected):
        next(run.rounds(1))
    some = Federation.from_arrays(
        [(numbers(12, 6) * scale, numbers(12)) for scale in (1, 1, 1, 1e6)]
    )
    small = umbel.LocalTraining(lr=0.01)
    run = umbel.Run(umbel.FedAvg(local=small), some, umbel.Net(chain(6, 1), REGRESSION))
    records = [record for _, record in run.rounds(3)]
    assert all(set(record.refused) == {3} for record in records)
    assert "training diverged there, or the reply is faulty" in records[0].refused[3]
    warnings = [entry for entry in caplog.records if "training diverged" in entry.getMessage()]
    assert len(warnings) == 1


def test_numbers_spoilt_on_purpose_are_not_called_divergence() -> None:
    federation, net = clients(numbers(12, 6), LABELS), umbel.Net(chain(6, 3))
    faults = umbel.Faults(not_finite=1.0)
    with pytest.raises(umbel.QuorumError, match=r"^round 0: 0 of 3 clients gave a usable reply"):
        next(umbel.Run(umbel.FedAvg(), federation, net, faults=faults).rounds(1))
