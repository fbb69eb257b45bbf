"""The page for everyone: names, contrast, focus, small screens, motion; and nothing inline or foreign."""

from __future__ import annotations

import re
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import pytest

import bibs
from browsing import settle

pytestmark = pytest.mark.slow

STATIC = Path(bibs.__file__).parent / "serving" / "static"
NAMED = {"button", "textbox", "radio", "checkbox", "slider", "combobox", "image", "link", "dialog", "table", "group"}
EVERYTHING_OPEN = "#passes=open&picture=none&methods=forward,bibs&num_return_sequences=2&bad_words=window"

CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest(".unseen, :disabled, svg")) continue;
    const [a, b] = [light(numbers(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push([walker.currentNode.data.trim(), ratio.toFixed(2)]);
  }
  return bad;
}"""

FOCUSED = """() => {
  const node = document.activeElement;
  const hidden = node.matches("input[type=radio], input[type=checkbox], input[type=file]"); // its label shows it
  const place = [...document.querySelectorAll("*")].indexOf(node);
  const name = node.id || node.className || node.name || node.tagName;
  return { place, name, ring: getComputedStyle(hidden ? node.nextElementSibling : node).outlineStyle };
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(open_page, scheme):
    page = open_page(EVERYTHING_OPEN, color_scheme=scheme)
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) > 3 * 128) == (scheme == "light")
    assert page.evaluate(CONTRAST) == []
    page.locator("tbody[data-method=bibs] button.word").first.click()
    assert page.evaluate(CONTRAST) == []


def test_everything_one_can_use_has_a_name(open_page):
    page = open_page(EVERYTHING_OPEN)
    page.locator("tbody[data-method=bibs] button.word").first.click()
    for _ in range(2):  # with the dialog open, and without
        tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
        roles = [(node.get("role", {}).get("value"), node.get("name", {}).get("value", "")) for node in tree]
        nameless = [role for role, name in roles if role in NAMED - {"group", "table"} and not name.strip()]
        assert nameless == []
        page.keyboard.press("Escape")


def test_the_tab_key_visits_everything_in_reading_order_and_shows_where_it_is(open_page):
    page = open_page(EVERYTHING_OPEN)
    visited = []
    for _ in range(200):
        page.keyboard.press("Tab")
        here = page.evaluate(FOCUSED)
        if here["name"] == "BODY":  # past the last one
            break
        assert here["ring"] != "none", here
        visited.append((here["place"], here["name"]))
    places = [place for place, _ in visited]
    assert places == sorted(places)
    names = [name for _, name in visited]
    for name in ("own-picture", "token", "template", "any-length", "word", "play", "moment", "copy"):
        assert any(name in visited_name for visited_name in names), name


def test_the_page_is_worked_by_the_keyboard_alone(open_page):
    page = open_page("#picture=none&methods=bibs")
    page.locator("#sentence button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    settle(page)
    assert page.input_value("#template").startswith("A _ sitting")
    assert page.evaluate("document.activeElement.className") == "token blank"
    word = page.locator("tbody[data-method=bibs] button.word").first
    word.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('dialog')?.id") == "alternatives"
    page.keyboard.press("Escape")
    assert word.evaluate("(node) => node === document.activeElement")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the first alternative
    settle(page)
    assert page.evaluate("document.activeElement.dataset.method") == "bibs"


def test_what_was_found_is_said_aloud(open_page):
    page = open_page("#picture=none&methods=bibs")
    assert page.locator("#said").get_attribute("aria-live") == "polite"
    shown = " ".join(page.locator("tbody[data-method=bibs] .text").all_inner_texts())
    assert page.inner_text("#said") == f"Found: {shown}"


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_wider_than_a_narrow_screen(open_page, width):
    page = open_page(EVERYTHING_OPEN, viewport={"width": width, "height": 844}, has_touch=True)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    page.locator("tbody[data-method=bibs] button.word").first.click()
    box = page.locator("#alternatives").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_a_sentence_too_long_for_a_table_is_set_as_a_paragraph(open_page):
    words = "a man riding a wave on top of a surfboard in the ocean while " * 2
    page = open_page(f"#picture=none&template={words}_ _", viewport={"width": 1000, "height": 800})
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 1000


def test_nothing_moves_when_the_live_answer_comes(open_page):
    page = open_page(viewport={"width": 1280, "height": 860})
    moved = page.evaluate(
        """() => new Promise((resolve) => {
          let sum = 0;
          const watch = new PerformanceObserver((list) => list.getEntries().forEach((entry) => (sum += entry.value)));
          watch.observe({ type: "layout-shift", buffered: true });
          setTimeout(() => resolve(sum), 100);
        })"""
    )
    assert moved < 0.01


def test_who_wants_no_motion_gets_none(open_page):
    page = open_page(EVERYTHING_OPEN, reduced_motion="reduce")
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((node) => {
          const style = getComputedStyle(node);
          return style.transitionDuration !== "0s" || style.animationName !== "none";
        }).length"""
    )
    assert moving == 0


class Inline(HTMLParser):
    """Collects what a content policy without 'unsafe-inline' would block, and what is loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if (tag == "script" and "src" not in given) or tag == "style":
            self.found.append(tag)
        self.found += [name for name in given if name == "style" or name.startswith("on")]
        self.found += [value for name, value in attributes if name in ("src", "href") and "//" in (value or "")]


def test_nothing_is_inline_or_foreign(service):
    parser = Inline()
    with urllib.request.urlopen(service) as response:
        policy = response.headers["content-security-policy"]
        parser.feed(response.read().decode())
    assert parser.found == []
    assert "unsafe" not in policy
    assert "default-src 'self'" in policy or "default-src 'none'" in policy
    for path in STATIC.glob("*.*"):
        foreign = re.findall(r"https?://[^\s\"')]+", path.read_text(encoding="utf-8"))
        assert all(found.startswith("http://www.w3.org/") for found in foreign), path.name
