"""README's two commands on a machine that has what README names and nothing else: the only place where a missing install step shows."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from termweave.engine.embedded import java
from termweave.errors import TermweaveError
from tests.programs import require_docker

ROOT = Path(__file__).parents[2]
#: An ordinary user with a clone, without ../shared.
NEWCOMER = """
apt-get update -qq && apt-get install -qq -y --no-install-recommends git make >/dev/null
useradd --create-home newcomer && cd /home/newcomer && mkdir clone && tar -x -C clone && chown -R newcomer clone
exec su newcomer -c 'cd clone && git init -q && git add --all && make demo && make test FAST=1'
"""


@pytest.mark.nightly
def test_the_two_commands_of_the_readme_work_there():
    require_docker()
    command = ["docker", "run", "--rm", "--interactive", "--network", "host", "--shm-size", "1g"]
    # How this machine reaches package registries, as far as variables say it.
    for name in ("HTTPS_PROXY", "NO_PROXY", "PIP_CERT", "PIP_INDEX_URL", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        command += ["--env", name]
    with contextlib.suppress(TermweaveError):  # without one, the container downloads one
        command += ["--volume", f"{java.find(fetch=False).home}:/usr/lib/jvm/jdk:ro"]
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    tar = ["tar", "-c", "--null", "--files-from=-"]
    clone = subprocess.run(tar, cwd=ROOT, input=files, stdout=subprocess.PIPE, check=True).stdout
    command += ["python:3.12-slim", "sh", "-euc", NEWCOMER]
    done = subprocess.run(command, input=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()[-20_000:]
