"""The page in a real browser: what one sees, hears and reaches with mouse, keys, a phone and a printer."""

import json
import shutil
from typing import Any

import numpy as np
import pytest

from adaptive_ot.workbench.report.contents import Explorer, Match, Page, Table
from adaptive_ot.workbench.report.html.page import render
from adaptive_ot.workbench.report.pictures import data_uri
from reports import HOSTILE, digits_match, digits_page, page_of, pairs, png, samples

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium: apt install chromium chromium-driver"),
]

SWITCHES = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Browser:
    """A window, and what one does in it."""

    def __init__(self, driver: Any, directory: Any):
        self.driver, self.directory, self.opened = driver, directory, 0

    def open(self, page: Page, width: int = 1280, scheme: str = "light", media: str = "") -> None:
        self.opened += 1
        path = self.directory / f"{self.opened}.html"
        path.write_text(render(page), encoding="utf-8")
        self.resize(width)
        self.emulate(scheme, media)
        self.driver.get(path.as_uri())
        self.run("document.documentElement.style.scrollBehavior = 'auto'")

    def resize(self, width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def explore(self, *matches: Match, **options: Any) -> None:
        self.open(Page("Page", "", [Explorer("Explorer", match) for match in matches]), **options)

    def emulate(self, scheme: str, media: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def each(self, selector: str, script: str) -> list[Any]:
        """The value of a script for `each` element."""
        return self.run(f"return [...document.querySelectorAll(arguments[0])].map((each) => {script})", selector)

    def texts(self, selector: str) -> list[str]:
        return self.each(selector, "each.textContent")

    def active(self, attribute: str) -> Any:
        """An attribute of the element that has the focus."""
        return self.run(f"return document.activeElement.{attribute}")

    def press(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def point(self, element: Any, right: float = 0, down: float = 0, click: bool = False) -> None:
        """Move the mouse to a place, measured from the middle of an element."""
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        move = webdriver.ActionChains(self.driver).move_to_element_with_offset(element, round(right), round(down))
        (move.click() if click else move).perform()

    def becomes(self, condition: str) -> bool:
        """Whether something comes true that the browser does in its own time."""
        return WebDriverWait(self.driver, 10, 0.02).until(lambda _: self.run(f"return {condition}"))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> set[str]:
        """Every address that was asked for since the last time."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        return {each["request"]["url"] for each in asked if each["documentURL"].startswith("file:")}


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    directory = tmp_path_factory.mktemp("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for switch in [*SWITCHES, f"--user-data-dir={directory / 'profile'}"]:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield Browser(driver, directory)
    driver.quit()


@pytest.fixture(autouse=True)
def _quiet(browser):
    """Whatever a test does, nothing is complained about and nothing is asked of anybody."""
    browser.complaints()
    browser.requests()
    yield
    assert browser.complaints() == []
    assert {address.partition(":")[0] for address in browser.requests()} <= {"file", "data"}


@pytest.fixture(scope="session")
def digits() -> Match:
    return digits_match()


def strongest(match: Match, wanted: Any) -> list[tuple[int, int]]:
    order = np.lexsort([match.columns, match.rows, -match.mass])
    found = [(int(match.rows[k]), int(match.columns[k])) for k in order]
    return [pair for pair in found if wanted(*pair)]


def shown_pairs(browser: Browser, where: str = ".detail") -> list[tuple[int, int]]:
    samples = "[...each.querySelectorAll('.sample')].map((sample) => Number(sample.dataset.sample))"
    return [(source, target) for source, target in browser.each(f"{where} .pair", samples)]


def shown_images(browser: Browser) -> list[str]:
    return browser.each(".detail .pair img", "each.src")


def images_of(match: Any, matched: list[tuple[int, int]]) -> list[str]:
    ends = [image for i, j in matched for image in (match.source.images[i], match.target.images[j])]
    return [data_uri("image", image) for image in ends]


def chosen(browser: Browser, selector: str) -> list[int]:
    """The numbers of the samples there."""
    return browser.each(selector, "Number(each.dataset.sample)")


def block(browser: Browser, match: Match, source: str, target: str) -> Any:
    assert match.source.labels is not None
    assert match.target.labels is not None
    names = sorted({*match.source.labels, *match.target.labels})
    return browser.one(f"[data-block='{names.index(source) * len(names) + names.index(target)}']")


class TestTables:
    @pytest.fixture(autouse=True)
    def _open(self, browser):
        rows = [
            ("method 10", 60.25, "b"),
            ("method 9", 7.5, "a"),
            ("Alpha", -3.0, "b"),
            ("beta", None, "a"),
            ("alpha", float("inf"), "b"),
            ("gamma", 7.5, "a"),
        ]
        browser.open(Page("Tables", "", [Table("Results", ["method", "accuracy", "group"], rows)]))

    def order(self, browser):
        return browser.texts("tbody td:first-child")

    def test_numbers_by_mouse(self, browser):
        header = browser.all("th button")[1]
        header.click()
        assert self.order(browser) == ["Alpha", "method 9", "gamma", "method 10", "alpha", "beta"]
        assert [th.get_attribute("aria-sort") for th in browser.all("th")] == [None, "ascending", None]
        header.click()
        assert self.order(browser) == ["alpha", "method 10", "method 9", "gamma", "Alpha", "beta"]
        assert browser.all("th")[1].get_attribute("aria-sort") == "descending"

    def test_words_by_keyboard(self, browser):
        browser.press(Keys.TAB, Keys.TAB, Keys.ENTER)
        assert browser.active("textContent") == "method"
        assert self.order(browser) == ["alpha", "Alpha", "beta", "gamma", "method 9", "method 10"]
        browser.press(Keys.SPACE)
        assert self.order(browser) == ["method 10", "method 9", "gamma", "beta", "Alpha", "alpha"]

    def test_equal_rows_stay_as_they_were(self, browser):
        browser.all("th button")[0].click()
        browser.all("th button")[2].click()
        assert self.order(browser) == ["beta", "gamma", "method 9", "alpha", "Alpha", "method 10"]


class TestBlocks:
    @pytest.fixture(autouse=True)
    def _open(self, browser, digits):
        browser.open(digits_page(digits))

    def expected(self, match, source, target):
        labels = match.source.labels, match.target.labels
        return strongest(match, lambda i, j: labels[0][i] == source and labels[1][j] == target)

    def test_pointing_shows_the_pairs_and_leaving_brings_back_what_was_kept(self, browser, digits):
        kept = shown_pairs(browser)
        browser.point(block(browser, digits, "4", "4"))
        pairs_here = self.expected(digits, "4", "4")
        assert shown_pairs(browser) == pairs_here[:8]
        mass = sum(digits.mass[(digits.rows == i) & (digits.columns == j)].sum() for i, j in pairs_here)
        share = round(100 * mass / digits.mass.sum(), 1)
        told = f"Mass {mass:.3g}, {share:g}\xa0% of all that moved, in {len(pairs_here)} pairs."
        assert browser.texts(".finding")[0].startswith(told)
        browser.point(browser.one("h1"))
        assert shown_pairs(browser) == kept

    def test_clicking_keeps_them_with_their_images(self, browser, digits):
        browser.point(block(browser, digits, "1", "1"), click=True)
        browser.point(browser.one("h1"))
        expected = self.expected(digits, "1", "1")
        assert shown_pairs(browser) == expected[:8]
        browser.one(".detail .more").click()
        assert shown_pairs(browser) == expected[:24]
        assert shown_images(browser) == images_of(digits, expected[:24])
        assert browser.becomes("document.querySelector('.detail img').naturalWidth === 24")

    def test_empty_and_missing_blocks_say_so(self, browser, digits):
        browser.point(block(browser, digits, "7", "7"))
        assert "Nothing moves from here to there. 7 is missing in the source" in browser.texts(".finding")[0]
        headers = browser.each(".blocks th", "each.ariaLabel")
        assert "7, no sources" in headers
        assert "3, no targets" in headers
        assert len(browser.all(".blocks .missing")) == 2
        assert browser.texts(".absent") == ["∅ no samples of this class"]

    def test_a_sample_and_its_partners(self, browser, digits):
        browser.point(block(browser, digits, "1", "1"), click=True)
        i, j = self.expected(digits, "1", "1")[0]
        browser.all(".detail .pair .sample")[1].click()
        assert browser.texts(".detail h3") == [f"Target {digits.target.names[j]}"]
        facts = dict(zip(browser.texts(".detail dt"), browser.texts(".detail dd"), strict=True))
        assert facts == {
            "class": "1",
            "predicted class": digits.target.predicted[j],
            "class by the plan": "1",
            "weight": "0.00333",
            "received": "0.00333 (100\xa0%)",
        }
        assert browser.one(".portrait img").get_attribute("src") == data_uri("target", digits.target.images[j])
        assert chosen(browser, ".detail .cards .sample") == [i]
        browser.one(".detail .controls button").click()
        assert shown_pairs(browser)[0] == (i, j)

    def test_by_keyboard(self, browser, digits):
        browser.run("document.querySelector('[role=tab]').focus()")
        browser.press(Keys.TAB)
        assert browser.active("className").startswith("block")
        browser.press(Keys.HOME, *[Keys.ARROW_UP] * 9)
        assert browser.active("dataset.block") == "0"
        browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
        assert browser.active("dataset.block") == "11"
        expected = self.expected(digits, "1", "1")
        assert shown_pairs(browser) == expected[:8]
        assert browser.active("ariaLabel").startswith("1 to 1: ")
        browser.press(Keys.ENTER)
        assert browser.active("textContent") == "1 → 1"
        browser.press(Keys.TAB, Keys.ENTER)
        assert browser.texts(".detail h3") == [f"Source {digits.source.names[expected[0][0]]}"]
        browser.press(Keys.ESCAPE)
        assert browser.active("dataset.block") == "11"


class TestSamples:
    @pytest.fixture(autouse=True)
    def _open(self, browser, digits):
        browser.open(digits_page(digits))
        browser.all("[role=tab]")[1].click()

    def place(self, browser, match, pair):
        """Where a pair lies, from the middle of the sheet."""
        box = browser.one(".sheet").rect
        where = []
        for labels, k, size in zip(
            (match.target.labels, match.source.labels), pair[::-1], (box["width"], box["height"]), strict=True
        ):
            order = sorted(range(len(labels)), key=lambda k, labels=labels: (labels[k], k))
            where.append(((order.index(k) + 0.5) / len(labels) - 0.5) * size)
        return where

    def test_pointing_and_clicking(self, browser, digits):
        sheet = browser.one(".sheet")
        kept = shown_pairs(browser)
        first, *others = strongest(digits, lambda i, j: True)[::60]
        for pair in (*others, first):
            browser.point(sheet, *self.place(browser, digits, pair))
            assert shown_pairs(browser) == [pair]
            cursor, box = browser.one(".cursor").rect, sheet.rect
            middle = [cursor["x"] - box["x"] + 7.5 - box["width"] / 2, cursor["y"] - box["y"] + 7.5 - box["height"] / 2]
            assert middle == pytest.approx(self.place(browser, digits, pair), abs=3)
        browser.point(browser.one("h1"))
        assert shown_pairs(browser) == kept
        browser.point(sheet, *self.place(browser, digits, first), click=True)
        browser.point(browser.one("h1"))
        assert shown_pairs(browser) == [first]
        assert shown_images(browser) == images_of(digits, [first])

    def test_by_keyboard(self, browser, digits):
        labels = digits.source.labels, digits.target.labels
        place = [
            {k: at for at, k in enumerate(sorted(range(300), key=lambda k, own=own: (own[k], k)))} for own in labels
        ]
        spots = sorted(strongest(digits, lambda i, j: True), key=lambda pair: (place[0][pair[0]], place[1][pair[1]]))
        browser.run("document.querySelectorAll('[role=tab]')[1].focus()")
        browser.press(Keys.TAB)
        assert shown_pairs(browser) == spots[:1]
        browser.press(*[Keys.ARROW_RIGHT] * 5, Keys.ARROW_LEFT)
        assert shown_pairs(browser) == spots[4:5]
        browser.press(Keys.END)
        assert shown_pairs(browser) == spots[-1:]
        above = [pair for pair in spots if place[0][pair[0]] < place[0][spots[-1][0]]]
        row = [pair for pair in above if pair[0] == above[-1][0]]
        browser.press(Keys.ARROW_UP)
        assert shown_pairs(browser) == [min(row, key=lambda pair: abs(place[1][pair[1]] - place[1][spots[-1][1]]))]
        assert digits.source.names[row[0][0]] in browser.texts(".announced")[0]
        browser.press(Keys.ARROW_DOWN, Keys.ENTER)
        assert browser.active("tagName") == "H3"

    def test_many_samples_share_a_spot(self, browser):
        source = samples([f"s{k}" for k in range(1000)])
        target = samples([f"t{k}" for k in range(1000)])
        browser.explore(pairs(source, target, (500, 500, 0.5), (501, 501, 1.0), (9, 9, 1.0)))
        browser.all("[role=tab]")[1].click()
        browser.point(browser.one(".sheet"), 1, 1)
        assert shown_pairs(browser) == [(501, 501)]
        assert browser.texts(".finding") == ["2 pairs with mass 1.5 share this spot. The strongest:"]


class TestLists:
    @pytest.fixture(autouse=True)
    def _open(self, browser, digits):
        browser.open(digits_page(digits))

    def listed(self, browser, name):
        return chosen(browser, f"[data-list={name}] .sample")

    def test_most_matched_pairs(self, browser, digits):
        expected = strongest(digits, lambda i, j: True)
        assert shown_pairs(browser, "[data-list=pairs]") == expected[:12]
        more = browser.one("[data-list=pairs] .more")
        while more.is_displayed():
            more.click()
        assert shown_pairs(browser, "[data-list=pairs]") == expected

    def test_left_alone(self, browser, digits):
        for side, index in (("source", digits.rows), ("target", digits.columns)):
            alone = [k for k in range(300) if k not in set(index.tolist())]  # all others are matched by half at least
            browser.run("document.querySelector(`[data-list=${arguments[0]}] .more`).click()", side)
            assert self.listed(browser, side) == alone[:60]
            assert browser.texts(f"[data-list={side}] .line")[1] == "left alone"

    def test_disagreements(self, browser, digits):
        partner = dict(zip(digits.columns.tolist(), digits.rows.tolist(), strict=True))
        plan = {j: digits.source.labels[i] for j, i in partner.items()}
        differ = [j for j in sorted(plan) if plan[j] != digits.target.predicted[j]]
        assert differ
        assert self.listed(browser, "disagreements") == differ[:12]
        truth = digits.target.labels[differ[0]]
        said = digits.target.predicted[differ[0]]
        right = {plan[differ[0]]: "the plan is right", said: "the prediction is right"}.get(truth, "neither is right")
        lines = [f"class {truth}", f"plan: {plan[differ[0]]}", f"prediction: {said}", right]
        assert browser.texts("[data-list=disagreements] .line")[:4] == lines

    def test_clicking_one_opens_it(self, browser, digits):
        browser.one("[data-list=target] .sample").click()
        name = digits.target.names[self.listed(browser, "target")[0]]
        assert browser.texts(".detail h3") == [f"Target {name}"]
        assert "nothing: left alone" in browser.texts(".detail dd")
        browser.press(Keys.ESCAPE)
        assert browser.active("title") == name


def test_everything_is_reached_with_the_tab_key(browser, digits):
    browser.open(digits_page(digits))
    reachable = 'a, button, summary, [tabindex="0"]'
    wanted = sum(browser.each(reachable, "each.tabIndex >= 0 && each.checkVisibility()"))
    browser.run("window.reached = new Set(); addEventListener('focusin', (event) => window.reached.add(event.target))")
    for _ in range(wanted // 25 + 2):
        browser.press(*[Keys.TAB] * 25)
    missed = "each.tabIndex >= 0 && each.checkVisibility() && !window.reached.has(each) && each.outerHTML.slice(0, 80)"
    assert not any(told := browser.each(reachable, missed)), told


def test_tabs_by_keyboard(browser, digits):
    browser.open(digits_page(digits))
    browser.run("document.querySelector('[role=tab]').focus()")
    browser.press(Keys.ARROW_RIGHT)
    assert [tab.get_attribute("aria-selected") for tab in browser.all("[role=tab]")] == ["false", "true"]
    assert [panel.is_displayed() for panel in browser.all("[role=tabpanel]")] == [False, True]


@pytest.mark.parametrize("width", [390, 320])
def test_no_sideways_scrolling_on_a_phone(browser, digits, width):
    fits = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    browser.open(digits_page(digits), width)
    assert browser.run("return document.documentElement.clientWidth") == width
    assert browser.run(fits)
    browser.all(".block")[11].click()
    assert browser.run(fits)
    browser.one(".close").click()
    browser.all("[role=tab]")[1].click()
    assert browser.run(fits)
    for text in ("long" * 500, "https://example.org/" + "a/" * 300):
        browser.open(page_of(lambda which, text=text: f"{text}{which[-1]}"), width)
        browser.run("document.querySelector('.sample').click()")
        assert browser.run(fits)


def test_the_phone_panel_stays_in_sight_and_closes(browser, digits):
    browser.open(digits_page(digits), 390)
    assert browser.texts(".detail h3") == []
    browser.point(block(browser, digits, "1", "1"), click=True)
    top, bottom = browser.run(
        "const {top, bottom} = document.querySelector('.detail').getBoundingClientRect(); return [top, bottom]"
    )
    assert 0 <= top < bottom <= 900
    browser.one(".close").click()
    assert browser.texts(".detail h3") == []


CONTRAST = """
const parse = (text) => {
  const numbers = text.match(/[\\d.e-]+/g).map(Number);
  const scale = text.startsWith("color(") ? 1 : 255;
  return { rgb: numbers.slice(0, 3).map((v) => v / scale), alpha: numbers.length > 3 ? numbers[3] : 1 };
};
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.alpha > 0.99) return colour.rgb;
  }
  return [1, 1, 1];
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const weak = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || !node.checkVisibility() || node.closest("script, noscript, .unseen")) continue;
  const pair = [light(parse(getComputedStyle(node).color).rgb), light(ground(node))].sort((a, b) => b - a);
  const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (contrast < 4.5) weak.push([node.className, node.textContent.slice(0, 30), contrast]);
}
return weak;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(browser, scheme):
    """Also in blocks of every shade."""
    side = samples([f"{k}" for k in range(10)], labels=[str(k) for k in range(10)])
    shades = pairs(side, side, *((i, j, 1e-3 + i + 10 * j) for i in range(10) for j in range(10)))
    browser.open(digits_page(shades), scheme=scheme)
    assert len(browser.all(".block.strong")) > 10
    assert browser.run(CONTRAST) == []
    dark = browser.run(
        "return document.querySelector('figure img').currentSrc === document.querySelector('source').srcset"
    )
    assert dark == (scheme == "dark")
    (page_colour,) = browser.run("return [getComputedStyle(document.body).backgroundColor]")
    assert (page_colour == "rgb(18, 20, 24)") == (scheme == "dark")


