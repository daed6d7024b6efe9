"""What a reader meets: pages opened in a browser without a screen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import NASTY, Page, compared, made, many, own
from umbel.report.pages.writing import write_files

pytest.importorskip("vl_convert", reason="the extra umbel[report] is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not there"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

MARKS = ".mark-symbol path, .mark-rect path, .mark-line path, canvas"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = Chrome(options=options, service=Service(str(DRIVER)))
    yield found
    found.quit()


class Reader:
    """Opens a report as wide as wished, and looks at it."""

    def __init__(self, browser: Chrome, folder: Path) -> None:
        self.browser, self.folder = browser, folder

    def open(self, path: Path, width: int = 1280, scheme: str = "light") -> None:
        (file,) = write_files(path, self.folder / "report.html")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        colours = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", colours)
        self.browser.get(file.as_uri())
        WebDriverWait(self.browser, 60).until(
            lambda _: self.do("return document.documentElement.dataset.drawn") == "yes"
        )

    def do(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        found: list[WebElement] = self.browser.find_elements(By.CSS_SELECTOR, selector)
        return found

    def one(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def rows(self) -> list[str]:
        cells = "#clients tbody tr"
        script = "return [...document.querySelectorAll(arguments[0])].map((row) => row.innerText)"
        found: list[str] = self.do(script, cells)
        return found


@pytest.fixture
def reader(browser: Chrome, tmp_path: Path) -> Reader:
    return Reader(browser, tmp_path)


def paths() -> dict[str, Path]:
    return {"run": made("flacc-digits", "rounds=25"), "own": own(), "comparison": compared()}


@pytest.mark.parametrize("name", ["run", "own", "comparison", "many"])
def test_every_figure_is_drawn_without_an_error(name: str, reader: Reader) -> None:
    reader.open(paths().get(name) or many())
    drawings = reader.all(".drawing")
    assert len(drawings) >= 6
    counts = reader.do(
        "return [...document.querySelectorAll('.drawing')]"
        ".map((each) => each.querySelectorAll(arguments[0]).length)",
        MARKS,
    )
    assert all(count > 0 for count in counts), counts
    assert not reader.browser.get_log("browser")


@pytest.mark.parametrize("name", ["run", "own", "comparison"])
def test_on_a_phone_nothing_is_wider_than_the_page(name: str, reader: Reader) -> None:
    reader.open(paths()[name], width=375)
    assert reader.do("return document.documentElement.scrollWidth") == 375
    assert reader.do("return innerWidth") == 375
    wide = reader.do(
        "return [...document.querySelectorAll(arguments[0])]"
        ".filter((each) => each.getBoundingClientRect().right > 376).map((each) => each.outerHTML)",
        ".drawing svg, .drawing canvas, h1, h2, p, .tools button, .copy, input",
    )
    assert not wide


def test_hovering_shows_who_it_is(reader: Reader) -> None:
    reader.open(own())
    place = 3  # the map
    dot = reader.all(".drawing")[place].find_elements(
        By.CSS_SELECTOR, ".mark-symbol.role-mark path"
    )[0]
    reader.do("arguments[0].scrollIntoView({block: 'center'})", dot)
    ActionChains(reader.browser).move_to_element(dot).perform()
    WebDriverWait(reader.browser, 10).until(lambda _: reader.all("#vg-tooltip-element.visible"))
    words = " ".join(each.text for each in reader.all("#vg-tooltip-element.visible"))
    assert "training examples" in words
    assert "accuracy" in words
    assert NASTY in words or "site <b>" in words  # as it is, and not as HTML


def test_the_table_is_searched_and_sorted_by_keyboard(reader: Reader) -> None:
    reader.open(own())
    assert len(reader.rows()) == 12
    search = reader.one("#clients-search")
    search.send_keys("<SCRIPT")
    assert [row.split("\t")[0] for row in reader.rows()] == [NASTY]
    assert reader.one("#clients-status").text == "1 of 12 clients shown"
    search.send_keys(Keys.CONTROL, "a", Keys.DELETE)
    head = reader.one("#clients th:last-child")
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    losses = [float(row.split("\t")[-1]) for row in reader.rows()]
    assert losses == sorted(losses)
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert [float(row.split("\t")[-1]) for row in reader.rows()] == losses[::-1]
    assert not reader.browser.get_log("browser")


def test_clients_that_are_not_shown_are_found(reader: Reader) -> None:
    reader.open(many())
    assert len(reader.rows()) == 300
    reader.one("#clients-search").send_keys("2999")
    assert any(row.startswith("2999\t") for row in reader.rows())


def _until_it_says(reader: Reader, button: WebElement, words: str) -> None:
    WebDriverWait(reader.browser, 10).until(lambda _: button.text == words)


def test_the_table_of_methods_is_copied_as_text(reader: Reader) -> None:
    reader.open(compared())
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    reader.browser.execute_cdp_cmd("Browser.grantPermissions", grant)
    for kind, begins in (("markdown", "| method |"), ("csv", "method,"), ("latex", "\\begin{tab")):
        button = reader.one(f"button[data-copy=table-{kind}]")
        reader.do("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()
        _until_it_says(reader, button, "copied")
        copied = reader.browser.execute_async_script(
            "const done = arguments[0]; navigator.clipboard.readText().then(done, done)"
        )
        expected = reader.one(f"#table-{kind}").get_attribute("value")
        assert str(copied).startswith(begins)
        assert copied == expected


BOXES = """
const drawing = arguments[0];
return [...drawing.querySelectorAll(".role-axis-label text, .mark-text.role-mark text")]
  // Words that are turned have boxes that are larger than they are.
  .filter((each) => !/rotate\\([1-9]/.test(each.getAttribute("transform")))
  .map((each) => [each.textContent, each.getBoundingClientRect()])
  .map(([text, box]) => [text, box.left, box.top, box.right, box.bottom]);
"""


@pytest.mark.parametrize(
    ("name", "width"), [("run", 375), ("own", 375), ("comparison", 375), ("comparison", 1280)]
)
def test_names_hide_no_other_names_and_are_within_the_page(
    name: str, width: int, reader: Reader
) -> None:
    reader.open(paths()[name], width)
    for drawing in reader.all(".drawing"):
        boxes = reader.do(BOXES, drawing)
        title = str(drawing.get_attribute("aria-label"))[:40]
        for (one, *a), (other, *b) in combinations(boxes, 2):
            apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 3 or b[3] <= a[1] + 3
            assert apart, (title, one, other, a, b)
        assert all(box[1] >= 0 and box[3] <= width + 1 for box in boxes), title


def test_methods_are_named_in_legends_and_beside_rows(reader: Reader) -> None:
    reader.open(compared())
    page = Page((reader.folder / "report.html").read_text(encoding="utf-8"))
    for title in ("Accuracy", "What it costs", "Clusters"):
        drawing = reader.all(".drawing")[page.titles.index(title)]
        names = drawing.find_elements(By.CSS_SELECTOR, ".role-legend-label text")
        assert sorted(name.text for name in names) == ["fedavg", "ifca"]
    rows = reader.all(".drawing")[page.titles.index("Every seed")]
    labels = rows.find_elements(By.CSS_SELECTOR, ".role-axis-label text")
    assert {"fedavg", "ifca"} <= {label.text for label in labels}


def _seen(reader: Reader, side: str) -> bool:
    style = "return getComputedStyle(document.querySelector('.frame'), arguments[0]).opacity"
    return float(reader.do(style, side)) > 0.9


def test_a_table_that_is_wider_than_a_phone_shows_that_it_scrolls(reader: Reader) -> None:
    reader.open(compared(), width=375)
    box, hint = reader.one(".wide"), reader.one(".hint")
    assert hint.text == "Scroll sideways for more columns →"
    WebDriverWait(reader.browser, 10).until(lambda _: _seen(reader, "::after"))
    assert not _seen(reader, "::before")
    reader.do("arguments[0].scrollLeft = 1e4", box)
    WebDriverWait(reader.browser, 10).until(
        lambda _: _seen(reader, "::before") and not _seen(reader, "::after")
    )
    first = reader.do("return arguments[0].querySelector('tbody th').getBoundingClientRect()", box)
    assert first["left"] >= 0  # whose row it is stays in sight
    reader.open(compared(), width=1280)
    assert not reader.one(".hint").is_displayed()


def test_dark_pages_have_light_words_and_lines(reader: Reader) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        reader.open(made("flacc-digits", "rounds=25"), scheme=scheme)
        style = "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
        tick = "return getComputedStyle(document.querySelector('.role-axis-label text')).fill"
        shades[scheme] = [*reader.do(style), reader.do(tick)]
    assert not set(shades["light"]) & set(shades["dark"])
