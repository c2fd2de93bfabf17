"""What no page sees: foreign hosts and forms of other sites, floods, bodies without end, clients without the token."""

import asyncio
import re
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from termweave.errors import UsageError
from termweave.ui import application
from termweave.ui.protection import limits, sessions
from termweave.ui.protection.limits import TRIES, RateLimit
from termweave.ui.rendering import FOLDER
from termweave.ui.serve_options import ServeOptions
from tests.ui.conftest import TOKEN, URL, client_of


@pytest.fixture
def locked(unreachable):
    """A client of a server with a token."""
    return client_of(unreachable, token=TOKEN)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8321", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::2]"),
        *("127.0.0.1:8321/login?x=", "127.0.0.1:8321/static/", "127.0.0.1:8321@evil.example", "127.0.0.1:", "127.0.0.1:80:80"),
        *("127.0.0.1:8321, 127.0.0.1", "[::1]/login?x=", "[::1]evil.example", "::1"),
    ],
)
def test_another_name_of_the_server_is_refused(locked, host):
    """A page of another site that lets its own name point at this machine (DNS rebinding) sends that name.

    Starlette before 1.1 puts the header into request.url: its path would then be one that needs no token.
    """
    answer = locked.get("/api/indices", headers={"host": host})
    assert (answer.status_code, "does not know the name" in answer.json()["error"]) == (400, True)


def test_only_the_path_decides_who_needs_no_token(locked):
    for path, host in (("/login?x=1", "LOCALHOST:80"), ("/static/style.css", "[::1]:8321"), ("/login", "[::1]")):
        assert locked.get(path, headers={"host": host}).status_code == 200, host
    others = ("/login/", "/login2", "/loginx/../search", "/static", "//static/style.css", "/search?x=/login", "/search#/login")
    for path in others:
        assert locked.get(path).headers["location"].partition("?")[0] == "/login", path
    for file in FOLDER.rglob("*.py"):
        assert not re.search(r"request\.(url|base_url)\b|url_for", file.read_text(encoding="utf-8")), file


@pytest.mark.parametrize("path", ["/login", "/search?q=x", "/nothing", "/static/style.css", "/static/nothing", "/api/search"])
def test_every_answer_has_the_strict_headers(unreachable, path):
    headers = client_of(unreachable).get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    others = [headers[name] for name in ("x-content-type-options", "x-frame-options", "referrer-policy")]
    assert others == ["nosniff", "DENY", "same-origin"]


@pytest.mark.parametrize("charset", ["utf-16", "undefined", "unicode_escape", "\xff"])
def test_a_form_in_another_encoding_is_a_sentence(locked, charset):
    """Some of Python's encodings raise errors of their own, others make half characters that no later step takes."""
    body = '--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n\\ud800 xn--\u20ac\r\n--x--\r\n'
    kind = f'multipart/form-data; boundary=x; charset="{charset}"'.encode("latin-1")
    answer = locked.post("/login", content=body.encode(), headers={"content-type": kind})
    assert (answer.status_code, "send it as UTF-8" in answer.text) == (400, True)


def test_only_the_token_opens_a_server_that_has_one_for_a_working_day(locked, monkeypatch):
    assert locked.get("/search").headers["location"] == "/login?next=%2Fsearch"
    for wrong in ("Bearer wrong", f"bearer {TOKEN}x", TOKEN, "Bearer "):
        assert locked.get("/api/indices", headers={"authorization": wrong}).status_code == 401
    for scheme in ("Bearer", "bearer"):  # on to the server
        assert locked.get("/api/indices", headers={"authorization": f"{scheme} {TOKEN}"}).status_code == 503
    assert (locked.post("/login", data={"token": "wrong"}).status_code, len(locked.cookies)) == (401, 0)
    cookie = locked.post("/login", data={"token": TOKEN}).headers["set-cookie"].lower()
    assert ("httponly" in cookie, "samesite=lax" in cookie, "secure" in cookie) == (True, True, False)
    began = time.time()
    for passed, status in ((0, 200), (sessions.LIFE - 60, 200), (sessions.LIFE + 1, 401)):
        monkeypatch.setattr(sessions.time, "time", lambda passed=passed: began + passed)
        assert locked.get("/api/openapi.json").status_code == status
    # Through TLS, and on another port: servers on two ports of a host do not sign each other out.
    other = TestClient(locked.app, base_url="https://127.0.0.1:9000", headers={"origin": "https://127.0.0.1:9000"})
    secure = other.post("/login", data={"token": TOKEN}, follow_redirects=False).headers["set-cookie"]
    assert (cookie.partition("=")[0], secure.partition("=")[0]) == ("termweave-session-8321", "termweave-session-9000")
    assert "; Secure" in secure