def test_on_paper(browser, digits):
    """Everything is unfolded, both maps are there, nothing asks to be clicked; a dark screen does not matter."""
    browser.open(digits_page(digits), 800, scheme="dark")
    browser.emulate("dark", "print")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert all(panel.is_displayed() for panel in browser.all("[role=tabpanel]"))
    assert all(browser.each("details", "each.open"))
    assert not any(each.is_displayed() for each in browser.all(".controls, nav, .detail"))
    assert all(each.is_displayed() for each in browser.all("[data-list] .cards"))
    assert browser.run(CONTRAST) == []
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert not any(browser.each("details", "each.open"))


def test_links_unfold_what_they_lead_to(browser, digits):
    browser.open(digits_page(digits))
    browser.all("nav a")[-1].click()
    assert browser.becomes("document.querySelector('details').open")


EMPTY = samples([])
ONE = samples(["one"])
VALUES = samples(["a", "b"], values=np.array([[1.5, np.nan], [1e-9, 2e6]]), columns=["width", "height"])


@pytest.mark.parametrize(
    ("match", "blocks", "lists"),
    [
        (pairs(EMPTY, EMPTY), 0, []),
        (pairs(ONE, EMPTY), 0, ["source"]),
        (pairs(ONE, ONE), 0, ["source", "target"]),
        (pairs(ONE, ONE, (0, 0, 1.0)), 1, ["pairs", "source", "target"]),
        (pairs(VALUES, VALUES, (0, 1, 1e-7)), 4, ["pairs", "source", "target"]),
        (pairs(VALUES, samples(["c"], predicted=["cat"]), (1, 0, 0.5)), 2, ["pairs", "source", "target"]),
    ],
)
def test_odd_matches(browser, match, blocks, lists):
    browser.explore(match)
    assert len(browser.all(".block")) == blocks
    assert browser.each("[data-list]", "each.dataset.list") == lists
    for sample in browser.all("[data-list] .sample"):
        browser.run("arguments[0].click()", sample)
        assert browser.texts(".detail h3")


