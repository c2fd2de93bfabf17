"""docker/engine: it says in one sentence why there is no engine, and leaves the machine as it was."""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / "docker" / "engine"
NOWHERE = {"DOCKER_HOST": "unix:///nowhere"}
_INSTALLED = shutil.which("apt-get") and shutil.which("dockerd")
as_root = pytest.mark.skipif(os.geteuid() != 0 or not _INSTALLED, reason="needs root on a Debian with docker.io")


def engine(*command, **environment):
    return subprocess.run([ENGINE, *command], env=os.environ | NOWHERE | environment, capture_output=True, text=True, check=False)


def refused(done, *parts):
    assert done.returncode == 69
    (line,) = done.stderr.splitlines()
    assert line.startswith("docker/engine: ")
    assert all(part in line for part in parts), line


def test_its_program_finds_what_it_imports():
    """The images are made at night alone."""
    (program,) = re.findall(r"-c '(.*?)'\)", ENGINE.read_text(), re.DOTALL)
    exec("\n".join(re.findall("^from .*", program, re.MULTILINE)))


def test_it_says_how_it_is_called_and_what_to_install_elsewhere_than_on_debian(tmp_path):
    refused(engine(), "docker/engine bash")
    for name in ("bash", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    refused(engine("true", PATH=str(tmp_path)), "not a Debian", "install Docker Engine")


@as_root
def test_a_folder_in_use_is_named(tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(engine("true", TERMWEAVE_DOCKER=str(tmp_path)), str(tmp_path), "TERMWEAVE_DOCKER")


def state():
    """What an engine changes on a machine."""
    commands = ("ip -brief link", "sysctl net.ipv4.ip_forward vm.max_map_count", "iptables-save", "cat /proc/mounts")
    return [subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout for command in commands]


@as_root
def test_a_daemon_that_does_not_start_is_quoted_and_leaves_nothing(tmp_path):
    before = state()
    folder = tmp_path / ("long" * 30)  # no address of a socket has so many characters
    (folder / "config" / "cli-plugins").mkdir(parents=True)
    (folder / "config" / "cli-plugins" / "docker-compose").symlink_to("/bin/true")
    refused(engine("true", TERMWEAVE_DOCKER=str(folder)), "daemon does not start here: ")
    assert state() == before


@as_root
@pytest.mark.nightly
def test_the_status_is_that_of_the_command_and_nothing_is_left(tmp_path):
    before = state()
    inside = "docker run --detach --publish 127.0.0.1::9200 opensearchproject/opensearch:3.6.0; exit 7"
    done = engine("sh", "-c", inside, TERMWEAVE_DOCKER=str(tmp_path))
    assert done.returncode == 7, done.stderr
    assert state() == before
    processes = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(str(tmp_path).encode() in line for line in processes)
