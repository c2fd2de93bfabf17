"""Programs that a few tests need beside what `make test` installs; `make programs` installs them where apt-get may."""

import os
import shutil

import pytest

from termweave.engine.pytest_plugin import docker_missing


def program(*names):
    """The path of the first of these programs that is installed; without any the test is skipped."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"))
    for name in names:
        if place := shutil.which(name, path=path):
            return place
    return pytest.skip(f"{names[0]} is not installed (make programs)")


def require_docker():
    """Skip the test where no Docker engine answers, or fail if one was promised."""
    if missing := docker_missing():
        (pytest.fail if os.environ.get("TERMWEAVE_REQUIRE_ENGINE") == "container" else pytest.skip)(missing)