def test_rows_of_values(browser):
    browser.explore(pairs(VALUES, VALUES, (0, 1, 1.0)))
    cells = ["width", "1.5", "height", "nan", "width", "1.00e-9", "height", "2000000"]
    assert browser.texts("[data-list=pairs] .row > span") == cells
    browser.one("[data-list=pairs] .sample").click()
    assert browser.texts(".detail dt")[-2:] == ["width", "height"]
    assert browser.texts(".detail dd")[-2:] == ["1.5", "nan"]
    wide = samples(["a"], values=np.ones((1, 8)), columns=[*"stuvwxyz"])
    browser.explore(pairs(wide, VALUES, (0, 0, 1.0)))
    assert browser.texts("[data-list=pairs] .some") == ["4 of 8 values"]  # the target has two
    browser.one("[data-list=pairs] .sample").click()
    assert browser.texts(".detail dt")[-8:] == [*"stuvwxyz"]


def test_images_without_room_are_told(browser, monkeypatch):
    monkeypatch.setattr("adaptive_ot.workbench.report.pictures.MOST_BYTES", 0)
    side = samples(["a"], images=[png(np.zeros((8, 8)))])
    browser.explore(pairs(side, side, (0, 0, 1.0)))
    browser.one(".sample").click()
    assert "The page has no room for this image." in browser.texts(".detail .hint")


