"""The app in a real browser: by keyboard, on a phone, in two tabs, from a mail page, and under attack."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import axe_script, check_page, violations

from prbench.people.annotate.records import Mode

from .conftest import HOSTILE, RATED, count_events, export_rows, save

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install 'prbench[dev]'")
expect = playwright.expect
pytestmark = pytest.mark.browser

SIZES = {"desktop": (1200, 900), "phone": (375, 812)}
SIX = "545344"  # one digit per rating


@pytest.fixture
def visit(browser: Any):
    """Return `visit(url)`: a page in a fresh browser profile, which must see no error and no other host."""
    contexts = []

    def open_page(url: str, *, size: str = "desktop", scheme: str = "light", **options: Any) -> Any:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True, **options
        )
        page = context.new_page()
        page.errors, page.shown = [], []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("dialog", lambda dialog: page.errors.append(dialog.message))
        page.on("request", lambda request: page.shown.append(request.url))
        contexts.append((context, page))
        page.goto(url)
        return page

    yield open_page
    for context, page in contexts:
        assert page.errors == []
        context.close()


def link(running, name: str = "ada") -> str:
    token = running.made.links.owner if name == "owner" else running.made.links.annotators[name]
    return f"{running.url}/in/{token}"


def serve_elsewhere(page: Any, url: str, body: str) -> None:
    """Go to a page of another site, which no network is asked for."""
    page.route(f"{url}**", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto(url)


def begin(page: Any) -> None:
    """Go to the first item."""
    page.get_by_role("link", name="Begin").click()
    page.wait_for_url("**/items/*")


def soon(page: Any, read: Callable[[], object], expected: object) -> None:
    """Wait until the server holds what is expected: a page may still show what it said of the save before."""
    for _ in range(500):
        if read() == expected:
            break
        page.wait_for_timeout(20)
    assert read() == expected


def judge(page: Any, choice: str = "1", ratings: str = SIX) -> None:
    """Judge one item by keyboard and wait for the next page."""
    where = page.url
    page.keyboard.press(choice)
    page.keyboard.press("r")
    for digit in ratings:
        page.keyboard.press(digit)
    page.keyboard.press("d")
    expect(page).not_to_have_url(where)
    page.wait_for_load_state()


@pytest.mark.slow
def test_ten_items_by_keyboard_then_on_another_device_two_people_and_the_owner(
    make, start, visit, tmp_path: Path
) -> None:
    running = start(make(12))
    page = visit(link(running))
    expect(page).to_have_url(f"{running.url}/start")
    assert not any("/in/" in entry for entry in page.evaluate("[location.href, document.referrer]"))
    page.keyboard.press("Tab")
    page.get_by_role("link", name="Begin").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/items/*")
    for number in range(10):
        judge(page, "123"[number % 3])
    page.keyboard.press("2")
    expect(page.locator("#state")).to_contain_text("Draft saved")
    here = page.url
    page.context.close()

    elsewhere = visit(link(running), size="phone")
    expect(elsewhere.get_by_text("10 of 12 done")).to_be_visible()
    elsewhere.get_by_role("link", name="Continue").click()
    elsewhere.wait_for_url("**/items/*")
    expect(elsewhere).to_have_url(here)
    expect(elsewhere.locator("input[value=right]")).to_be_checked()
    judge(elsewhere)
    elsewhere.keyboard.press("s")
    expect(elsewhere.get_by_text("All done. Thank you!")).to_be_visible()
    expect(elsewhere.get_by_text("11 of 12 done, 1 skipped")).to_be_visible()

    second = visit(link(running, "ben"))
    begin(second)
    for _ in range(4):
        judge(second, "1", "444444")

    owner = visit(link(running, "owner"))
    expect(owner.get_by_text("15 of 24 answers")).to_be_visible()
    with owner.expect_download() as download:
        owner.get_by_role("link", name="Answers, one per line").click()
    download.value.save_as(tmp_path / "answers.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 15
    items = {name: {row["item"] for row in rows if row["annotator"] == name} for name in ("ada", "ben")}
    assert (len(items["ada"]), len(items["ben"])) == (11, 4)
    assert len(items["ada"] & items["ben"]) >= 3, "they overlap on all but what ada skipped"
    # Keys 1 and 2 mean left and right: what they come to depends on where the chosen response stood.
    for row in rows:
        if row["annotator"] == "ben":
            assert row["choice"] == ("chosen" if row["side_chosen"] == "left" else "rejected")
    ada = [row for row in rows if row["annotator"] == "ada"]
    assert sorted(row["choice"] == "tie" for row in ada).count(True) == 3
    left = {"correctness": 5, "relevance": 4, "helpfulness": 5}
    assert all(row["ratings"]["chosen" if row["side_chosen"] == "left" else "rejected"] == left for row in ada)
    assert all(url.startswith((running.url, "data:")) for url in second.shown), "nothing is loaded from elsewhere"


def test_every_input_is_saved_without_being_sent(make, start, visit) -> None:
    running = start(make(2))
    page = visit(link(running))
    begin(page)
    page.get_by_label("Note").fill("half a thou")
    page.get_by_text("Flag this item").click()
    expect(page.locator("#state")).to_contain_text("Draft saved at")
    page.reload()
    expect(page.get_by_label("Note")).to_have_value("half a thou")
    expect(page.get_by_role("checkbox", name="Flag this item")).to_be_checked()


def test_keys_do_nothing_while_one_writes_and_can_be_turned_off(make, start, visit) -> None:
    running = start(make(2))
    page = visit(link(running))
    begin(page)
    here = page.url
    page.keyboard.press("w")
    page.keyboard.type("1 is nicer, d'accord?")
    expect(page.get_by_label("Note")).to_have_value("1 is nicer, d'accord?")
    assert page.locator("[data-choice] :checked").count() == 0
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.get_by_label("Use these keys").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    assert page.locator("[data-choice] :checked").count() == 0
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Use these keys").check()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("1")
    assert page.locator("[data-choice] :checked").count() == 1
    page.keyboard.press("n")
    expect(page).not_to_have_url(here)
    page.keyboard.press("p")
    expect(page).to_have_url(here)
    expect(page.locator("input[value=left]")).to_be_checked()


def test_what_is_missing_is_said_where_one_looks(make, start, visit) -> None:
    running = start(make(1, overlap=1, annotators=["ada"]))
    page = visit(link(running))
    begin(page)
    page.keyboard.press("3")
    page.keyboard.press("d")
    expect(page.get_by_role("alert")).to_contain_text("all six ratings are missing")
    assert page.get_by_role("alert").is_visible()


def test_two_tabs_the_last_one_counts_and_the_other_can_be_brought_back(make, start, visit) -> None:
    running = start(make(1, overlap=1, annotators=["ada"]))
    first = visit(link(running))
    begin(first)
    second = first.context.new_page()
    second.goto(first.url)
    first.get_by_label("Note").fill("from the first tab")
    expect(first.locator("#state")).to_contain_text("Draft saved at")
    second.get_by_label("Note").fill("from the second tab")
    alert = second.get_by_role("alert")
    expect(alert).to_contain_text("another tab or on another device")
    store = running.server.store
    soon(second, lambda: [saved.answer.note for saved in store.answers()], ["from the second tab"])
    assert count_events(store) == 2, "nothing is lost"
    alert.get_by_role("button").click()
    expect(second.get_by_label("Note")).to_have_value("from the first tab")
    expect(second.locator("#state")).to_contain_text("Draft saved at")
    soon(second, lambda: [saved.answer.note for saved in store.answers()], ["from the first tab"])
    # A tab that comes back to the front without changes of its own shows what was saved elsewhere.
    second.get_by_label("Note").fill("changed again")
    soon(second, lambda: [saved.answer.note for saved in store.answers()], ["changed again"])
    first.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(first.get_by_label("Note")).to_have_value("changed again")


def test_a_stale_tab_says_that_it_undid_a_done_answer_and_brings_it_back_as_done(make, start, visit) -> None:
    running = start(make(2, overlap=1, annotators=["ada"]))
    first = visit(link(running))
    begin(first)
    here = first.url
    stale = visit(link(running), size="phone")
    expect(stale.get_by_role("link", name="Begin")).to_be_visible()  # the link leads on by itself
    stale.goto(here)
    judge(first, "1", SIX)
    store = running.server.store

    def saved() -> list[tuple[str, str]]:
        return [(each.status.value, each.answer.note) for each in store.answers()]

    soon(stale, saved, [("done", "")])
    stale.get_by_label("Note").fill("half a")
    alert = stale.get_by_role("alert")
    expect(alert).to_contain_text("You had finished this in another tab")
    expect(alert).to_contain_text("counts now, as a draft")
    expect(alert).to_be_in_viewport()
    soon(stale, saved, [("draft", "half a")])
    stale.get_by_label("Note").fill("half a thought")
    soon(stale, saved, [("draft", "half a thought")])  # the offer outlives further typing
    alert.get_by_role("button").click()
    expect(stale.locator("#state")).to_contain_text("Done; changes are saved at")
    expect(stale).to_have_url(here)
    soon(stale, saved, [("done", "")])
    (now,) = store.answers()
    assert now.answer.choice is not None
    assert now.answer.missing(Mode.VALIDATE) == []
    assert count_events(store) >= 4, "nothing is lost"


def test_a_skipped_item_is_brought_back_as_skipped(make, start, visit) -> None:
    running = start(make(2, overlap=1, annotators=["ada"]))
    first = visit(link(running))
    begin(first)
    here = first.url
    stale = first.context.new_page()
    stale.goto(here)
    first.keyboard.press("s")
    expect(first).not_to_have_url(here)
    stale.get_by_label("Note").fill("x")
    expect(stale.get_by_role("alert")).to_contain_text("You had skipped this")
    stale.get_by_role("alert").get_by_role("button").click()
    expect(stale.locator("#state")).to_contain_text("Skipped at")
    soon(stale, lambda: [each.status.value for each in running.server.store.answers()], ["skipped"])


def test_opening_the_link_again_leaves_open_tabs_saving(make, start, visit) -> None:
    running = start(make(2, overlap=1, annotators=["ada"]))
    first = visit(link(running))
    begin(first)
    again = first.context.new_page()
    again.goto(link(running))
    expect(again).to_have_url(f"{running.url}/start")
    mail = first.context.new_page()  # a browser sends no strict cookie from there, so this is a new session
    serve_elsewhere(mail, "http://mail.example/", f"<a href='{link(running)}'>come</a>")
    mail.get_by_text("come").click()
    expect(mail).to_have_url(f"{running.url}/start")
    first.get_by_label("Note").fill("still here")
    expect(first.locator("#state")).to_contain_text("Draft saved at")
    soon(mail, lambda: [each.answer.note for each in running.server.store.answers()], ["still here"])


def test_done_without_a_connection_is_done_as_soon_as_there_is_one(make, start, visit) -> None:
    running = start(make(2, overlap=1, annotators=["ada"]))
    page = visit(link(running))
    begin(page)
    here = page.url
    page.keyboard.press("1")
    page.keyboard.press("r")
    for digit in SIX:
        page.keyboard.press(digit)
    expect(page.locator("#state")).to_contain_text("Draft saved at")
    page.context.set_offline(True)
    page.keyboard.press("d")
    expect(page.locator("#state")).to_contain_text("no connection")
    page.context.set_offline(False)
    expect(page).not_to_have_url(here, timeout=15_000)
    soon(page, lambda: [each.status.value for each in running.server.store.answers()], ["done"])


def test_a_server_that_is_busy_is_asked_again(make, start, visit) -> None:
    running = start(make(1, overlap=1, annotators=["ada"]))
    page = visit(link(running))
    begin(page)
    busy = [503, 500]

    def answer(route: Any) -> None:
        if route.request.method == "POST" and busy:
            route.fulfill(status=busy.pop(), json={"message": "The project is busy."})
        else:
            route.continue_()

    page.route("**/items/*", answer)
    page.get_by_label("Note").fill("patience")
    expect(page.locator("#state")).to_contain_text("the server is busy. Trying again")
    expect(page.locator("#state")).to_contain_text("Draft saved at", timeout=15_000)
    assert busy == []
    soon(page, lambda: [each.answer.note for each in running.server.store.answers()], ["patience"])


def test_done_pressed_twice_goes_one_item_on(make, start, visit) -> None:
    running = start(make(3, overlap=1, annotators=["ada"]))
    page = visit(link(running))
    begin(page)
    page.keyboard.press("3")
    page.keyboard.press("r")
    for digit in SIX:
        page.keyboard.press(digit)
    page.evaluate("for (let n = 0; n < 2; n += 1) { document.getElementById('done').click(); }")
    expect(page.get_by_text("Item 2 of 3")).to_be_visible()
    soon(page, lambda: [each.status.value for each in running.server.store.answers()], ["done"])


def test_a_key_that_is_held_down_acts_once(make, start, visit) -> None:
    running = start(make(4, overlap=1, annotators=["ada"]))
    page = visit(link(running))
    begin(page)
    page.keyboard.press("r")
    for _ in range(5):
        page.keyboard.down("4")
    page.keyboard.up("4")
    assert page.locator("[data-rating] :checked").count() == 1, "the rating that had the focus, and no other"
    page.keyboard.down("s")
    expect(page.get_by_text("Item 2 of 4")).to_be_visible()
    page.wait_for_load_state()
    for _ in range(5):
        page.keyboard.down("s")
    page.keyboard.up("s")
    page.keyboard.press("3")
    expect(page.locator("#state")).to_contain_text("Draft saved at")
    assert [status.value for _, status, _ in running.server.store.positions(1)] == ["skipped", "draft", "open", "open"]


def test_on_a_phone_no_word_on_a_button_is_broken(make, start, visit) -> None:
    running = start(make(3, overlap=1, annotators=["ada"]))
    page = visit(link(running), size="phone")
    expect(page).to_have_url(f"{running.url}/start")
    page.goto(f"{running.url}/items/2")
    lines = page.evaluate(LINES, ".bar .button, .bar button")
    assert lines == {"Previous": 1, "Next": 1, "Skip": 1, "Done": 1}


def test_without_a_connection_nothing_typed_is_lost(make, start, visit) -> None:
    running = start(make(1, overlap=1, annotators=["ada"]))
    page = visit(link(running))
    begin(page)
    page.context.set_offline(True)
    page.get_by_label("Note").fill("in a tunnel")
    expect(page.locator("#state")).to_contain_text("no connection")
    page.context.set_offline(False)
    expect(page.locator("#state")).to_contain_text("Draft saved at", timeout=15_000)
    soon(page, lambda: [saved.answer.note for saved in running.server.store.answers()], ["in a tunnel"])


def test_a_link_in_a_mail_page_of_another_site_leads_in(make, start, visit) -> None:
    running = start(make(1))
    page = visit("about:blank")
    serve_elsewhere(page, "http://mail.example/", f"<a href='{link(running)}'>come</a>")
    page.get_by_text("come").click()
    expect(page).to_have_url(f"{running.url}/start")
    expect(page.get_by_role("link", name="Begin")).to_be_visible()
    cookie = page.context.cookies()[0]
    assert (cookie["sameSite"], cookie["httpOnly"]) == ("Strict", True)
    page.go_back()
    assert "/in/" not in page.url, "the token is not in the history either"


def test_a_form_on_another_site_changes_nothing(make, start, visit) -> None:
    running = start(make(1, annotators=["ada"]))
    page = visit(link(running, "owner"))
    expect(page).to_have_url(f"{running.url}/owner")
    for path in ("/owner/invite", "/owner/annotators/1/pause"):
        attack = f"<form method=post action='{running.url}{path}'><input name=name value=eve></form>"
        serve_elsewhere(page, "http://evil.example/", attack)
        with page.expect_navigation() as reply:
            page.evaluate("document.forms[0].submit()")
        assert (reply.value.url, reply.value.status) == (running.url + path, 403)
    assert [(person.name, person.is_paused) for person in running.server.store.people.all()] == [("ada", False)]


def test_stored_scripts_stay_text_on_every_page(make, start, visit, rows) -> None:
    aspect = {"aspect": HOSTILE, "evidence": HOSTILE, "reason": HOSTILE}
    hostile = [
        row | {"question": HOSTILE, "chosen": f"{HOSTILE} a", "rejected": f"{HOSTILE} b", "rubric_aspects": [aspect]}
        for row in rows(1)
    ]
    name = "<img src=x onerror=document.title='stolen'>"
    running = start(make(hostile, annotators=[name], overlap=1, data=HOSTILE, instructions=HOSTILE))
    page = visit(link(running, name))
    expect(page.locator("header")).to_contain_text(name)
    begin(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.get_by_label("Note").fill(HOSTILE)
    page.keyboard.press("Escape")
    judge(page)
    owner = visit(link(running, "owner"))
    expect(owner.locator("#people + .scroll")).to_contain_text(name)
    owner.goto(f"{running.url}/owner/items/1")
    expect(owner.locator("main")).to_contain_text(HOSTILE)
    for path in ("/owner/export/rows", "/owner/export/argilla"):
        assert HOSTILE[:30] in owner.request.get(running.url + path).text()
    for each in (page, owner):
        assert "stolen" not in each.title()
        assert each.locator("main img, main script").count() == 0


# --- for everybody


def every_page(running, page: Any, *, collects: bool) -> Any:
    """Go from page to page, and yield the name of each; the owner's are the same in both modes."""
    page.goto(link(running))
    expect(page).to_have_url(f"{running.url}/start")
    yield "start"
    page.goto(f"{running.url}/items/1")
    yield "item"
    page.keyboard.press("1")
    page.keyboard.press("r")
    page.keyboard.press("d")
    expect(page.locator("#state")).to_contain_text("saved")
    yield "item with an answer"
    page.get_by_role("button", name="Keys").click()
    yield "keys"
    if collects:
        page.goto(f"{running.url}/about")
        yield "about"
        return
    page.goto(running.url)
    yield "front"
    page.goto(f"{running.url}/in/wrong")
    yield "error"
    page.goto(link(running, "owner"))
    expect(page).to_have_url(f"{running.url}/owner")
    yield "owner"
    page.goto(f"{running.url}/owner/items/1")
    yield "the owner's item"
    page.goto(f"{running.url}/owner")
    page.get_by_label("Invite somebody").fill(
        f"guest {page.viewport_size['width']} {page.evaluate('performance.now()')}"
    )
    page.get_by_role("button", name="Make a link").click()
    expect(page.get_by_label("Personal link")).to_be_visible()
    yield "invitation"