def test_who_signs_in_gets_the_page_that_was_asked_for(locked):
    address = "/search?q=%E5%87%BD+a%26b&index=docs"
    page = locked.get(locked.get(address).headers["location"]).text
    place = unescape(re.search(r'name="next" value="([^"]*)"', page)[1])
    assert (place, "not stored" in page) == (address, False)
    wrong = locked.post("/login", data={"token": "wrong", "next": place}).text
    assert unescape(re.search(r'name="next" value="([^"]*)"', wrong)[1]) == address
    assert locked.post("/login", data={"token": TOKEN, "next": place}).headers["location"] == address


def test_a_form_of_a_session_that_has_ended_is_not_lost_without_a_word(locked):
    sent = locked.post("/judge/grade", data={"grade": "3"}, headers={"referer": f"{URL}/judge?index=docs&judge=ann"})
    page = locked.get(sent.headers["location"]).text
    assert all(part in page for part in ("What you sent was not stored", 'name="next" value="/judge?index=docs&amp;judge=ann"'))
    polled = locked.get("/progress?job=x", headers={"hx-request": "true"})
    assert (polled.status_code, polled.headers["hx-refresh"]) == (401, "true")


@pytest.mark.parametrize(
    "place",
    ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/\t/evil.example", "/x" * 4_002, "javascript:x"],
)
def test_signing_in_leads_to_no_other_site(locked, place, unreachable):
    assert 'name="next"' not in locked.get("/login", params={"next": place}).text
    assert locked.post("/login", data={"token": TOKEN, "next": place}).headers["location"] == "/"
    lost = client_of(unreachable, token=TOKEN).post("/judge/undo", headers={"referer": f"http://x{place}"}).headers["location"]
    assert parse_qs(urlsplit(lost).query).get("next", ["/"]) == ["/"]


@pytest.mark.parametrize("cookie", ["0.0", ".", "9999999999.x", "1", "", "\u00e9.\u00e9", f"9999999999.{64 * '0'}"])
def test_a_cookie_that_this_process_did_not_sign_opens_nothing(locked, cookie):
    header = {"cookie": f"termweave-session-8321={cookie}".encode()}
    assert locked.get("/api/indices", headers=header).status_code == 401


def test_tries_of_the_token_are_limited_and_slowed_and_the_right_one_is_not(locked):
    answers = [locked.post("/login", data={"token": "wrong"}).status_code for _ in range(TRIES + 1)]
    assert answers == [401] * TRIES + [429]
    began = time.monotonic()
    header = locked.get("/api/indices", headers={"authorization": "Bearer guessed"})  # both doors count together
    assert (header.status_code, header.headers["retry-after"]) == (429, "60")
    assert time.monotonic() - began >= limits.SLOWED
    neighbour = TestClient(locked.app, base_url=URL, headers={"origin": URL}, client=("10.0.0.7", 9))
    assert neighbour.post("/login", data={"token": "wrong"}).status_code == 401
    assert locked.get("/api/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert locked.post("/login", data={"token": TOKEN}, follow_redirects=False).status_code == 303


def test_a_flood_from_one_client_is_refused_and_another_client_is_not():
    limit = RateLimit(3, 0.001)
    for addresses in (["127.0.0.1", "::1"], ["2001:db8::1", "2001:db8::2"], ["2001:db8:1::1"], ["10.0.0.1"], ["10.0.0.2"]):
        requests = [Request({"type": "http", "client": (address, 9)}) for address in (addresses * 5)[:5]]
        assert [limit.allows(each) for each in requests] == [True, True, True, False, False]


def test_tries_at_the_same_time_have_one_bucket():
    class Slow(OrderedDict):
        def pop(self, *key):
            taken, _ = super().pop(*key), time.sleep(0.001)  # others come in between
            return taken

    request, limit = Request({"type": "http", "client": ("10.0.0.1", 9)}), RateLimit(TRIES, 0)
    limit._buckets = Slow()
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(lambda _: limit.allows(request), range(100))) == TRIES


