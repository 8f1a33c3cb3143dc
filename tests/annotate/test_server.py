"""The app over HTTP: nothing without a token, nothing from another site, and nothing that was saved is lost."""

import re
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from threading import Barrier

import httpx
import pytest

from prbench.people.annotate.records import Mode

from .conftest import HOSTILE, RATED, count_events, export_rows, hidden, save

GUARDED = [
    "/start",
    "/items/1",
    "/items/1/saved",
    "/owner",
    "/owner?page=2",
    "/owner/items/1",
    *(
        f"/owner/export/{form}"
        for form in ("rows", "pairs", "argilla", "label-studio", "argilla-settings", "label-studio-config")
    ),
]
WRITES = [
    "/items/1",
    "/leave",
    "/owner/invite",
    *(f"/owner/annotators/1/{action}" for action in ("pause", "reopen", "release", "renew")),
]


def events(running) -> int:
    return count_events(running.server.store)


# --- who may come in


@pytest.mark.parametrize("collects", [False, True])
def test_no_page_and_no_export_without_its_token(make, start, collects: bool) -> None:
    running = start(make(mode=Mode.COLLECT if collects else Mode.VALIDATE))
    stranger = running.client()
    for path in [*GUARDED, *(["/about", "/about/saved"] if collects else [])]:
        reply = stranger.get(path)
        assert reply.status_code == 401, path
        assert "balcony" not in reply.text
    for path in [*WRITES, *(["/about"] if collects else [])]:
        assert stranger.post(path, data={"csrf": "x"}).status_code == 401, path
    assert events(running) == 0


def test_an_annotator_sees_no_page_of_the_owner_and_the_owner_none_of_theirs(make, start) -> None:
    running = start(make())
    annotator, owner = running.annotator(), running.owner()
    assert {annotator.get(path).status_code for path in GUARDED if path.startswith("/owner")} == {401}
    assert annotator.post("/owner/invite", data={"csrf": "x", "name": "eve"}).status_code == 401
    assert owner.get("/start").status_code == 401
    assert owner.get("/items/1").status_code == 401


def test_a_link_sets_a_strict_cookie_and_leaves_the_address(make, start) -> None:
    running = start(make())
    client = running.client()
    token = running.made.links.annotators["ada"]
    reply = client.get(f"/in/{token}")
    assert (reply.status_code, reply.headers["location"]) == (303, "/welcome")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie, "over plain HTTP a browser would drop it"
    assert token not in cookie
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert 'url=/start"' in client.get("/welcome").text
    assert client.get("/start").status_code == 200


def test_behind_tls_the_cookie_insists_on_it(make, start) -> None:
    running = start(make(), public_url="https://annotate.example.org")
    reply = httpx.get(f"http://127.0.0.1:{running.server._socket.getsockname()[1]}/in/{running.made.links.owner}")
    assert "Secure" in reply.headers["set-cookie"]
    assert running.url == "https://annotate.example.org"


def test_sessions_of_two_projects_on_one_machine_do_not_mix(make, start) -> None:
    one, two = start(make(name="one.db")), start(make(name="two.db"))
    client = one.annotator()
    cookies = {cookie.name: cookie.value for cookie in client.cookies.jar}
    assert httpx.get(f"{two.url}/start", cookies=cookies).status_code == 401
    assert len({cookie.name for cookie in two.annotator().cookies.jar} & set(cookies)) == 0


def test_wrong_links_are_limited_and_never_refuse_a_right_one(make, start) -> None:
    running = start(make(), wrong_tokens=3)
    client, inside = running.client(), running.annotator()
    wrong = [client.get(f"/in/wrong-{n}") for n in range(5)]
    assert [reply.status_code for reply in wrong] == [404, 404, 404, 429, 429]
    assert 1 <= int(wrong[-1].headers["retry-after"]) <= 60
    assert client.get(f"/in/{running.made.links.annotators['ada']}").status_code == 303
    assert inside.get("/start").status_code == 200, "who is in already goes on working"
    bearer = {"Authorization": f"Bearer {running.made.links.owner}"}
    assert client.get("/owner/export/rows", headers=bearer).status_code == 200
    assert client.get("/owner/export/rows", headers={"Authorization": "Bearer wrong"}).status_code == 429


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "[::1"])
def test_a_name_that_is_not_ours_is_refused_before_a_page_shows_links_with_it(host: str, make, start) -> None:
    running = start(make())
    reply = running.client().get("/", headers={"Host": host})
    assert reply.status_code in (400, 421)
    assert host not in reply.text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8100", "192.0.2.7", "study.example.org"])
