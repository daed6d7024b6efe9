#!/usr/bin/env bash
# river 0.26.1: its drift detectors with their defaults answer by the unit of the values. A client's loss that rises to five times
# what it was is found by ADWIN 27 rounds later and by PageHinkley 52 rounds later; the same series in hundredths (a mean squared
# error of scaled targets, say) is never found in 60 rounds by either. And a loss that only falls, as in any training run, is drift
# to ADWIN, KSWIN and PageHinkley alike. A federation that asks these detectors has to standardise losses and look at the direction.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check river==0.26.1 numpy==2.4.6
cat > "$folder/try_it.py" <<'PYTHON'
import numpy as np
from river import drift


def found(detector, losses):
    rounds = []
    for number, loss in enumerate(losses):
        detector.update(loss)
        if detector.drift_detected:
            rounds.append(number)
    return rounds


draw = np.random.default_rng(0)
noise = draw.normal(0, 0.02, 300)
falling = 2.3 * np.exp(-np.arange(300) / 60) + 0.2 + noise
risen = np.concatenate([np.full(100, 0.3), np.full(60, 1.5)]) + noise[:160]
for name, make in {"ADWIN": drift.ADWIN, "PageHinkley": drift.PageHinkley}.items():
    as_it_is, hundredths = found(make(), risen), found(make(), risen / 100)
    print(f"{name}: a loss five times as high from round 100 is found in {as_it_is}, in hundredths in {hundredths}")
    assert as_it_is and as_it_is[0] >= 100 and not hundredths, "this finding no longer holds"
detectors = {"ADWIN": drift.ADWIN(), "KSWIN": drift.KSWIN(seed=0), "PageHinkley": drift.PageHinkley()}
for name, detector in detectors.items():
    rounds = found(detector, falling)
    print(f"{name}: drift in a loss that only falls: rounds {rounds}")
    assert rounds, "a falling loss is no drift: this finding no longer holds"
PYTHON
cd "$folder" && venv/bin/python try_it.py
