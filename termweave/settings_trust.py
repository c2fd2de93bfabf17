"""Find the place (flag, environment, file) that decides each setting, so that credentials go only to the server they were given for.

Flags, environment and the user's own file are trusted. The file in the working folder is not, because it may belong to a repository of
somebody else: docs/connecting.md says which settings count for which server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from termweave.support.messages import without_password

#: Ways to give the same secret. The place that comes first decides, whichever of them it uses.
PASSWORDS = ("password", "password_file", "password_command")
#: Settings that prove who the user is. They are sent only to the address that they were given for.
CREDENTIALS = ("user", *PASSWORDS, "client_cert", "client_key", "client_key_password", "aws_sigv4")
#: Settings that belong to one server: in a file that names an address they count for that address.
OF_A_SERVER = (*CREDENTIALS, "ca_certs", "insecure")
#: Settings that the working folder's file never decides, and what the file could do with them.
_NEVER_FROM_WORKING_FOLDER = {
    "insecure": "turn off the check of the server's certificate",
    "aws_sigv4": "have requests signed with your AWS credentials",
    "password_file": "have a file of yours sent to a server",
    "password_command": "have a command run",
}


@dataclass(frozen=True)
class Ignored:
    """A setting that is given but not used, because it belongs to another server, or because its place may not decide it.

    Attributes:
        name: Name of the setting.
        origin: Place that gives the setting.
        sentence: A sentence that says which setting is not used, why, and what to do.
    """

    name: str
    origin: str
    sentence: str


@dataclass(frozen=True)
class SettingsPlace:
    """A place where settings are given.

    Attributes:
        name: Name of the place: "flag", "environment", "$OPENSEARCH_URL", or the path of a file.
        values: Setting -> value as written, for the settings that the place gives.
        is_file: Whether the place is a file. A file's settings of a server count only for the address that the file names.
        is_working_folder: Whether the place is the working folder's file, which may belong to a repository of somebody else.
    """

    name: str
    values: Mapping[str, Any]
    is_file: bool = False
    is_working_folder: bool = False

    def label(self, setting: str, *, sentence: bool = False) -> str:
        """Name of the place as users know it: "flag" (``--user`` in a sentence), ``$TERMWEAVE_USER``, a path."""
        if self.name == "environment":
            return variable(setting)
        return flag(setting) if sentence and self.name == "flag" else self.name


def winners(places: Sequence[SettingsPlace], names: Iterable[str]) -> tuple[dict[str, SettingsPlace], tuple[Ignored, ...]]:
    """Find the place that decides each setting.

    Args:
        places: Where settings are given, the most important place first.
        names: The names of all settings.

    Returns:
        Name of each given setting -> the place that decides it; and the given values that are not used.
    """
    source = next((place for place in places if "url" in place.values), None)
    url = None if source is None else source.values["url"]
    # An address that the user names somewhere else, too, is the user's.
    only = source is not None and all(place.is_working_folder for place in places if place.values.get("url") == url)
    file = source.name if source is not None and only else ""
    deciding: dict[str, SettingsPlace] = {}
    ignored = []
    for name in names:
        for place in places:
            if name not in place.values:
                continue
            reason = _refusal(name, place, url, file) if name in OF_A_SERVER else None
            if reason is None:
                deciding[name] = place
                break
            if place.values[name]:  # `insecure = false` asks for nothing
                ignored.append(Ignored(name, place.label(name), f"{name} from {place.label(name, sentence=True)} {reason}"))
    first = min((places.index(deciding[name]) for name in PASSWORDS if name in deciding), default=None)
    for name in PASSWORDS:
        if name in deciding and places.index(deciding[name]) != first:
            del deciding[name]  # another place, which comes first, gives the password in another way
    return deciding, tuple(ignored)


def _refusal(name: str, place: SettingsPlace, url: Any, working_folders_file: str) -> str | None:
    """Say why a setting from a place does not count for the server in use, and what to do; None: the setting counts.

    Args:
        name: Name of the setting.
        place: Place that gives the setting.
        url: Address of the server; None: the embedded node.
        working_folders_file: Path of the working folder's file if only that file names the address; "" otherwise.
    """
    address = "the embedded node" if url is None else without_password(str(url))
    here = f"the address in use is {address}. If you want it there, use {variable(name)}."
    if place.is_working_folder and name in _NEVER_FROM_WORKING_FOLDER:
        threat = _NEVER_FROM_WORKING_FOLDER[name]
        return f"is not used: a file in the working folder may not {threat}. If you want that, use {variable(name)}."
    if place.is_working_folder and not working_folders_file:
        others = "a file in the working folder counts only for an address that nothing else names"
        return f"is not used: {others}, and {here}"
    url_of_file = place.values.get("url") if place.is_file else None
    if url_of_file is not None and url_of_file != url:
        return f"is not used: the file gives it for {without_password(str(url_of_file))}, and {here}"
    if working_folders_file and not place.is_working_folder and name in CREDENTIALS:
        trust = "If you trust that server, name it yourself with --url or $TERMWEAVE_URL."
        return f"is not sent to {address}: only {working_folders_file}, a file in the working folder, names that address. {trust}"
    return None


def each_address(url: str) -> list[str]:
    """Split a value of the setting `url` into its addresses. A comma within a user name or a password is written ``%2C``.

    Example:
        >>> each_address("http://one:9200, http://two:9200")
        ['http://one:9200', 'http://two:9200']
    """
    return [part.strip() for part in url.split(",")]


def variable(name: str) -> str:
    """Name of a setting's environment variable, with a dollar sign: ``$TERMWEAVE_USER``."""
    return f"$TERMWEAVE_{name.upper()}"


def flag(name: str) -> str:
    """Name of a setting's flag: ``--ca-certs``."""
    return f"--{name.replace('_', '-')}"
