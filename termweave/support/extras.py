"""Make the commands that install an extra or a model's package: from a package index, from the clone of termweave, or into Docker's image."""

from __future__ import annotations

import json
import os
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from termweave.errors import UsageError

#: The image (`docker/Dockerfile`) says here which extras it has.
IMAGE = "TERMWEAVE_IMAGE_EXTRAS"


def needed(module: str, extra: str, subject: str) -> Any:
    """Import a module that an extra installs; `subject` is the beginning of the sentence that ends with "is not installed".

    Raises:
        UsageError: The module is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"{subject} is not installed.", f"Run `{install(extra)}`.") from error


def install(extra: str) -> str:
    """The command that installs an extra.

    An installation from a folder knows the folder (PEP 610, ``direct_url.json``), and the command names the folder, because a package index
    need not have this version. In a container the command builds the image again, because packages installed in a container end with it.
    """
    if present := os.environ.get(IMAGE):
        return _build("EXTRAS", f"{present},{extra}")
    folder = _folder()
    return f"pip install '{folder}[{extra}]'" if folder else f"pip install 'termweave[{extra}]'"


def install_model(name: str, package: str) -> str:
    """The command that installs the package of a model, from the folder ``models/NAME`` of a clone."""
    if os.environ.get(IMAGE):
        return _build("MODELS", name)
    folder = _folder()
    return f"pip install '{folder}/models/{name}'" if folder else f"pip install {package}"


def _build(argument: str, value: str) -> str:
    """The command that builds the Docker image with a build argument, run in a clone's root. No full stop ends it: sentences around it do."""
    return f"docker build . -f docker/Dockerfile -t termweave --build-arg {argument}={value}"


@cache
def _folder() -> str:
    """The folder that termweave was installed from; "": it was installed from a package index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - slow, and needed for advice only

    try:
        origin_file = distribution("termweave").read_text("direct_url.json")
        origin = json.loads(origin_file) if origin_file else {}
    except (PackageNotFoundError, ValueError):
        return ""
    address = urlsplit(str(origin.get("url", "")))
    return unquote(address.path) if "dir_info" in origin and address.scheme == "file" else ""