def test_two_explorers_on_a_page(browser):
    first = pairs(samples(["a"]), samples(["b"]), (0, 0, 1.0))
    second = pairs(samples(["c"]), samples(["d"]), (0, 0, 1.0))
    browser.explore(first, second)
    browser.one("#part-2 .sample").click()
    assert browser.texts("#part-2 .detail h3") == ["Source c"]
    browser.all("#part-2 [role=tab]")[1].click()
    assert [panel.is_displayed() for panel in browser.all("[role=tabpanel]")] == [True, False, False, True]


SHAPE = """
const carriesText = (name) => ["alt", "title", "aria-label", "style"].includes(name);
const told = (attribute) => attribute.name + (carriesText(attribute.name) ? "" : `=${attribute.value}`);
return [...document.querySelectorAll("*")]
  .filter((each) => each.tagName !== "META")
  .map((each) => [each.tagName, ...[...each.attributes].map(told)].join(" "));
"""


def test_hostile_strings(browser):
    """After the script has made all it makes, and a sample was opened."""

    def shape(text: str) -> list[str]:
        browser.open(page_of(lambda which: f"{text}{which[-1]}"))
        browser.run("document.querySelector('[data-list=pairs] .sample').click()")
        assert browser.run("return typeof window.hacked") == "undefined"
        return browser.run(SHAPE)

    harmless = shape("harmless")
    for text in HOSTILE[::12] + [text for text in HOSTILE if "hacked" in text][::4]:
        assert shape(text) == harmless, text


