#!/usr/bin/env bash
# byzfl 0.0.11 (a package of robust rules, MIT): CenteredClipping takes no starting point. Its argument m is documented as "initial
# value of the CenteredClipping aggregator", but the check of its type asks for an array of NumPy and a tensor of PyTorch at once, so
# that every value but None is refused. A run that is resumed can't go on from its last step. Beside it: Clipping, a step before
# other rules, changes the rows that it is given in place, so that what is compared with them later is compared with clipped ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip torch==2.13.0 numpy==2.4.6 scipy==1.17.1
$pip --no-deps byzfl==0.0.11
cat > "$folder/try_it.py" <<'PYTHON'
import sys
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import torch

# byzfl's own __init__ imports training code, which needs torchvision and more; its rules do not.
package = ModuleType("byzfl")
package.__path__ = list(find_spec("byzfl").submodule_search_locations)
sys.modules["byzfl"] = package

from byzfl.aggregators import CenteredClipping, Clipping

refused = 0
for start in (np.ones(2), torch.ones(2)):
    try:
        CenteredClipping(m=start, L=1, tau=1.0)
    except TypeError as error:
        refused += 1
        print(f"m of {type(start).__name__}: {error}")
rows = np.array([[3.0, 4.0], [0.0, 1.0]])
Clipping(1.0)(rows)
print("rows after Clipping(1.0)(rows):", rows.tolist())
sys.exit(0 if refused == 2 and np.allclose(rows[0], [0.6, 0.8]) else "no longer as described")
PYTHON
"$folder/venv/bin/python" "$folder/try_it.py"
