"""Forms that pages of other sites send, scripts and pictures that they load: the browser says so, and nothing is done."""

import re

import pytest

from termweave.ui.rendering import FOLDER
from tests.ui.conftest import URL, client_of

TOKEN = "a-token-of-more-than-16-characters"


def sign_in(connection, headers):
    """The answer to a form with the right token and only these headers of a browser."""
    client = client_of(connection, token=TOKEN)
    del client.headers["origin"]
    return client.post("/login", data={"token": TOKEN}, headers=headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://["},
        {"origin": "http://evil.example@127.0.0.1:8321"},
        {"origin": f"{URL}.evil.example"},
        {"origin": "ftp://127.0.0.1:8321"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "same-site", "origin": URL},
        {"sec-fetch-site": ""},
        {"sec-fetch-site": "anything"},
    ],
)
def test_a_form_from_another_site_is_refused(unreachable, headers):
    answer = sign_in(unreachable, headers)
    assert (answer.status_code, "another site" in answer.text) == (403, True)


def test_another_name_is_refused_whatever_a_browser_says_of_the_page(unreachable):
    """To a browser, a page whose name was pointed at this machine (DNS rebinding) sends its requests to its own site."""
    headers = {"sec-fetch-site": "same-origin", "origin": "http://evil.example", "host": "evil.example"}
    assert sign_in(unreachable, headers).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin", "origin": URL},  # today's browsers
        {"sec-fetch-site": "none", "origin": URL},  # a form that is sent again by its reader
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "same-origin", "origin": "https://pages.example"},  # through a proxy that passes its own Host on
        {"origin": URL},  # browsers before 2023, and others over plain http
        {"origin": URL.upper()},
        {"origin": "https://127.0.0.1:8321"},  # a proxy with TLS
    ],
)
def test_a_form_of_the_own_pages_is_taken(unreachable, headers):
    assert sign_in(unreachable, headers).status_code == 303


def test_a_form_that_does_not_say_where_it_comes_from_is_refused(unreachable):
    """Browsers before 2020 sent some forms so."""
    answer = sign_in(unreachable, {"referer": f"{URL}/login"})
    assert (answer.status_code, "which page sent it" in answer.text) == (403, True)


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


def test_nothing_is_changed_by_a_link(unreachable):
    """Links of other sites are followed, so whatever changes something must be a form."""
    routes = client_of(unreachable).app._app.routes
    posted = {route.path for route in routes if "POST" in (getattr(route, "methods", None) or ())}
    changing = {path for path in posted if not path.startswith("/api/")}  # those of the API only ask, as a link does
    assert not [route.path for route in routes if route.path in changing - {"/login"} and "GET" in route.methods]
    for template in (FOLDER / "html").glob("*.html"):
        for action in re.findall(r'method="post" action="([^"{]*)', template.read_text(encoding="utf-8")):
            assert any(path.startswith(action) for path in changing), (template, action)