def test_all_hostile_strings_at_once(browser):
    """As names and as classes, in every list and in the panel; only the order of the classes may differ."""

    def shape(names: list[str]) -> list[str]:
        side = samples(names, labels=[f"{name}{k}" for k, name in enumerate(names)], predicted=names)
        match = pairs(side, side, *((k, k, 1 - 1e-3 * k) for k in range(len(names))))
        browser.explore(match)
        browser.run("for (let k = 0; k < 9; k++) document.querySelectorAll('.more').forEach((more) => more.click())")
        browser.run("document.querySelectorAll('[data-list=pairs] .source').forEach((sample) => sample.click())")
        assert browser.run("return typeof window.hacked") == "undefined"
        return sorted(browser.run(SHAPE))

    assert shape(HOSTILE) == shape([f"harmless {k}" for k in range(len(HOSTILE))])
    assert browser.driver.window_handles == [browser.driver.current_window_handle]


def test_ten_thousand_samples_a_side(browser):
    rng = np.random.default_rng(0)
    names = [f"images/{k:05d}.jpg" for k in range(10_000)]
    source, target = (samples(names, labels=[f"class {k}" for k in rng.integers(0, 31, 10_000)]) for _ in range(2))
    rows, columns = np.divmod(rng.choice(10_000**2, 20_000, replace=False), 10_000)
    match = Match(source=source, target=target, rows=rows, columns=columns, mass=rng.random(20_000))
    browser.explore(match)
    assert len(browser.all(".block")) == 31 * 31
    assert shown_pairs(browser, "[data-list=pairs]") == strongest(match, lambda i, j: True)[:12]