def prepare(make, start, mode: Mode):
    """A project with answers, a flag, a skipped item and a paused annotator."""
    running = start(make(6, mode=mode, annotators=["ada", "ben", "cleo"], overlap=3))
    for name in ("ada", "ben"):
        client = running.annotator(name)
        for position in (2, 3, 4):
            extra = RATED if mode is Mode.VALIDATE else {"aspect_1": "thrift", "reason_1": "money"}
            assert save(client, position, "done", choice=("left", "right", "tie")[position % 3], **extra).is_success
        save(client, 5, "skip", flag="yes", note="broken")
    running.server.store.pause(3)
    return running


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
def test_axe_finds_nothing_and_every_screen_fits(make, start, visit, mode: Mode) -> None:
    running = prepare(make, start, mode)
    page = visit("about:blank")
    seen = []
    for name in every_page(running, page, collects=mode is Mode.COLLECT):
        check_page(page, name)
        seen.append(name)
    assert len(seen) == (9 if mode is Mode.VALIDATE else 5)


def test_axe_would_find_a_grey_text_and_a_field_without_a_label(make, start, visit) -> None:
    page = visit(start(make(1)).url)
    page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<input type=text><p class=x>grey</p>')"
    )
    page.evaluate("document.querySelector('.x').style.color = '#bbb'")
    page.evaluate(axe_script())
    assert {"label", "color-contrast"} <= {found.partition(":")[0] for found in violations(page)}