def test_our_names_and_addresses_are_served(host: str, make, start) -> None:
    running = start(make(), public_url="https://study.example.org")
    port = running.server._socket.getsockname()[1]  # behind the proxy of that name
    assert httpx.get(f"http://127.0.0.1:{port}/", headers={"Host": host}, trust_env=False).status_code == 200


def test_a_spoofed_address_does_not_lift_the_limit(make, start) -> None:
    running = start(make(), wrong_tokens=2)
    client = running.client()
    codes = [client.get(f"/in/w{n}", headers={"X-Forwarded-For": f"203.0.113.{n}"}).status_code for n in range(3)]
    assert codes == [404, 404, 429]


def test_a_script_exports_with_the_owners_token_and_no_other(make, start) -> None:
    running = start(make())
    client = running.client()
    good = client.get("/owner/export/rows", headers={"Authorization": f"Bearer {running.made.links.owner}"})
    assert good.status_code == 200
    for token in (running.made.links.annotators["ada"], "x", "x" * 5000):
        reply = client.get("/owner/export/rows", headers={"Authorization": f"Bearer {token}"})
        assert reply.status_code == 401


def test_leaving_ends_the_session_and_the_link_begins_another(make, start) -> None:
    running = start(make())
    client = running.annotator()
    secret = dict(client.cookies)
    client.post("/leave", data={"csrf": hidden(client.get("/start").text, "csrf")})
    assert httpx.get(f"{running.url}/start", cookies=secret).status_code == 401
    assert running.annotator().get("/start").status_code == 200


def test_a_paused_link_is_closed_until_it_is_reopened_and_a_renewed_one_ends(make, start) -> None:
    running = start(make())
    annotator, owner = running.annotator(), running.owner()
    save(annotator, 1, note="kept")
    csrf = {"csrf": hidden(owner.get("/owner").text, "csrf")}
    owner.post("/owner/annotators/1/pause", data=csrf)
    assert annotator.get("/items/1").status_code == 403
    assert "paused" in running.annotator().get("/start").text
    owner.post("/owner/annotators/1/reopen", data=csrf)
    assert "kept" in annotator.get("/items/1").text
    renewed = owner.post("/owner/annotators/1/renew", data=csrf).text
    assert annotator.get("/start").status_code == 401
    assert running.client().get(f"/in/{running.made.links.annotators['ada']}").status_code == 404
    link = re.search(r'value="(http[^"]*/in/[^"]*)"', renewed)
    assert link
    assert running.client().get(link[1]).status_code == 303


# --- writes


def test_a_page_goes_on_saving_when_its_link_is_opened_again_and_stops_when_the_link_is_renewed(make, start) -> None:
    running = start(make())
    ada = running.annotator()
    body = {"csrf": hidden(ada.get("/items/1").text, "csrf"), "note": "one"}
    before = {cookie.value for cookie in ada.cookies.jar}
    ada.get(f"/in/{running.made.links.annotators['ada']}")
    assert {cookie.value for cookie in ada.cookies.jar} != before
    assert ada.post("/items/1", data=body).status_code == 303
    token = running.server.store.people.renew(1)
    ada.get(f"/in/{token}")
    assert ada.post("/items/1", data=body | {"note": "two"}).status_code == 403
    assert events(running) == 1


@pytest.mark.parametrize("who,home", [("owner", "/owner"), ("annotator", "/start")])
def test_an_error_page_leads_home_and_the_owners_leads_to_the_project(make, start, who: str, home: str) -> None:
    running = start(make())
    if who == "owner":
        client = running.owner()
        page = client.post("/owner/invite", data={"csrf": hidden(client.get("/owner").text, "csrf"), "name": "ada"})
    else:
        page = running.annotator().get("/items/99")
    assert page.status_code in (404, 422)
    assert re.findall(r'<p><a href="([^"]*)"', page.text) == [home]
    assert "<p><a" not in running.client().get("/in/wrong").text, "a stranger has no page to go to"