def middles(browser: Browser, selector: str, words: list[str]) -> list[float]:
    """Where words stand in the text of an element, from left to right."""
    return browser.run(
        """
        const texts = document.createTreeWalker(document.querySelector(arguments[0]), NodeFilter.SHOW_TEXT);
        const places = {};
        for (let node = texts.nextNode(); node; node = texts.nextNode()) for (const word of arguments[1]) {
          const at = node.data.indexOf(word);
          if (at < 0) continue;
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + word.length);
          places[word] = range.getBoundingClientRect().left;
        }
        return arguments[1].map((word) => places[word]);
        """,
        selector,
        words,
    )


@pytest.mark.parametrize("name", ["\u202ecat", "\u2069\u202ecat", "\u2067cat", "\u202bcat"])
def test_names_do_not_turn_our_words(browser, name):
    source, target = samples(["s"], labels=[name]), samples(["t"], labels=["fox"])
    browser.explore(pairs(source, target, (0, 0, 1.0)))
    for selector, words in ((".summary", ["target:", "fox"]), (".detail h3", ["→", "fox"])):
        places = middles(browser, selector, words)
        assert places == sorted(places)
    told = browser.one(".block[aria-selected=true]").get_attribute("aria-label")
    assert told == "\u2068cat\u2069 to fox: 100\xa0% of the mass, in 1 pair"


