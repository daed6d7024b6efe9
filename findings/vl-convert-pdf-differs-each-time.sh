#!/usr/bin/env bash
# vl-convert-python 1.9.0: svg_to_pdf writes another file each time that it is given the same SVG, even in one process: as long as
# the others, but with the objects of the page in another order. SVG and PNG of one chart are the same bytes each time. So PDFs of
# figures can't be compared by their bytes, nor kept in a repository without a change at each run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check vl-convert-python==1.9.0
cat > "$folder/try_it.py" <<'PYTHON'
import vl_convert

chart = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "title": "accuracy",
    "data": {"values": [{"round": 1, "value": 0.4, "method": "a"}, {"round": 2, "value": 0.6, "method": "b"}]},
    "mark": "point",
    "encoding": {"x": {"field": "round"}, "y": {"field": "value"}, "color": {"field": "method"}},
}
svg = vl_convert.vegalite_to_svg(chart)
times = 8
written = {
    "SVG": [vl_convert.vegalite_to_svg(chart) for _ in range(times)],
    "PNG": [vl_convert.vegalite_to_png(chart) for _ in range(times)],
    "PDF": [vl_convert.svg_to_pdf(svg) for _ in range(times)],
}
for kind, files in written.items():
    print(f"{kind}: {len(set(files))} different files of {times}, of {sorted({len(each) for each in files})} bytes")
assert len(set(written["SVG"])) == len(set(written["PNG"])) == 1, "this finding no longer holds"
assert len(set(written["PDF"])) > 1, "PDFs are the same now: this finding no longer holds"
PYTHON
cd "$folder" && venv/bin/python try_it.py