def test_a_project_that_another_process_holds_is_busy_and_says_so(make, start, monkeypatch) -> None:
    monkeypatch.setattr("prbench.people.annotate.database.BUSY_SECONDS", 0.05)
    running = start(make())
    ada = running.annotator()
    csrf = hidden(ada.get("/items/1").text, "csrf")
    other = sqlite3.connect(running.made.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    json_please = {"Accept": "application/json"}
    reply = ada.post("/items/1", data={"csrf": csrf, "note": "x"}, headers=json_please)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")
    assert "Nothing was saved" in reply.json()["message"]
    other.execute("ROLLBACK")
    other.close()
    assert ada.post("/items/1", data={"csrf": csrf, "note": "x"}, headers=json_please).status_code == 200
    assert events(running) == 1


def test_a_write_needs_the_csrf_token_of_its_own_link(make, start) -> None:
    running = start(make())
    ada, ben = running.annotator("ada"), running.annotator("ben")
    other = hidden(ben.get("/items/1").text, "csrf")
    for csrf in ({}, {"csrf": ""}, {"csrf": "wrong"}, {"csrf": "é"}, {"csrf": other}):
        assert ada.post("/items/1", data={"note": "forged", **csrf}).status_code == 403
    owner = running.owner()
    for path in WRITES[2:]:
        assert owner.post(path, data={"csrf": other, "name": "eve"}).status_code == 403, path
    assert events(running) == 0
    assert len(running.server.store.people.all()) == 2


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_write_from_another_site_is_refused_even_with_its_token(make, start, headers) -> None:
    running = start(make())
    ada = running.annotator()
    csrf = hidden(ada.get("/items/1").text, "csrf")
    assert ada.post("/items/1", data={"csrf": csrf, "note": "x"}, headers=headers).status_code == 403
    assert ada.post("/items/1", data={"csrf": csrf, "note": "x"}, headers={"Origin": running.url}).status_code == 303
    assert events(running) == 1


def test_sizes_and_forms_that_the_page_never_sends_are_refused(make, start) -> None:
    running = start(make(), max_body_bytes=20_000)
    ada = running.annotator()
    csrf = hidden(ada.get("/items/1").text, "csrf")
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    def code(**request) -> int:
        return ada.post("/items/1", **request).status_code

    assert code(data={"csrf": csrf, "note": "x" * 30_000}) == 413
    assert code(content=iter([b"note=" + b"x" * 15_000, b"x" * 15_000]), headers=form) == 413, "without a length"
    assert code(data={"csrf": csrf, "note": "x" * 4_001}) == 422
    assert code(json={"csrf": csrf}) == 415
    assert code(content=f"csrf={csrf}&note=a&note=b", headers=form) == 422
    assert code(content=f"csrf={csrf}&note=%FF", headers=form) == 422
    assert code(content="&".join(f"f{n}=1" for n in range(100)), headers=form) == 422
    assert code(data={"csrf": csrf, "choice": "chosen"}) == 422
    assert code(data={"csrf": csrf, "left_correctness": "6"}) == 422
    assert events(running) == 0


def test_a_form_that_breaks_off_is_not_saved(make, start) -> None:
    running = start(make())
    ada = running.annotator()
    body = f"csrf={hidden(ada.get('/items/1').text, 'csrf')}&note=half+of+wha"
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in ada.cookies.jar)
    head = (
        f"POST /items/1 HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\nContent-Length: {len(body) + 20}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", ada.base_url.port), timeout=30) as connection:
        connection.sendall((head + body).encode())
        connection.shutdown(socket.SHUT_WR)
        assert b"200" not in connection.recv(4096)
    save(ada, 1, note="whole")
    assert [saved.answer.note for saved in running.server.store.answers()] == ["whole"]
    assert events(running) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/schema.py",
        "/static//etc/passwd",
        "/static/annotate.css%00",
        "/owner/export/..%2f..%2fstudy.db",
        "/owner/export/rows/../../../etc/passwd",
        "/items/../owner",
        "/items/99999999999999999999999",
        "/items/-1",
        "/owner/items/0",
    ],
)
def test_no_path_leads_to_the_file_system(make, start, path: str) -> None:
    running = start(make())
    for client in (running.annotator(), running.owner()):
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in client.cookies.jar)
        # httpx would tidy the path up before it sends it.
        connection = HTTPConnection("127.0.0.1", client.base_url.port, timeout=30)
        connection.request("GET", path, headers={"Cookie": cookies})
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        assert reply.status in (401, 404), text
        assert "import" not in text
        assert "root:" not in text


