"""Read the current settings: from flags, then from ``TERMWEAVE_*`` variables, then from ``termweave.toml``; the rest are defaults.

No other module reads settings from the environment or from a file. `settings_trust` decides which settings count for which server.
pydantic takes a while to import, so commands import this module when they run, never before.

A source index, from which documents are read, may lie on another server than the target, the index that is written. Credentials are sent only
to the address for which they were given: credentials of the target (``--user``, ``$TERMWEAVE_USER``) count for a source only if its server has the
same address. Credentials for another server come from ``$TERMWEAVE_SOURCE_USER`` and so on, from the address, or from a user's file that names it.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from termweave.errors import UsageError
from termweave.settings_trust import OF_A_SERVER, PASSWORDS, Ignored, SettingsPlace, each_address, flag, variable, winners
from termweave.support import paths

FILE_NAME = "termweave.toml"

#: The value of --password that means: ask for it on the terminal.
ASK = "-"
#: Settings that only their owner should be able to read.
_SECRET = ("password", "client_key_password")
#: Permission bits of people other than the owner.
_OTHERS = 0o077
#: Variables that are not settings: of `engine.embedded.artifacts`, `encoders.backbones`, `engine.pytest_plugin` and `support.extras`.
_OTHER_VARIABLES = ("opensearch_archives", "backbone_archives", "require_engine", "image_extras")
#: A flag or a variable that a hint about connecting to a server names. A source has variables only.
_NAMED = re.compile(rf"(?: \(or --user .*?\))|(?:--|\$TERMWEAVE_)({'|'.join(OF_A_SERVER)}|ca-certs)\b", re.IGNORECASE)


class Settings(BaseModel):
    """Every setting that outlives one command. Field descriptions are the documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = Field(
        None,
        description="Address of the OpenSearch server, or of several nodes of its cluster with commas between; "
        "$OPENSEARCH_URL is read, too; default: the running embedded node",
    )
    user: str | None = Field(None, description="User name for basic authentication")
    password: SecretStr | None = Field(None, description="Password for basic authentication")
    password_file: Path | None = Field(None, description="File that holds the password")
    password_command: str | None = Field(None, description="Command that prints the password, of a keyring for example")
    ca_certs: Path | None = Field(None, description="Certificate authorities to trust (PEM)")
    client_cert: Path | None = Field(None, description="Client certificate (PEM)")
    client_key: Path | None = Field(None, description="Key of the client certificate (PEM)")
    client_key_password: SecretStr | None = Field(None, description="Password of the client certificate's key")
    insecure: bool = Field(default=False, description="Do not verify the server's certificate")
    aws_sigv4: str | None = Field(None, description="Sign requests for this AWS region (needs the extra 'aws')")
    timeout: float = Field(60.0, gt=0, le=86_400, description="Seconds to wait for one answer of the engine")
    compress: bool = Field(
        default=False, description="Send requests as gzip: it helps on a slow network, not with a server nearby"
    )
    weights: str | None = Field(None, description="Weights model: a folder, an installed package, a name in the models folder")
    dense: str | None = Field(None, description="Dense model: a folder, an installed package, a name in the models folder")

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _ignored: tuple[Ignored, ...] = PrivateAttr(())

    def remember(self, origins: Mapping[str, str], ignored: tuple[Ignored, ...]) -> None:
        """Store the place that each value comes from, and the given values that are not used."""
        self._origins, self._ignored = dict(origins), ignored

    def origin(self, name: str) -> str:
        """The place that a setting's value comes from: ``"default"``, an environment variable, a file, or ``"flag"``."""
        return self._origins.get(name, "default")

    def place(self, name: str) -> str:
        """The place that a setting's value comes from, as a sentence names it: ``--ca-certs``, ``$TERMWEAVE_CA_CERTS``, a path."""
        place = self.origin(name)
        return flag(name) if place == "flag" else place

    @property
    def ignored(self) -> tuple[Ignored, ...]:
        """The settings that are given and not used."""
        return self._ignored


