"""Sessions: a signed cookie that says when the user of a browser gave the token.

The server stores no sessions. A session ends after `LIFE` seconds. The key of the signature lives as long as the process, so a restart signs
everybody out.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING

from termweave.ui.protection.limits import TRIES, TRIES_EACH_SECOND, RateLimit

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

#: Seconds that a session lives: a working day.
LIFE = 12 * 3600


class Sessions:
    """Make and check sessions.

    Args:
        token: The token of the server; None: no token is needed.

    Attributes:
        tries: Limit on the wrong tokens that a client may give, in a header and on the page together. The right token is never refused, so
            that nobody is locked out who shares an address with somebody who guesses.
    """

    def __init__(self, token: str | None) -> None:
        self.tries = RateLimit(TRIES, TRIES_EACH_SECOND)
        self._token = token
        self._key = secrets.token_bytes(32)

    def signed_in(self, request: Request) -> bool:
        """Whether the client has given the token, in a header of this request or earlier on the page `/login`."""
        if self._token is None:
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(token.strip())
        began, _, signature = request.cookies.get(_cookie(request), "").partition(".")
        signed = hmac.compare_digest(signature.encode(), self._signature(began).encode())
        return signed and time.time() - int(began) < LIFE

    def is_token(self, text: str) -> bool:
        """Whether a text is the token of this server; False if the server has no token."""
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())

    def begin(self, request: Request, answer: Response) -> None:
        """Begin a session for the client of a request, by a cookie in the answer."""
        began, secure = str(int(time.time())), request.scope["scheme"] == "https"
        value = f"{began}.{self._signature(began)}"
        # Not "strict": a browser would then not send it with a link of another site. Forms are guarded by `request_filter.forgery`, and a GET changes nothing.
        answer.set_cookie(_cookie(request), value, max_age=LIFE, httponly=True, samesite="lax", secure=secure)

    def _signature(self, began: str) -> str:
        return hmac.digest(self._key, began.encode(), "sha256").hex()


def _cookie(request: Request) -> str:
    """The name of the session cookie. The port is part of the name, because a browser sends a host's cookies to all ports of the host."""
    return f"termweave-session-{request.scope['server'][1]}"