def test_a_large_body_is_refused_whatever_it_says_of_its_length(unreachable, monkeypatch):
    monkeypatch.setattr(limits, "LARGEST", 1_000)
    client = client_of(unreachable, token=TOKEN)
    assert client.post("/login", data={"token": "x" * 2_000}).status_code == 413
    pieces = (b"token=" + b"x" * 300 for _ in range(10))  # chunked: no length
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/login", content=pieces, headers=kind).status_code == 413
    assert client.post("/login", content=b"", headers={"content-length": "-1"}).status_code == 413


def test_a_body_that_does_not_arrive_is_not_waited_for_and_a_client_that_goes_away_is_not_a_fault(unreachable, monkeypatch):
    for path in ("/login", "/api/search"):
        sent = answer_to(unreachable, path, {"type": "http.disconnect"})
        assert (sent[0]["status"], sent[1]["body"]) == (499, b"")
    monkeypatch.setattr(limits, "BODY_WITHIN", 0.2)
    sent = answer_to(unreachable, "/login")
    assert (sent[0]["status"], b"took too long" in sent[1]["body"]) == (408, True)


def answer_to(connection, path, *following):
    """What is sent to a client that has begun to send a body: nothing more of it follows."""
    app, sent = application.create(connection, ServeOptions(token=TOKEN)), []
    messages = iter([{"type": "http.request", "body": b"token=", "more_body": True}, *following])

    async def receive():
        return next(messages, None) or await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    headers = {"host": "127.0.0.1", "origin": "http://127.0.0.1", "authorization": f"Bearer {TOKEN}"}
    headers |= {"content-type": "application/x-www-form-urlencoded"}
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "scheme": "http", "root_path": ""}
    scope |= {"client": ("127.0.0.1", 9), "server": ("127.0.0.1", 8321)}
    scope |= {"headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 30))
    return sent


def test_a_request_has_a_time_limit(unreachable, monkeypatch):
    monkeypatch.setattr(limits, "ANSWER_WITHIN", 0.2)
    client, ended = client_of(unreachable), threading.Event()
    monkeypatch.setattr(client.app.state.workspace, "check_reranker", lambda _: ended.wait(30))
    answer = client.get("/api/search?q=x")
    ended.set()
    assert (answer.status_code, answer.json()["error"]) == (504, "The answer took more than 0.2 seconds.")
    assert answer.headers["x-frame-options"] == "DENY"
    monkeypatch.setattr(limits, "ANSWER_WITHIN", 30)
    assert client.get("/login").status_code == 200


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"host": host}, "no token protects them") for host in ("0.0.0.0", "example.org")),
        *(({option: ("127.0.0.1",)}, "no token protects them") for option in ("names", "proxies")),
        ({"proxies": ("proxy.example",), "token": TOKEN}, "is not an IP address"),
        ({"token": "short"}, "fewer than 16"),
        *(
            ({"names": (name,), "token": TOKEN}, f"{name}.* is not the name of a host")
            for name in ("example.com:8443", "2001:db8::1", "bücher.example")
        ),
        ({"host": "0.0.0.0", "token": TOKEN}, "Browsers cannot open the address"),
    ],
)
def test_a_server_that_would_be_open_to_others_does_not_start(options, said):
    with pytest.raises(UsageError, match=said):
        ServeOptions(**options)


