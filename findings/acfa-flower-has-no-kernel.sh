#!/usr/bin/env bash
# acfa-flower 0.2.0 ("Byzantine-robust, bit-reproducible aggregation for Flower"): what the package index serves cannot aggregate.
# Every rule, the plain mean included, runs a program, acfa-agg, that is in no wheel and no package of the index; the strategy is made
# without a word and fails in the first aggregation. Seen: AcfaAggregationError, "acfa-agg not found. Build it with cargo build ...".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check acfa-flower==0.2.0 numpy==2.4.6
cat > "$folder/try_it.py" <<'PYTHON'
import numpy as np
from acfa_flower.strategy import AcfaAggregationError, Rule, aggregate

updates = [[np.full(4, float(client))] for client in range(5)]
for rule in (Rule.MEAN, Rule.KRUM):
    try:
        aggregate(updates, rule=rule, f=1)
    except AcfaAggregationError as error:
        print(f"{rule.name}: {str(error).splitlines()[0]}")
        assert "acfa-agg not found" in str(error)
    else:
        raise SystemExit(f"{rule.name} aggregates: this finding no longer holds")
PYTHON
cd "$folder" && venv/bin/python try_it.py
