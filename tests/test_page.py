"""What one can do on the page, in a real browser before the real service with the bundled model.

Where an answer is expected, the service is asked for it beside the page.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import shlex
import urllib.parse
import urllib.request
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest

import bibs
from bibs.text import Template
from browsing import settle

pytestmark = pytest.mark.slow

STATIC = Path(bibs.__file__).parent / "serving" / "static"
INDEX = STATIC / "index.html"
METHODS = ("forward", "backward", "bibs")
MINUS = "\N{MINUS SIGN}"
FIRST = "A cat sitting _ _ _ _ _ into the camera."


def ask(service, **request):
    """One template to the service, as the page asks."""
    body = json.dumps({"alternatives": 7, **request}).encode()
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{service}/v1/fill", body, headers)) as response:
        return json.load(response)["results"][0]["completions"]


def link(*, methods="bibs", **fields):
    return "#" + urllib.parse.urlencode({"methods": methods, **fields})


def sentences(page, method="bibs"):
    """The answers of one method as they stand on the page."""
    rows = page.locator(f"tbody[data-method={method}] tr")
    return [" ".join(rows.nth(k).locator(".text").all_inner_texts()) for k in range(rows.count())]


@contextmanager
def searched_again(page):
    """A block after which the page shows the answers to something else."""

    before = page.url
    yield
    page.wait_for_url(lambda url: url != before)  # it holds all that was chosen
    settle(page)


def type_template(page, text):
    with searched_again(page):
        page.fill("#template", text)


def stored(kind, text):
    return re.search(rf"<!-- stored {kind} -->(.*?)<!-- end -->", text, flags=re.DOTALL)


@pytest.mark.parametrize("kind", ["sentence", "answers"])
def test_what_the_page_holds_at_first_paint_is_what_the_service_answers(open_page, kind):
    """BIBS_WRITE_PAGE=1 stores the live answer instead: for a new model, or another first sentence."""
    page = open_page()
    live = page.evaluate(
        """(kind) => kind === "sentence" ? document.getElementById("sentence").innerHTML
           : [...document.querySelectorAll("#answers tbody")].map((body) => body.outerHTML).join("\\n")""",
        kind,
    )
    text = INDEX.read_text(encoding="utf-8")
    found = stored(kind, text)
    if "BIBS_WRITE_PAGE" in os.environ:
        INDEX.write_text(text[: found.start(1)] + live.strip() + text[found.end(1) :], encoding="utf-8")
    else:
        assert found[1].strip() == live.strip(), "run BIBS_WRITE_PAGE=1 pytest tests/test_page.py -k first_paint"


def test_without_a_script_the_page_shows_a_filled_sentence(open_page):
    page = open_page(live=False, java_script_enabled=False)
    assert page.locator("tbody[data-method=bibs] .fill .text").count() == 5
    assert page.locator("#picture").is_visible()


def test_three_searches_fill_the_same_blank_and_only_the_one_way_searches_clash(open_page, service):
    page = open_page(link(methods=",".join(METHODS), picture="none", template=FIRST))
    for method in METHODS:
        (found,) = ask(service, template=FIRST, method=method)
        assert sentences(page, method) == [found["text"]]
        words = found["words"]
        joins = {
            (before["text"], after["text"]): -before["backward"] - after["forward"]
            for before, after in itertools.pairwise(words)
            if before["blank"] == 0 or after["blank"] == 0
        }
        worst = max(joins, key=joins.get)
        note = page.locator(f"tbody[data-method={method}] .note").inner_text()
        assert note == ("clash: {} | {}".format(*worst) if joins[worst] >= 12 else "no clash")
        assert (method == "bibs") == (joins[worst] < 12)


def test_the_bars_below_a_word_are_as_deep_as_its_surprises(open_page, service):
    page = open_page(link(methods="forward", picture="none", template=FIRST))
    (found,) = ask(service, template=FIRST, method="forward")
    words = page.locator("tbody[data-method=forward] .word")
    for k, word in enumerate(found["words"]):
        bars = words.nth(k).locator("rect")
        depths = [float(bars.nth(side).get_attribute("height")) for side in (0, 1)]
        assert depths == pytest.approx([min(12, -word["forward"]), min(12, -word["backward"])], abs=0.06)


def test_a_click_on_a_word_makes_it_a_blank_and_a_click_on_the_blank_gives_it_back(open_page):
    page = open_page(link(picture="none"))
    with searched_again(page):
        page.click("#sentence button:text-is('camera.')")
    assert page.input_value("#template") == "A cat sitting _ _ _ _ _ into the _."
    assert page.locator("td.fill .text").last.inner_text().endswith(".")
    with searched_again(page):
        page.locator("#sentence .blank").last.click()
    assert page.input_value("#template") == FIRST


def test_a_blank_that_was_typed_gets_the_word_that_was_found(open_page, service):
    page = open_page(link(picture="none", template="a man _ _ a wave"))
    (found,) = ask(service, template="a man _ _ a wave")
    with searched_again(page):
        page.locator("#sentence .blank").nth(1).click()
    assert page.input_value("#template") == f"a man _ {found['words'][3]['text']} a wave"


def test_blanks_of_unknown_length_are_typed_and_clicked(open_page, service):
    page = open_page(link(picture="none"))
    type_template(page, "two people ___ the beach")
    (found,) = ask(service, template="two people ___ the beach")
    assert sentences(page) == [found["text"]]
    page.locator("#template").blur()
    with searched_again(page):
        page.click("#any-length")
    length = len(found["spans"][0].split())
    assert page.input_value("#template") == f"two people {' '.join('_' * length)} the beach"
    with searched_again(page):
        page.click("#any-length")
    assert page.input_value("#template") == "two people ___ the beach"


def test_the_page_reads_a_template_as_the_template_language_does(open_page):
    page = open_page(live=False)
    blanks = ["a _ _ b", "_", "_ ___ _", "(_ _), _ x ___{2,6}.", "_, _ _", "___{0, 4} x"]
    for template in [*blanks, r"a \_ _ b", "snow-covered _ slope", "no blank"]:
        numbers, text = page.evaluate(
            """async (text) => {
              const { parse, format, numberBlanks } = await import("/static/sentence.js");
              return [numberBlanks(parse(text)), format(parse(text))];
            }""",
            template,
        )
        assert len({number for number in numbers if number is not None}) == len(Template.parse(template).blanks)
        assert text == template


def test_one_may_send_a_picture_of_ones_own(open_page, service):
    page = open_page(link(template="a photo of a _ _ _ _"))
    before = sentences(page)
    with searched_again(page), page.expect_request("**/v1/fill") as request:
        page.set_input_files("#own-picture", STATIC / "photos" / "coffee.jpg")
    sent = json.loads(request.value.post_data)
    (found,) = ask(service, template="a photo of a _ _ _ _", image=sent["image"][0])
    assert sentences(page) == [found["text"]] != before
    assert page.locator("#picture").get_attribute("src").startswith("blob:")
    width = page.locator("#picture").evaluate("async (image) => { await image.decode(); return image.naturalWidth; }")
    assert width == 432
    again = open_page(page.url[page.url.index("#") :])
    assert sentences(again) == [found["text"]]


def test_a_picture_may_be_dropped(open_page):
    page = open_page()
    with searched_again(page):
        page.evaluate(
            """async () => {
              const blob = await (await fetch("static/photos/rocket.jpg")).blob();
              const data = new DataTransfer();
              data.items.add(new File([blob], "mine.jpg", { type: "image/jpeg" }));
              const drop = new DragEvent("drop", { dataTransfer: data, bubbles: true });
              document.getElementById("stage").dispatchEvent(drop);
            }"""
        )
    assert page.locator("#picture").get_attribute("src").startswith("blob:")


def test_a_filled_word_shows_what_else_would_fit_and_one_of_them_can_be_fixed(open_page, service):
    page = open_page(link(picture="none", template=FIRST))
    (found,) = ask(service, template=FIRST)
    word = found["words"][3]
    page.locator("tbody[data-method=bibs] button.word").first.click()
    offered = page.locator("#alternatives .choice .text").all_inner_texts()
    expected = sorted([word, *word["alternatives"]], key=lambda other: -other["probability"])
    assert offered == [other["text"] for other in expected]
    share = next(other for other in expected if other["text"] != word["text"])
    choice = page.locator(f"#alternatives .choice:has(.text:text-is('{share['text']}'))")
    assert float(choice.locator("meter").get_attribute("value")) == pytest.approx(share["probability"])
    with searched_again(page):
        choice.click()
    fixed = FIRST.replace("_", share["text"], 1)
    assert page.input_value("#template") == fixed
    assert sentences(page) == [ask(service, template=fixed)[0]["text"]]


def test_a_word_fixed_in_a_blank_of_unknown_length_keeps_its_length(open_page, service):
    template = "two people ___ the beach"
    page = open_page(link(picture="none", template=template))
    words = [word for word in ask(service, template=template)[0]["words"] if word["blank"] == 0]
    page.locator("tbody[data-method=bibs] button.word").last.click()
    with searched_again(page):
        page.locator("#alternatives .choice.now").click()
    slots = ["_"] * (len(words) - 1) + [words[-1]["text"]]
    assert page.input_value("#template") == f"two people {' '.join(slots)} the beach"


def test_a_word_can_be_forbidden_and_the_rule_taken_back(open_page, service):
    page = open_page(link(picture="none", template=FIRST))
    before = sentences(page)
    word = ask(service, template=FIRST)[0]["words"][3]["text"]
    page.locator("tbody[data-method=bibs] button.word").first.click()
    with searched_again(page):
        page.click("#alternatives-ban button")
    assert sentences(page) == [ask(service, template=FIRST, bad_words=[word])[0]["text"]] != before
    with searched_again(page):
        page.click("#rules button")
    assert sentences(page) == before


def test_undo_and_start_over_go_back(open_page):
    page = open_page()
    with searched_again(page):
        page.check("[name=picture][value=rocket]", force=True)
    with searched_again(page):
        page.click("#sentence button:text-is('cat')")
    with searched_again(page):
        page.click("#undo")
    assert page.input_value("#template") == FIRST
    assert page.locator("#picture").get_attribute("src").endswith("rocket.jpg")
    with searched_again(page):
        page.click("#start-over")
    assert page.locator("#picture").get_attribute("src").endswith("cat.jpg")
    assert "#" not in page.url


def test_a_blank_still_knows_its_word_when_something_was_undone(open_page):
    page = open_page(link(picture="none", template="a zebra sitting _ on the moon"))
    for word in ("zebra", "moon"):
        with searched_again(page):
            page.click(f"#sentence button:text-is('{word}')")
    with searched_again(page):
        page.click("#undo")
    with searched_again(page):
        page.locator("#sentence .blank").first.click()
    assert page.input_value("#template") == "a zebra sitting _ on the moon"


def test_one_steps_and_plays_through_the_passes(open_page, service):
    page = open_page(link(picture="none", template=FIRST, start="backward"))
    with searched_again(page):
        page.click("summary")
    (found,) = ask(service, template=FIRST, start="backward", trace=True)
    trace = found["trace"]
    number = 1  # the second pass reads left to right and hears the first
    page.click("#pass-forth")
    page.click("#forth")
    assert page.inner_text("#moment-said") == f"Pass 2 of {len(trace)}, left to right, slot 2 of 5"
    kept = sorted(trace[number]["frontiers"][2], key=lambda partial: -partial["score"])
    assert page.locator("#kept tbody td:first-child").all_inner_texts() == [" ".join(part["words"]) for part in kept]
    heard = sorted(trace[0]["frontiers"][3], key=lambda partial: -partial["score"])
    expected = [" ".join(part["words"][::-1]) for part in heard]
    assert page.locator("#heard tbody td:first-child").all_inner_texts() == expected
    messages = [
        max((far["score"] for far in trace[0]["frontiers"][4] if far["words"][-1] == part["words"][-1]), default=None)
        for part in kept
    ]
    shown = ["·" if score is None else f"{score:.1f}".replace("-", MINUS) for score in messages]
    assert page.locator("#kept tbody td:last-child").all_inner_texts() == shown
    parents = {part["words"][0] for part in kept}
    losers = [part["words"][0] for part in trace[number]["frontiers"][1] if part["words"][0] not in parents]
    assert sorted(page.locator("#lattice .node.dead text").all_text_contents()) == sorted(losers)
    assert page.locator("#curve circle").count() == len(trace)
    page.click("#play")
    page.wait_for_selector("#moment-said:has-text('slot 4 of 5')")
    page.click("#play")
    assert page.inner_text("#play") == "Play"
    page.locator("#curve circle").last.click()
    assert page.inner_text("#moment-said").startswith(f"Pass {len(trace)} of")


def test_from_both_ends_a_pass_hears_the_last_two_of_the_far_side(open_page, service):
    page = open_page(link(picture="none", template=FIRST, passes="open"))
    trace = ask(service, template=FIRST, trace=True)[0]["trace"]
    for _ in range(4):
        page.click("#pass-forth")  # the fifth pass: the third from the left
    heard = {tuple(part["words"]): part["score"] for k in (1, 3) for part in trace[k]["frontiers"][4]}
    best = sorted(heard, key=lambda words: -heard[words])[:5]
    expected = [" ".join(words[::-1]) for words in best]
    assert page.locator("#heard tbody td:first-child").all_inner_texts() == expected


def test_several_answers_stand_below_each_other(open_page, service):
    page = open_page(link(picture="none", template=FIRST))
    with searched_again(page):
        page.fill("#num_return_sequences", "3")
    with searched_again(page):
        page.fill("#diversity_penalty", "2")
    found = ask(service, template=FIRST, num_return_sequences=3, diversity_penalty=2.0)
    assert sentences(page) == [completion["text"] for completion in found]


def test_all_methods_of_the_service_can_be_shown(open_page, service, complaints):
    page = open_page(link(picture="none", template="a man _ a wave"))
    with urllib.request.urlopen(f"{service}/v1/methods") as response:
        names = [method["name"] for method in json.load(response)["methods"]]
    boxes = page.locator("[name=method]")
    assert sorted(boxes.nth(k).get_attribute("value") for k in range(boxes.count())) == sorted(names)
    for name in names:
        if not (box := page.locator(f"[name=method][value={name}]")).is_checked():
            box.dispatch_event("click")  # wherever it stands: rows that arrive move it
    settle(page)
    for name in names:
        (found,) = sentences(page, name)
        assert re.fullmatch(r"a man \w+ a wave", found)


def test_a_link_restores_everything(open_page):
    page = open_page()
    page.check("[name=picture][value=coffee]", force=True)
    page.uncheck("[name=method][value=forward]", force=True)
    page.fill("[name=must_include]", "red")
    page.fill("#num_beams", "7")
    with searched_again(page):
        page.select_option("[name=start]", "backward")
    type_template(page, "a _ _ _ on a table")
    page.check("[name=kind][value=link]", force=True)
    address = page.input_value("#share-code")
    again = open_page(address[address.index("#") :])
    for selector in ("#template", "[name=must_include]", "#num_beams", "[name=start]"):
        assert again.input_value(selector) == page.input_value(selector)
    assert again.inner_text("#answers") == page.inner_text("#answers")
    assert "red" in again.inner_text("#answers")
    assert again.locator("tbody[data-method=forward]").count() == 0


def test_a_damaged_link_gives_what_can_be_read_of_it(open_page):
    page = open_page(link(picture="%%%", num_beams="many", template="a man _ a wave", start="", methods=""))
    assert page.input_value("#template") == "a man _ a wave"
    assert page.input_value("#num_beams") == "5"
    assert page.locator("#picture").get_attribute("src").endswith("cat.jpg")
    assert len(sentences(page)) == 1


def test_the_python_to_copy_does_what_the_page_did(open_page, monkeypatch):
    page = open_page(link(num_return_sequences=2, bad_words="window"))
    monkeypatch.chdir(STATIC / "photos")
    with redirect_stdout(io.StringIO()) as printed:
        exec(page.input_value("#share-code"), {})
    for line, shown in zip(printed.getvalue().splitlines(), sentences(page), strict=True):
        assert line.startswith(shown)


def test_the_curl_to_copy_asks_what_the_page_asked(open_page, service):
    page = open_page(link(picture="none", template="a man's _ _", bad_words="head", num_beams=3))
    page.check("[name=kind][value=curl]", force=True)
    words = shlex.split(page.input_value("#share-code"))
    assert words[:3] == ["curl", "-s", f"{service}/v1/fill"]
    request = json.loads(words[words.index("-d") + 1])
    assert sentences(page) == [ask(service, **request)[0]["text"]]


def test_a_bad_template_is_named_in_words_and_the_answers_stay(open_page):
    page = open_page(link(picture="none"))
    before = sentences(page)
    type_template(page, "a __ b")
    assert "`__` is no blank" in page.inner_text("[role=alert]")
    assert sentences(page) == before
    type_template(page, "a _ b")
    assert page.inner_text("[role=alert]") == ""


def test_what_one_method_cannot_do_is_said_in_its_row(open_page, complaints):
    page = open_page(link(methods="bibs,gsn", must_include="dog"))
    assert "must_include" in page.inner_text("tbody[data-method=gsn] .message")
    assert len(sentences(page)) == 1
    complaints.clear()  # the browser itself writes a refused request down


def test_a_file_that_is_no_picture_is_named_in_words(open_page, tmp_path):
    page = open_page(link(picture="none"))
    (tmp_path / "notes.jpg").write_text("no picture")
    page.set_input_files("#own-picture", tmp_path / "notes.jpg")
    page.wait_for_selector("#error:not(:empty)")
    assert "no picture" in page.inner_text("#error")


def test_the_page_waits_while_the_service_is_away(open_page, complaints):
    page = open_page()
    page.context.set_offline(True)
    page.click("#sentence button:text-is('cat')")
    page.check("[name=picture][value=rocket]", force=True)
    page.wait_for_selector("#status[data-kind=away]")
    assert "away" in page.inner_text("#status")
    page.context.set_offline(False)
    settle(page)
    assert page.locator("tbody[data-method=bibs] .fill .text").count() == 6
    assert page.locator("#picture").evaluate("async (image) => (await image.decode(), image.naturalWidth)") == 432
    complaints.clear()  # the browser itself writes down that nobody answered


def test_the_page_waits_for_its_turn_where_the_service_is_busy(open_page, complaints):
    page = open_page(link(picture="none"))
    busy = {"status": 503, "headers": {"retry-after": "1"}, "json": {"error": "too many requests wait"}}
    page.route("**/v1/fill", lambda route: route.fulfill(**busy), times=1)
    page.click("#sentence button:text-is('cat')")
    page.wait_for_selector("#status[data-kind=busy]")
    settle(page)
    assert page.locator("tbody[data-method=bibs] .fill .text").count() == 6
    complaints.clear()


def test_a_service_with_a_key_is_asked_with_it(open_page, complaints):
    page = open_page(link(picture="none"))

    def guard(route):
        allowed = route.request.headers.get("authorization") == "Bearer open sesame"
        route.fallback() if allowed else route.fulfill(status=401, json={"error": "the request must have the API key"})

    page.route("**/v1/*", guard)
    page.reload()
    page.fill("#key", "open sesame")
    page.click("#key-dialog button")
    settle(page)
    assert page.inner_text("#said").startswith("Found: A cat")
    complaints.clear()


def test_a_model_that_reads_words_alone_is_asked_without_a_picture(open_page):
    page = open_page(live=False)
    models = {"data": [{"id": "words", "pictures": False, "why_no_pictures": "it was trained on words alone"}]}
    page.route("**/v1/models", lambda route: route.fulfill(json=models))
    with page.expect_request(lambda request: request.url.endswith("fill") and "image" not in request.post_data):
        page.reload()
    settle(page)
    assert not page.locator("#picture").is_visible()
    assert "trained on words alone" in page.inner_text("#no-picture")
