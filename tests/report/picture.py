"""The picture in docs/report.md: python -m tests.report.picture RUN COMPARISON OUT.png

RUN is the folder of a run, COMPARISON that of a comparison. It takes chromium and chromedriver.
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from umbel.report import write_files

WIDTH, GAP = 680, 14

RUN = ("Accuracy", "Who is in which cluster", "Similarity of clients")
COMPARISON = ("Lead of", "Each client against fedavg", "Accuracy")
"""Which figures are shown, by how their titles begin."""


def picture(run: Path, comparison: Path, out: Path) -> None:
    """Parts of both reports, side by side."""
    columns = [_column(run, RUN), _column(comparison, COMPARISON)]
    size = (sum(c.width for c in columns) + 3 * GAP, max(c.height for c in columns) + 2 * GAP)
    whole = Image.new("RGB", size, "white")
    left = GAP
    for column in columns:
        whole.paste(column, (left, GAP))
        left += column.width + GAP
    whole.quantize(128).save(out, optimize=True)


def _column(folder: Path, titles: Sequence[str]) -> Image.Image:
    """The head of a report and some of its figures, one below the other."""
    (page,) = write_files(folder, Path(mkdtemp()) / "report.html")
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    browser = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        size = {"width": WIDTH, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(page.as_uri())
        drawn = "return document.documentElement.dataset.drawn"
        WebDriverWait(browser, 60).until(lambda _: browser.execute_script(drawn) == "yes")
        parts = [_part(browser, "arguments[0]", "header")]
        parts += [_part(browser, "arguments[0].closest('figure')", "h3", title) for title in titles]
    finally:
        browser.quit()
    column = Image.new("RGB", (WIDTH, sum(p.height + GAP for p in parts)), "white")
    top = 0
    for part in parts:
        column.paste(part, (0, top))
        top += part.height + GAP
    return column


def _part(browser: Chrome, which: str, tag: str, begins: str = "") -> Image.Image:
    """The part of a page that belongs to the first element of a kind whose text begins so."""
    found = browser.find_elements(By.TAG_NAME, tag)
    element = next(each for each in found if each.text.startswith(begins))
    box = browser.execute_script(
        f"const box = {which}.getBoundingClientRect(); return [box.top + scrollY, box.height]",
        element,
    )
    clip = {"x": 0, "y": box[0], "width": WIDTH, "height": box[1], "scale": 1}
    shot = {"captureBeyondViewport": True, "clip": clip}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", shot)
    return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")


if __name__ == "__main__":
    picture(*map(Path, sys.argv[1:4]))