def test_every_reply_carries_the_guarding_headers(make, start) -> None:
    running = start(make())
    ada = running.annotator()
    for path in ("/", "/start", "/items/1", "/static/annotate.js", "/nothing", "/in/wrong", "/health"):
        headers = ada.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "server" not in headers
    assert ada.get("/start").headers["cache-control"] == "no-store"
    page = ada.get("/items/1").text
    assert not re.search(r"<script(?! src=\"/static/)|\son\w+=|style=", page), "nothing inline"
    assert not re.search(r'(src|href)="(?!/|#)', page), "nothing from elsewhere"


# --- what is asked and saved


def test_the_page_does_not_tell_which_response_is_the_chosen_one(make, start) -> None:
    running = start(make(20, overlap=1, annotators=["ada"]))
    ada = running.annotator()
    firsts = []
    for position in range(1, 21):
        page = ada.get(f"/items/{position}").text
        assert not re.search(r"chosen|rejected|item-0|user-", page)
        firsts.append(page.index("Sow cheap") < page.index("Buy the finest"))
    assert 4 <= sum(firsts) <= 16, "the sides are mixed"


def test_two_annotators_see_their_own_sides_and_the_answers_agree(make, start) -> None:
    running = start(make(12))
    for name in ("ada", "ben"):
        client = running.annotator(name)
        for position in range(1, 13):
            page = client.get(f"/items/{position}").text
            left = page.index("Sow cheap") < page.index("Buy the finest")
            choice = "left" if left else "right"
            ratings = RATED | {f"{choice}_correctness": "5"}
            assert save(client, position, "done", choice=choice, **ratings).json()["status"] == "done"
    rows = export_rows(running.owner())
    assert len(rows) == 24
    assert {row["choice"] for row in rows} == {"chosen"}
    assert {row["ratings"]["chosen"]["correctness"] for row in rows} == {5}
    assert {row["ratings"]["rejected"]["correctness"] for row in rows} == {4}
    assert {row["side_chosen"] for row in rows} == {"left", "right"}
    sides = {
        name: {row["item"]: row["side_chosen"] for row in rows if row["annotator"] == name} for name in ("ada", "ben")
    }
    assert sides["ada"] != sides["ben"]
    assert set(rows[0]) == {
        "item", "annotator", "question", "choice", "side_chosen", "ratings", "note", "seconds", "saved_at", "mode",
    }  # fmt: skip
    assert rows[0]["seconds"] == 5.0


def test_done_with_something_missing_is_a_saved_draft_and_says_what(make, start) -> None:
    running = start(make())
    ada = running.annotator()
    reply = save(ada, 1, "done", choice="left")
    assert reply.status_code == 422
    assert "all six ratings" in reply.json()["message"]
    assert reply.json()["status"] == "draft"
    plain = ada.post("/items/1", data={"csrf": hidden(ada.get("/items/1").text, "csrf"), "do": "done", "note": "n"})
    assert plain.status_code == 422
    assert "your choice" in plain.text
    assert export_rows(running.owner()) == []


def test_without_a_script_the_form_leads_to_the_next_item_that_waits(make, start) -> None:
    running = start(make(3))
    ada = running.annotator()

    def post(position: int, action: str) -> str:
        csrf = hidden(ada.get(f"/items/{position}").text, "csrf")
        reply = ada.post(f"/items/{position}", data={"csrf": csrf, "do": action, "choice": "tie", **RATED})
        assert reply.status_code == 303
        return reply.headers["location"]

    assert post(2, "done") == "/items/3"
    assert post(3, "skip") == "/items/1", "round the list"
    assert post(1, "done") == "/start"
    assert "All done" in ada.get("/start").text
    assert [row["choice"] for row in export_rows(running.owner())] == ["tie", "tie"]


def test_who_joins_by_the_owners_page_gets_a_share(make, start) -> None:
    running = start(make(12, annotators=["ada"], overlap=1))
    owner = running.owner()
    csrf = hidden(owner.get("/owner").text, "csrf")
    page = owner.post("/owner/invite", data={"csrf": csrf, "name": "cleo"}).text
    link = re.search(r'value="([^"]*/in/[^"]*)"', page)
    assert link
    cleo = running.client()
    assert cleo.get(link[1]).status_code == 303
    assert "0 of 6 done" in cleo.get("/start").text
    again = owner.post("/owner/invite", data={"csrf": csrf, "name": "cleo"})
    assert (again.status_code, "already" in again.text) == (422, True)