LINES = """selector => Object.fromEntries([...document.querySelectorAll(selector)].map((button) => {
  const text = document.createRange();
  text.selectNodeContents(button.firstChild);
  return [button.firstChild.textContent.trim(), new Set([...text.getClientRects()].map((box) => box.top)).size];
}))"""
FOCUSED = """(() => {
  const field = document.activeElement;
  return field.name && field.name !== "do" ? field.name : field.id || field.textContent.trim();
})()"""


def test_the_focus_goes_through_the_form_in_reading_order_and_is_visible(make, start, visit) -> None:
    running = start(make(2))
    page = visit(link(running))
    begin(page)
    expect(page.locator("form#answer")).to_be_visible()
    order = []
    for _ in range(14):
        page.keyboard.press("Tab")
        order.append(page.evaluate(FOCUSED))
    assert order == [
        "Skip to the content", "Your list", "show-keys", "choice",
        "left_correctness", "left_relevance", "left_helpfulness",
        "right_correctness", "right_relevance", "right_helpfulness",
        "note", "flag", "following", "skip",
    ]  # fmt: skip
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"


def test_the_page_works_without_scripts(make, start, visit) -> None:
    running = start(make(2))
    page = visit(link(running), java_script_enabled=False)
    begin(page)
    page.get_by_label("Cannot tell").check()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("alert")).to_contain_text("all six ratings")
    for group in page.locator("[data-rating]").all():
        group.get_by_label("4, good").check()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("Item 2 of 2")).to_be_visible()
    assert [row["choice"] for row in export_rows(running.owner())] == ["tie"]


def test_who_collects_writes_about_themselves_and_it_is_saved(make, start, visit) -> None:
    running = start(make(1, mode=Mode.COLLECT, overlap=1, annotators=["ada"]))
    page = visit(link(running))
    page.get_by_role("link", name="Write about yourself").click()
    page.get_by_label("Post 2").fill("I grow beans.")
    expect(page.locator("#state")).to_contain_text("Saved at")
    page.get_by_role("button", name="Back to your list").click()
    expect(page.get_by_text("You wrote 1 post about yourself")).to_be_visible()
    begin(page)
    page.keyboard.press("2")
    page.keyboard.press("r")
    page.keyboard.type("little work")
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    expect(page.get_by_text("All done. Thank you!")).to_be_visible()
    (pair,) = export_rows(running.owner(), "pairs")
    assert [post["text"] for post in pair["profile"]] == ["I grow beans."]
    assert [aspect["aspect"] for aspect in pair["rubric_aspects"]] == ["little work"]
