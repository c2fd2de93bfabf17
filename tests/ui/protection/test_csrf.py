"""Forms that pages of other sites send, scripts and pictures that they load: the browser says so, and nothing is done."""

import re

import pytest

from termweave.ui.rendering import FOLDER
from tests.ui.conftest import TOKEN, URL, client_of

FOREIGN, OWN = (403, "another site"), (303, "")


@pytest.mark.parametrize(
    ("headers", "status", "said"),
    [
        ({"origin": "http://evil.example"}, *FOREIGN),
        *(({"origin": each}, *FOREIGN) for each in ("null", "", "http://127.0.0.1:9999", "http://127.0.0.1", "http://[")),
        *(({"origin": f"{each}127.0.0.1:8321"}, *FOREIGN) for each in ("http://evil.example@", "ftp://")),
        ({"origin": f"{URL}.evil.example"}, *FOREIGN),
        ({"sec-fetch-site": "cross-site"}, *FOREIGN),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, *FOREIGN),
        ({"sec-fetch-site": "same-site", "origin": URL}, *FOREIGN),
        ({"sec-fetch-site": ""}, *FOREIGN),
        ({"sec-fetch-site": "anything"}, *FOREIGN),
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


def test_nothing_is_changed_by_a_link(unreachable):
    """Links of other sites are followed, so whatever changes something must be a form."""
    routes = client_of(unreachable).app._app.routes
    posted = {route.path for route in routes if "POST" in (getattr(route, "methods", None) or ())}
    changing = {path for path in posted if not path.startswith("/api/")}  # those of the API only ask, as a link does
    assert not [route.path for route in routes if route.path in changing - {"/login"} and "GET" in route.methods]
    for template in (FOLDER / "html").glob("*.html"):
        for action in re.findall(r'method="post" action="([^"{]*)', template.read_text(encoding="utf-8")):
            assert any(path.startswith(action) for path in changing), (template, action)
