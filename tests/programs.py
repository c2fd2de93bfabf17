"""Programs that a few tests need beside what `make test` installs; `make programs` installs them where apt-get may."""

from __future__ import annotations

import os
import shutil

import pytest


def program(*names):
    """The path of the first of these programs that is installed; without any the test is skipped."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"))
    for name in names:
        if place := shutil.which(name, path=path):
            return place
    return pytest.skip(f"{names[0]} is not installed (make programs)")
