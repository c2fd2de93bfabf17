"""Commands that install an extra or the package of a model: from a package index, the clone that termweave came from, or into docker's image."""

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
    """Import a module of an extra; `subject` is the sentence without its end, that the module "is not installed".

    Raises:
        UsageError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"{subject} is not installed.", f"Run `{install(extra)}`.") from error


def install(extra: str) -> str:
    """The command that installs an extra.

    An installation from a folder knows that folder (PEP 610, ``direct_url.json``); no package index may have this version then. A
    container ends, and what is installed in it ends, too: there the image is built again.
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
    """The command that builds the image with more in it, for a clone's root. It ends in no point: sentences do."""
    return f"docker build . -f docker/Dockerfile -t termweave --build-arg {argument}={value}"


@cache
def _folder() -> str:
    """The folder that termweave was installed from; "" if it came from a package index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - slow, and needed for advice only

    try:
        origin_file = distribution("termweave").read_text("direct_url.json")
        origin = json.loads(origin_file) if origin_file else {}
    except (PackageNotFoundError, ValueError):
        return ""
    address = urlsplit(str(origin.get("url", "")))
    return unquote(address.path) if "dir_info" in origin and address.scheme == "file" else ""