def load(**flags: Any) -> Settings:
    """Read the current settings.

    Logs a warning for a setting that is not used because it belongs to another server, and for a secret that others can read.

    Args:
        **flags: Options of the command line; None means that an option was not given.

    Raises:
        UsageError: A setting does not exist or has an impossible value, or a file cannot be read. The message names the place.
    """
    flags = {name: value for name, value in flags.items() if value is not None}
    if unknown := flags.keys() - Settings.model_fields.keys():
        raise UsageError(f"There is no setting {min(unknown)!r}.", f"Settings: {', '.join(Settings.model_fields)}.")
    deciding, ignored = winners(_places(flags), Settings.model_fields)
    origins = {name: place.label(name) for name, place in deciding.items()}
    settings = _validated({name: place.values[name] for name, place in deciding.items()}, origins)
    settings.remember(origins, ignored)
    for sentence in (*(each.sentence for each in ignored), *_exposed_secrets(deciding), *_unknown_variables()):
        logging.getLogger(__name__).warning("Warning: %s", sentence)
    return settings


def _unknown_variables() -> list[str]:
    """A sentence for each ``TERMWEAVE_*`` variable in the environment that no part of termweave reads; probably its name is misspelt."""
    of_source = [f"source_{name}" for name in OF_A_SERVER]
    variables = [variable(name)[1:] for name in (*Settings.model_fields, *of_source, *_OTHER_VARIABLES)]
    sentences = []
    for name in sorted(os.environ):
        if name.upper().startswith("TERMWEAVE_") and name.upper() not in variables:
            near = get_close_matches(name.upper(), variables, 1)
            sentences.append(f"${name} is not a setting and is not read." + (f" Did you mean ${near[0]}?" if near else ""))
    return sentences


def _exposed_secrets(deciding: Mapping[str, SettingsPlace]) -> list[str]:
    """A sentence for each file that gives a password in use and that other users of this machine can read."""
    places = {deciding[name].name for name in _SECRET if name in deciding and deciding[name].is_file}
    readable = [file for file in sorted(places) if os.name == "posix" and Path(file).stat().st_mode & _OTHERS]
    return [f"{file} holds a password, and other users of this machine can read it. Run: chmod 600 {file}" for file in readable]


