"""Addresses that can be shared: everything that a page shows is in its query string."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.responses import RedirectResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.datastructures import QueryParams
    from starlette.responses import Response

#: A path on this server, in ASCII as browsers send it, that fits into another address. After "//" and "/\\" browsers read the name of a host.
_LOCAL = re.compile(r"/(?![/\\])[!-~]{0,8000}")


class PageAddress:
    """The address of a page, from which links to its neighbours are made.

    Args:
        path: The path.
        given: The query string of the request.

    Attributes:
        pairs: The parameters that have a value.
    """

    def __init__(self, path: str, given: QueryParams) -> None:
        self._path = path
        self.pairs = [(name, value) for name, value in given.multi_items() if value.strip()]

    def having(self, **changes: object) -> str:
        """The address with some parameters replaced; None removes one. A trailing underscore is left out: ``from_``."""
        names = {name.rstrip("_"): value for name, value in changes.items()}
        pairs = [pair for pair in self.pairs if pair[0] not in names]
        return self._with([*pairs, *((name, str(value)) for name, value in names.items() if value is not None)])

    def adding(self, name: str, value: str) -> str:
        """The address with one more value of a parameter, and from the first page on."""
        pairs = [pair for pair in self.pairs if pair[0] != "from" and pair != (name, value)]
        return self._with([*pairs, (name, value)])

    def without(self, name: str, value: str) -> str:
        """The address without one value of a parameter, and from the first page on."""
        return self._with([pair for pair in self.pairs if pair != (name, value) and pair[0] != "from"])

    def at(self, path: str, names: frozenset[str]) -> str:
        """Another path with those of the parameters that it knows."""
        return page_address(path, [pair for pair in self.pairs if pair[0] in names])

    def _with(self, pairs: Sequence[tuple[str, str]]) -> str:
        return page_address(self._path, pairs)


def page_address(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A path with a query string."""
    return f"{path}?{urlencode(pairs)}" if pairs else path


def local_path(text: str) -> str:
    """A text that is a path on this server, perhaps with a query string; "" for another one, which may lead elsewhere."""
    return text if _LOCAL.fullmatch(text) else ""


def see_other(path: str, **given: object) -> Response:
    """Send the browser to a page with these parameters, as the answer to a form does."""
    pairs = [(name, str(value)) for name, value in given.items()]
    return RedirectResponse(page_address(path, pairs), status_code=HTTPStatus.SEE_OTHER)
