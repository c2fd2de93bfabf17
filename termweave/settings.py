"""What holds, and where from: flags, then ``TERMWEAVE_*``, then ``termweave.toml``, then defaults.

`Settings` is the only place that reads the environment or a settings file. pydantic-settings costs 300 ms at
start-up, so verbs import this module when they run, never before.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from termweave import places
from termweave.errors import UsageError

FILE_NAME = "termweave.toml"


class Settings(BaseSettings):
    """Every setting that outlives one command. Field descriptions are the documentation."""

    model_config = SettingsConfigDict(env_prefix="TERMWEAVE_", extra="forbid", frozen=True)

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
    timeout: float = Field(60.0, gt=0, description="Seconds to wait for one answer of the engine")
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
        files = (Path.cwd() / FILE_NAME, places.config() / FILE_NAME)
        return (init_settings, env_settings, *(TomlConfigSettingsSource(settings_cls, toml_file=file) for file in files))


def load(**flags: Any) -> Settings:
    """Settings as they hold now.

    Args:
        **flags: What the command line said; None means "not said".

    Raises:
        UsageError: A setting that does not exist or cannot be; all of them in one message.
    """
    said = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**said)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors())
        raise UsageError(f"Settings are wrong: {wrong}.", f"They come from flags, TERMWEAVE_* and {FILE_NAME}.") from None
    except ValueError as error:  # TOML that does not parse
        raise UsageError(f"{FILE_NAME} cannot be read: {error}.", "Mend the line it names.") from None
    if settings.url is None and os.environ.get("OPENSEARCH_URL"):
        settings = settings.model_copy(update={"url": os.environ["OPENSEARCH_URL"]})
    return settings


def origin(name: str, value: object) -> str:
    """Where a setting's value comes from: ``"default"``, an environment variable, a file, or ``"flag"``."""
    variable = f"TERMWEAVE_{name.upper()}"
    if value == Settings.model_fields[name].default:
        return "default"
    if name == "url" and value == os.environ.get("OPENSEARCH_URL") and not os.environ.get(variable):
        return "$OPENSEARCH_URL"
    for place, known in _outside(name, variable):
        if str(known) == str(value.get_secret_value() if isinstance(value, SecretStr) else value):
            return place
    return "flag"


def _outside(name: str, variable: str) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = [(f"${variable}", os.environ[variable])] if variable in os.environ else []
    for file in (Path.cwd() / FILE_NAME, places.config() / FILE_NAME):
        if file.exists():
            values = tomllib.loads(file.read_text(encoding="utf-8"))
            found += [(str(file), values[name])] if name in values else []
    return found