def _validated(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    """Make settings of values. A message about a wrong value names the place that gives the value, and shows no secret.

    Raises:
        UsageError: A setting has an impossible value.
    """
    try:
        return Settings(**values)
    except ValidationError as error:
        sentences = []
        for each in error.errors():
            name, reason = str(each["loc"][0]), each["msg"]
            where = flag(name) if origins[name] == "flag" else f"{name}, from {origins[name]},"
            shown = "what it is" if name in _SECRET else repr(each["input"])
            sentences.append(f"{where} cannot be {shown}: {reason[:1].lower()}{reason[1:]}")
        raise UsageError(f"{'; '.join(sentences)}.", "Correct the value there, or remove it.") from None


def _places(flags: Mapping[str, Any]) -> list[SettingsPlace]:
    """Every place where settings are given, the most important one first."""
    # Variables may be written in upper or lower case, and empty ones do not count.
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    environment = {name: variables[key] for name in Settings.model_fields if (key := variable(name)[1:]) in variables}
    users_file = paths.config() / FILE_NAME
    files = [
        SettingsPlace(str(file), _read_file(file), is_file=True, is_working_folder=file.resolve() != users_file.resolve())
        for file in dict.fromkeys((Path.cwd() / FILE_NAME, users_file))  # the most important one first
        if os.path.lexists(file)
    ]
    last = {"url": os.environ["OPENSEARCH_URL"]} if os.environ.get("OPENSEARCH_URL") else {}
    typed = [SettingsPlace("flag", flags), SettingsPlace("environment", environment)]
    return [*typed, *files, SettingsPlace("$OPENSEARCH_URL", last)]


def _read_file(file: Path) -> dict[str, Any]:
    """The settings in a file.

    Raises:
        UsageError: The file cannot be read, is not TOML, or gives a setting that does not exist.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")  # editors may write a byte-order mark
        values = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.", "Correct the file, or move it away.") from None
    except tomllib.TOMLDecodeError as error:
        reason = str(error).replace("at end of document", f"at its end, line {len(text.splitlines())}")
        hint = "Correct that line; a setting is written like timeout = 30."
        raise UsageError(f"{file} is not valid TOML: {reason}.", hint) from None
    for unknown in (name for name in values if name not in Settings.model_fields):
        near = get_close_matches(unknown, Settings.model_fields, 1)
        hint = f"Is it {near[0]!r}? " if near else ""
        hint = f"{hint}Settings: {', '.join(Settings.model_fields)}."
        raise UsageError(f"{file} sets {unknown!r}, which is not a setting.", hint)
    return values


def hint_of_source(hint: str) -> str:
    """Rewrite a hint about connecting to a server: variables of a source replace the target's flags and variables.

    Example:
        >>> hint_of_source("Set $TERMWEAVE_USER (or --user NAME --password -), and give its authority as --ca-certs.")
        'Set $TERMWEAVE_SOURCE_USER, and give its authority as $TERMWEAVE_SOURCE_CA_CERTS.'
    """
    return _NAMED.sub(lambda match: variable(f"source_{match[1].replace('-', '_')}") if match[1] else "", hint)


def of_source(url: str | None, target: Settings) -> Settings:
    """The settings for the server of a source (an index that documents are read from).

    Args:
        url: Address of the source's server; None: the source is on the server of `target`.
        target: The settings of the server to which documents are written.

    Raises:
        UsageError: A setting has an impossible value.
    """
    values, origins = _settings_of_address(url)
    if not values and (url is None or (target.url is not None and _same_server(url, target.url))):
        return target
    if url is None:
        hint = "Name its server (https://HOST:9200/INDEX), or remove $TERMWEAVE_SOURCE_USER and the like."
        raise UsageError("Credentials of the source are given, but the source is on the server that is written to.", hint)
    common = {"url": url, "timeout": target.timeout, "compress": target.compress}
    settings = _validated({**values, **common}, {**origins, **dict.fromkeys(common, "SOURCE")})
    settings.remember({**origins, "url": "SOURCE"}, ())
    return settings


def _settings_of_address(url: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The source settings that count for an address, and the place of each. The first place that gives a password decides about it."""
    path = paths.config() / FILE_NAME
    file = _read_file(path) if os.path.lexists(path) else {}
    of_file = file if url is not None and _same_server(url, str(file.get("url", ""))) else {}
    variables = {name: value for name in OF_A_SERVER if (value := os.environ.get(f"TERMWEAVE_SOURCE_{name.upper()}"))}
    taken = PASSWORDS if any(name in variables for name in PASSWORDS) else ()
    others = {name: of_file[name] for name in OF_A_SERVER if name in of_file and name not in taken}
    origins = {name: variable(f"source_{name}") for name in variables}
    return {**others, **variables}, {**dict.fromkeys(others, str(path)), **origins}


def _same_server(url: str, other: str) -> bool:
    """Whether all addresses in `url` are also in `other`, so that credentials go to no other address."""
    return {_server(each) for each in each_address(url)} <= {_server(each) for each in each_address(other)}


def _server(url: str) -> tuple[str, str, str]:
    """Scheme, host with port, and path of an address, which tell servers apart. A malformed address is refused later, when connecting."""
    try:
        parts = urlsplit(url.rstrip("/"))
    except ValueError:
        return url, "", ""
    return parts.scheme, parts.netloc.rpartition("@")[2], parts.path