def test_the_names_that_are_served():
    assert ServeOptions().hosts == {"127.0.0.1", "localhost", "[::1]"}
    assert ServeOptions(host="0.0.0.0", token=TOKEN, names=("Pages.example",)).hosts == {"pages.example"}
    assert ServeOptions(host="fd00::1", token=TOKEN).hosts == {"[fd00::1]"}
    assert "[2001:db8::1]" in ServeOptions(token=TOKEN, names=("[2001:DB8::1]", "my_host-2.local")).hosts


def test_errors_are_two_sentences_as_a_page_and_as_json(unreachable):
    client = client_of(unreachable)
    answer = client.get("/api/indices")
    error = {"schema": "termweave.error/1", "error": "No OpenSearch answers at http://127.0.0.1:9."}
    assert (answer.status_code, answer.json()) == (503, {**error, "hint": answer.json()["hint"]})
    page = client.get("/search?q=x")
    assert (page.status_code, "No OpenSearch answers" in page.text) == (503, True)
    others = client.get("/api/search?q=x&nothing=1"), client.post("/search"), client.get("/nothing")
    assert [each.status_code for each in others] == [400, 405, 404]
    # A redirect to the path without the slash would name the host.
    redirected = client.get("/search/", headers={"host": "127.0.0.1:9"})
    assert (redirected.status_code, "127.0.0.1:9" in str(redirected.headers)) == (404, False)
    many = client.post("/judge/undo", data={f"field{number}": "" for number in range(1_001)})
    assert (many.status_code, "Maximum number of fields is 1000. <" in many.text) == (400, True)


FOREIGN, OWN = (403, "another site"), (303, "")


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        *(({"origin": each}, *FOREIGN) for each in ("null", "", "http://127.0.0.1:9999", "http://127.0.0.1", "http://[")),
        *(({"origin": f"{each}127.0.0.1:8321"}, *FOREIGN) for each in ("http://evil.example@", "ftp://")),
        *(({"origin": each}, *FOREIGN) for each in ("http://evil.example", f"{URL}.evil.example")),
        *(({"sec-fetch-site": each}, *FOREIGN) for each in ("", "anything", "cross-site")),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, *FOREIGN),
        ({"sec-fetch-site": "same-site", "origin": URL}, *FOREIGN),
        ({"referer": f"{URL}/login"}, 403, "which page sent it"),  # browsers before 2020 sent some forms so
        # To a browser, a page whose name was pointed at this machine (DNS rebinding) sends its requests to its own site.
        ({"sec-fetch-site": "same-origin", "origin": "http://evil.example", "host": "evil.example"}, 400, "does not know"),
        ({"sec-fetch-site": "same-origin", "origin": URL}, *OWN),  # today's browsers
        ({"sec-fetch-site": "none", "origin": URL}, *OWN),  # a form that is sent again by its reader
        ({"sec-fetch-site": "same-origin"}, *OWN),
        ({"sec-fetch-site": "same-origin", "origin": "https://pages.example"}, *OWN),  # a proxy that passes its own Host on
        ({"origin": URL}, *OWN),  # browsers before 2023, and others over plain http
        ({"origin": URL.upper()}, *OWN),
        ({"origin": "https://127.0.0.1:8321"}, *OWN),  # a proxy with TLS
    ],
)
def test_only_a_form_of_the_own_pages_is_taken(unreachable, headers, status, said):
    client = client_of(unreachable, token=TOKEN)
    del client.headers["origin"]
    answer = client.post("/login", data={"token": TOKEN}, headers=headers)
    assert (answer.status_code, said in answer.text) == (status, True)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_here_and_do_nothing_else(unreachable, site):
    """A script of theirs could not read the answer, but measure how long it takes, or make this machine search all day."""
    client = client_of(unreachable)
    for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("no-cors", "script"), ("navigate", "iframe")):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        assert client.get("/api/search?q=x", headers=headers).status_code == 403
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/login", headers=headers).status_code == 200
    assert client.post("/login", headers=headers).status_code == 403