def test_long_names_of_classes_keep_their_marks(browser):
    name = "a very long name of a class " * 4
    source, target = samples(["s"], labels=[name]), samples(["t"], labels=["fox"])
    browser.explore(pairs(source, target, (0, 0, 1.0)))
    for mark in browser.all(".blocks .missing"):
        box, head = mark.rect, mark.find_element(By.XPATH, "./ancestor::th").rect
        assert box["x"] >= head["x"]
        assert box["x"] + box["width"] <= head["x"] + head["width"] + 1
        assert box["y"] + box["height"] <= head["y"] + head["height"] + 1
        assert box["width"] > 4
    assert len(browser.all(".blocks .missing")) == 2
    titles = browser.each(".blocks th[scope]", "each.title")
    assert [title.startswith(name) for title in titles] == [True, False, True, False]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_traces_are_not_seen(browser, scheme):
    """An entropic plan: mass everywhere, but only some of it worth a look."""
    side = samples([f"{k}" for k in range(20)], labels=[str(k // 10) for k in range(20)])
    everywhere = ((i, j, 1.0 if i == j else 1e-9) for i in range(10) for j in range(20))
    browser.explore(pairs(side, side, *everywhere), scheme=scheme)
    assert browser.each(".block", "each.style.cssText") == ["--share: 100%;", *["--share: 0%;"] * 3]
    browser.point(browser.all(".block")[1])
    assert browser.texts(".finding")[0].startswith("Only traces of mass move from here to there, 1.00e-7 together.")
    browser.all("[role=tab]")[1].click()
    browser.run("document.querySelector('.sheet').focus()")
    browser.press(Keys.TAB, Keys.SHIFT + Keys.TAB, Keys.END)
    seen = browser.run(
        "const canvas = document.querySelector('canvas');"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, 800, 800);"
        "const at = (i, j) => data[4 * ((i * 40 + 20) * 800 + j * 40 + 20) + 3];"
        "return [at(0, 0), at(9, 9), at(3, 4), at(0, 19), at(15, 15)]"
    )
    assert seen == [255, 255, 0, 0, 0]
