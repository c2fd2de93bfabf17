"""What holds, and where from: flags, then ``TERMWEAVE_*``, then ``termweave.toml``, then defaults.

A setting is looked up nowhere else in the environment or in a file. pydantic-settings costs 300 ms at start-up, so verbs import this
module when they run, never before.
"""

from __future__ import annotations

import os
import tomllib
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr, TypeAdapter, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from termweave import places
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

FILE_NAME = "termweave.toml"


class Settings(BaseSettings):
    """Every setting that outlives one command. Field descriptions are the documentation."""

    model_config = SettingsConfigDict(env_prefix="TERMWEAVE_", env_ignore_empty=True, extra="forbid", frozen=True)

    url: str | None = Field(
        None, description="Address of the OpenSearch; $OPENSEARCH_URL counts too; none: the running embedded node"
    )
    user: str | None = Field(None, description="User name for basic authentication")
    password: SecretStr | None = Field(None, description="Password for basic authentication")
    ca_certs: Path | None = Field(None, description="Certificate authorities to trust (PEM)")
    client_cert: Path | None = Field(None, description="Client certificate (PEM)")
    client_key: Path | None = Field(None, description="Key of the client certificate (PEM)")
    insecure: bool = Field(default=False, description="Do not verify the server's certificate")
    aws_sigv4: str | None = Field(None, description="Sign requests for this AWS region (needs the extra 'aws')")
    timeout: float = Field(60.0, gt=0, le=86_400, description="Seconds to wait for one answer of the engine")
    weights: str | None = Field(None, description="Weights model: a folder, an installed package, a name in the models folder")
    dense: str | None = Field(None, description="Dense model, likewise")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, the working folder's file, the user's file."""
        del dotenv_settings, file_secret_settings
        return (init_settings, env_settings, *(TomlConfigSettingsSource(settings_cls, toml_file=file) for file in _files()))


def load(**flags: Any) -> Settings:
    """Settings as they hold now.

    Args:
        **flags: What the command line said; None means "not said".

    Raises:
        UsageError: A setting that does not exist or cannot be, or a file that cannot be read; where it stands is named.
    """
    said = {name: value for name, value in flags.items() if value is not None}
    if unknown := said.keys() - Settings.model_fields.keys():
        raise UsageError(f"There is no setting {min(unknown)!r}.", f"Known: {', '.join(Settings.model_fields)}.")
    for file in _files():
        _check_names(file)
    try:
        settings = Settings(**said)
    except ValidationError as error:
        wrong = "; ".join(_wrong(str(each["loc"][0]), each["input"], each["msg"], said) for each in error.errors())
        raise UsageError(f"{wrong}.", "Mend it there, or leave it out.") from None
    if settings.url is None and os.environ.get("OPENSEARCH_URL"):
        settings = settings.model_copy(update={"url": os.environ["OPENSEARCH_URL"]})
    return settings


def _wrong(name: str, value: object, reason: str, flags: Collection[str]) -> str:
    """What is wrong with a value, and where it stands; a password is not shown."""
    flag = [(f"--{name.replace('_', '-')}", value)] if name in flags else []
    place, _ = [*flag, *_outside(name), ("the environment", value)][0]
    shown = "what it is" if name == "password" else repr(value)
    return f"{name}, from {place}, cannot be {shown}: {reason[:1].lower()}{reason[1:]}"


def origin(name: str, value: object) -> str:
    """Where a setting's value comes from: ``"default"``, an environment variable, a file, or ``"flag"``."""
    variable = f"TERMWEAVE_{name.upper()}"
    if value == Settings.model_fields[name].default:
        return "default"
    if name == "url" and value == os.environ.get("OPENSEARCH_URL") and not os.environ.get(variable):
        return "$OPENSEARCH_URL"
    kind: Any = Settings.model_fields[name].annotation
    for place, known in _outside(name):
        with suppress(ValidationError):  # of a place that does not count: a flag won over it
            if TypeAdapter(kind).validate_python(known) == value:
                return place
    return "flag"


def _outside(name: str) -> list[tuple[str, object]]:
    """Where a setting is given but in flags, and as what: what wins comes first."""
    variable = f"TERMWEAVE_{name.upper()}"
    found: list[tuple[str, object]] = [(f"${variable}", os.environ[variable])] if os.environ.get(variable) else []
    return found + [(str(file), values[name]) for file in _files() if name in (values := _read(file))]


def _files() -> list[Path]:
    """The settings files there are, the one that wins first."""
    return [file for file in (Path.cwd() / FILE_NAME, places.config() / FILE_NAME) if os.path.lexists(file)]


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.", "Mend it, or move it away.") from None
    except tomllib.TOMLDecodeError as error:
        reason = str(error).replace("at end of document", f"at its end, line {len(text.splitlines())}")
        raise UsageError(f"{file} is no TOML: {reason}.", "Mend that line; a setting is written like timeout = 30.") from None


def _check_names(file: Path) -> None:
    if unknown := next((name for name in _read(file) if name not in Settings.model_fields), None):
        near = get_close_matches(unknown, Settings.model_fields, 1)
        hint = f"Is it {near[0]!r}? " if near else ""
        raise UsageError(
            f"{file} sets {unknown!r}, which is no setting.", f"{hint}There are: {', '.join(Settings.model_fields)}."
        )