def test_text_of_data_and_people_stays_text_on_every_page(make, start, rows) -> None:
    hostile = [
        row
        | {
            "question": HOSTILE,
            "chosen": f"{HOSTILE} a",
            "rejected": f"{HOSTILE} b",
            "rubric_aspects": [{"aspect": HOSTILE, "evidence": HOSTILE, "reason": HOSTILE}],
        }
        for row in rows(2)
    ]
    running = start(make(hostile, annotators=[f"eve {HOSTILE[:60]}"], overlap=1, data=HOSTILE, instructions=HOSTILE))
    eve, owner = running.annotator(next(iter(running.made.links.annotators))), running.owner()
    assert save(eve, 1, "done", choice="tie", note=HOSTILE, flag="yes", **RATED).status_code == 200
    for client, path in (
        (eve, "/start"),
        (eve, "/items/1"),
        (owner, "/owner"),
        (owner, "/owner/items/1"),
        (owner, "/owner/items/2"),
    ):
        page = client.get(path).text
        assert "&lt;script&gt;" in page, path
        assert "<script>" not in page, path
        assert "<img" not in page, path
    reply = owner.get("/owner/export/rows")
    assert reply.headers["content-disposition"] == 'attachment; filename="answers.jsonl"'
    assert "html" not in reply.headers["content-type"]
    assert export_rows(owner)[0]["note"] == HOSTILE


def test_fifty_annotators_who_save_at_once_lose_nothing(make, start) -> None:
    names = [f"person-{number:02d}" for number in range(50)]
    running = start(make(4, annotators=names, overlap=50))
    gate = Barrier(50)

    def work(name: str) -> list[tuple[str, int, int]]:
        client = running.annotator(name)
        forms = [client.get(f"/items/{position}").text for position in range(1, 5)]
        gate.wait(60)
        said = []
        for position, page in enumerate(forms, 1):
            body = {each: hidden(page, each) for each in ("csrf", "tab", "seen")}
            body |= {"note": f"{name} {position}", "do": "done", "choice": "left", **RATED}
            reply = client.post(f"/items/{position}", data=body, headers={"Accept": "application/json"})
            assert reply.status_code == 200, reply.text
            said.append((name, position, reply.json()["version"]))
        return said

    with ThreadPoolExecutor(50) as pool:
        said = [one for each in pool.map(work, names) for one in each]
    assert len({version for _, _, version in said}) == 200
    assert events(running) == 200
    notes = [row["note"] for row in export_rows(running.owner())]
    assert sorted(notes) == sorted(f"{name} {position}" for name, position, _ in said)


def test_collecting_makes_a_user_a_rubric_and_a_pair(make, start, tmp_path) -> None:
    from prbench.data import open_examples

    running = start(make(2, mode=Mode.COLLECT))
    ada = running.annotator()
    about = ada.get("/about").text
    fields = {"post_1": "I grow beans.", "post_3": " I own one pot. ", "seen": "0", "tab": "t"}
    assert ada.post("/about", data={"csrf": hidden(about, "csrf"), **fields}).status_code == 303
    page = ada.get("/items/1").text
    assert "What this person looks for" not in page, "nobody else's rubric is shown"
    missing = save(ada, 1, "done", choice="left")
    assert (missing.status_code, "mattered" in missing.json()["message"]) == (422, True)
    left = page.index("Sow cheap") < page.index("Buy the finest")
    against = "right" if left else "left"
    why = {"aspect_1": "beauty", "reason_1": "I look at it all day", "reason_3": "no time"}
    assert save(ada, 1, "done", choice=against, note="An olive tree!", **why).status_code == 200
    assert save(ada, 2, "done", choice="tie").status_code == 200
    owner = running.owner()
    assert [row["choice"] for row in export_rows(owner)].count("tie") == 1
    path = tmp_path / "pairs.jsonl"
    path.write_text(owner.get("/owner/export/pairs").text)
    (example,) = open_examples(path)
    assert example.user.id == "ada"
    assert [post.text for post in example.user.profile] == ["I grow beans.", "I own one pot."]
    assert [(aspect.aspect, aspect.reason) for aspect in example.rubric] == [
        ("beauty", "I look at it all day"),
        ("no time", ""),
    ]
    assert example.chosen.startswith("Buy the finest")
    assert example.rejected.startswith("Sow cheap")
    assert example.narrative == "An olive tree!"
    assert example.meta["source_choice"] == "rejected"
    assert example.id == f"{example.meta['source_item']}:ada"
