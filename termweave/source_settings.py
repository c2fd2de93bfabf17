"""The settings of the server that a source index lies on, where it is not the server that is written to.

Credentials are sent only to the address that they were given for. Those of the target (``--user``, ``$TERMWEAVE_USER``) count for a
source only if its server has the same address. For another server they are given by ``$TERMWEAVE_SOURCE_USER`` and so on, in the
address itself, or in the user's own file if that names this address.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from termweave.errors import UsageError
from termweave.settings import Settings, users_file
from termweave.settings_trust import OF_A_SERVER, PASSWORDS, each_address, variable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: A flag or a variable that a hint about connecting to a server names. A source has variables only.
_NAMED = re.compile(rf"(?: \(or --user .*?\))|(?:--|\$TERMWEAVE_)({'|'.join(OF_A_SERVER)}|ca-certs)\b", re.IGNORECASE)


def hint_of(hint: str) -> str:
    """A hint about connecting to a server, with the variables of a source in place of the target's flags and variables.

    Example:
        >>> hint_of("Set $TERMWEAVE_USER (or --user NAME --password -), and give its authority as --ca-certs.")
        'Set $TERMWEAVE_SOURCE_USER, and give its authority as $TERMWEAVE_SOURCE_CA_CERTS.'
    """
    return _NAMED.sub(lambda match: variable(f"source_{match[1].replace('-', '_')}") if match[1] else "", hint)


def load(url: str | None, target: Settings) -> Settings:
    """The settings for the server of a source.

    Args:
        url: Its address; None: the server of `target`.
        target: The settings of the server that is written to.

    Raises:
        UsageError: A setting has an impossible value.
    """
    own, origins = _settings_of_address(url)
    same = url is None or (target.url is not None and _same_server(url, target.url))
    if same and not own:
        return target
    if url is None:
        raise UsageError(
            "Credentials of the source are given, but the source is on the server that is written to.",
            "Name its server (https://HOST:9200/INDEX), or remove $TERMWEAVE_SOURCE_USER and the like.",
        )
    values = {name: own.get(name, Settings.model_fields[name].default) for name in OF_A_SERVER}
    try:
        settings = Settings(**values, url=url, timeout=target.timeout, compress=target.compress)
    except ValidationError as error:
        wrong = "; ".join(f"{each['loc'][0]}, from {origins.get(str(each['loc'][0]))}: {each['msg']}" for each in error.errors())
        raise UsageError(f"A setting of the source cannot be used: {wrong}.", "Correct it there, or remove it.") from None
    settings.remember({**origins, "url": "SOURCE"}, ())
    return settings


def _settings_of_address(url: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings that count for an address, and where each comes from. The first place that gives a password decides about it."""
    path, file = users_file()
    of_file = file if url is not None and _same_server(url, str(file.get("url", ""))) else {}
    places: tuple[tuple[Mapping[str, Any], Callable[[str], str]], ...] = (
        (
            {name: os.environ.get(f"TERMWEAVE_SOURCE_{name.upper()}") or None for name in OF_A_SERVER},
            lambda name: variable(f"source_{name}"),
        ),
        ({name: of_file.get(name) for name in OF_A_SERVER}, lambda _: str(path)),
    )
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for given, label in places:
        decided = any(name in values for name in PASSWORDS)
        for name, value in given.items():
            if value is None or name in values or (decided and name in PASSWORDS):
                continue
            values[name], origins[name] = value, label(name)
    return values, origins


def _same_server(url: str, other: str) -> bool:
    """Whether all addresses of the first are among those of the second: credentials go to no other."""
    return {_server(each) for each in each_address(url)} <= {_server(each) for each in each_address(other)}


def _server(url: str) -> tuple[str, str, str]:
    """What distinguishes two servers: scheme, host with port, and path; not the user. Whoever connects refuses an address that is none."""
    try:
        parts = urlsplit(url.rstrip("/"))
    except ValueError:
        return url, "", ""
    return parts.scheme, parts.netloc.rpartition("@")[2], parts.path
