"""Cross-site request forgery: refuse requests that a page of another site makes a browser send.

A browser states in headers which page sent a request, and no script can change these headers. `Sec-Fetch-Site` comes with every request to https and to
this machine (Chrome 76, Edge 79, Firefox 90, Safari 16.4), `Origin` with every form to any address (Chrome and Safari for ten years,
Firefox 70). `Sec-Fetch-Site` decides where it is present; else `Origin` is compared with `Host`, which a proxy may have replaced.
Forms carry no token, as in datasette 1.0 and in Go 1.25 (`http.CrossOriginProtection`; https://words.filippo.io/csrf). Unlike
in both, a form without either header is refused: an older browser may have sent it. A JSON body needs neither header: no form sends JSON, and
a script of another site would first have to ask for permission (a CORS preflight), which is not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def forgery(request: Request) -> tuple[str, str]:
    """The reason why a request may be forged, and a hint what to do; two empty texts: the request is accepted.

    Links from other sites are accepted. Requests by their scripts, pictures or frames are refused: they could only spy on answers or cause load.
    """
    headers, safe = request.headers, request.method in SAFE
    site, origin, host = headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host", "").lower()
    link = safe and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    foreign = site not in {None, "same-origin", "none"} and not link
    if not safe and site is None and origin is not None:
        foreign = origin.lower() not in {f"http://{host}", f"https://{host}"}
    if foreign:
        hint = "Open the page on this server. A proxy before it must pass the header Host on."
        return "The request came from a page of another site.", hint
    json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    if not safe and site is None and origin is None and not json:
        hint = "Use a newer browser; a program sends the header Origin, or JSON with 'Content-Type: application/json'."
        return "The request does not say which page sent it.", hint
    return "", ""
