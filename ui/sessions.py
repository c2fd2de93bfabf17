"""Sessions: a signed cookie that says who has given the token, and the CSRF token that every form carries.

Nothing is stored: a cookie is the time at which the session began and a random number, with a signature, and its CSRF token is another
signature of the same text. A session ends after `LIFE`. The key lives as long as the process, so a restart signs everybody out.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.datastructures import FormData, MutableHeaders
    from starlette.requests import Request

    from termweave.ui.serve_options import ServeOptions

COOKIE = "termweave-session"
#: Seconds that a session lives: a working day.
LIFE = 12 * 3600
#: Name of the hidden field of every form.
FIELD = "csrf"
_BEARER = "Bearer "


class Sessions:
    """Make and check sessions."""

    def __init__(self, options: ServeOptions) -> None:
        self._token = options.token
        self._key = secrets.token_bytes(32)

    def known(self, request: Request) -> bool:
        """Whether the client has given the token: in this request, or before with the form."""
        if self._token is None:
            return True
        header = request.headers.get("authorization", "")
        if header.startswith(_BEARER):
            return self.is_token(header.removeprefix(_BEARER).strip())
        return self._number(request, "in") is not None

    def is_token(self, text: str) -> bool:
        """Whether a text is the token of this server."""
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())

    def sign_in(self, request: Request) -> None:
        """Give the client of this request a new session that has given the token."""
        request.state.session = f"in.{_new()}"

    def csrf(self, request: Request) -> str:
        """The CSRF token of the session of a request, for its forms; the session begins now if there is none."""
        number = self._current(request)
        if number is None:
            number = _new()
            request.state.session = f"out.{number}"
        return self._sign("csrf", number)

    def is_own_form(self, request: Request, form: FormData) -> bool:
        """Whether a form carries the CSRF token of its session."""
        number, sent = self._current(request), form.get(FIELD)
        return (
            number is not None
            and isinstance(sent, str)
            and hmac.compare_digest(sent.encode(), self._sign("csrf", number).encode())
        )

    def remember(self, request: Request, headers: MutableHeaders) -> None:
        """Send the cookie of a session that began with this request."""
        if session := getattr(request.state, "session", None):
            kind, _, number = session.partition(".")
            secure = "; Secure" if request.scope["scheme"] == "https" else ""
            value = f"{kind}.{number}.{self._sign(kind, number)}"
            headers.append("set-cookie", f"{COOKIE}={value}; Path=/; Max-Age={LIFE}; HttpOnly; SameSite=Strict{secure}")

    def _current(self, request: Request) -> str | None:
        """The number of the session, of a client with or without the token."""
        if session := getattr(request.state, "session", None):
            return str(session).partition(".")[2]
        return self._number(request, "in") or self._number(request, "out")

    def _number(self, request: Request, kind: str) -> str | None:
        """The time and number in the cookie, if it has a signature of this kind and the session has not ended."""
        given, _, rest = request.cookies.get(COOKIE, "").partition(".")
        number, _, signature = rest.partition(".")
        signed = given == kind and hmac.compare_digest(signature.encode(), self._sign(kind, number).encode())
        return number if signed and time.time() - int(number.partition("-")[0]) < LIFE else None

    def _sign(self, kind: str, number: str) -> str:
        return hmac.digest(self._key, f"{kind}.{number}".encode(), "sha256").hex()


def _new() -> str:
    """The time now and a number that nobody can guess."""
    return f"{int(time.time())}-{secrets.token_hex(16)}"
