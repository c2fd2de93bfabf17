"""docs/docker.md with a real engine, and README's two commands on a machine that has what README names and nothing else."""

import contextlib
import json
import os
import re
import subprocess
import time
import uuid
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from termweave.engine.embedded import java
from termweave.engine.embedded.node import free_ports
from termweave.errors import TermweaveError
from tests.programs import require_docker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "docker.md").read_text(encoding="utf-8")
TOKEN = "a token of the tests"
pytestmark = pytest.mark.nightly


def commands(heading):
    """The indented lines of a section."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^    (.*)", section, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def shell():
    """Run lines of the page in the clone with names and ports of one's own; returns their output. Everything is removed afterwards."""
    require_docker()
    ports, project = free_ports(), f"page-{uuid.uuid4().hex[:8]}"
    variables = {"OPENSEARCH_PORT": "9200", "PAGES_PORT": "8321", "MODELS_PORT": "8322"}
    own = {name: str(next(ports)) for name in variables}
    environment = os.environ | own | {"COMPOSE_PROJECT_NAME": project}

    def call(lines, status=0):
        for name, port in variables.items():
            lines = lines.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own[name]}")
        # Containers of docker/engine reach the outside through the machine's network alone; the volume is the test's own.
        lines = lines.replace("docker build ", "docker build --network host ").replace("termweave:/state", f"{project}:/state")
        done = subprocess.run(["bash", "-euc", lines], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    call.ports = own
    yield call
    for name in ("one-node.yml", "termweave.yml"):
        call(f"TERMWEAVE_TOKEN=- docker compose -f docker/{name} down -v")
    call(f"docker volume rm --force {project}")


@pytest.fixture(scope="module")
def image(shell):
    """The image's description."""
    shell(commands("The image").splitlines()[0])
    return json.loads(shell("docker image inspect termweave"))[0]


@pytest.fixture(scope="module")
def node(shell):
    """The server of the page."""
    shell(commands("One node").splitlines()[0])


def test_the_commands_of_the_page_index_and_find(shell, image, node):
    _, index, search = commands("The image").splitlines()
    assert "verified and live" in shell(index)
    assert "[indexing.md]" in shell(search).splitlines()[0]


def test_the_image_is_small_and_of_an_ordinary_user(shell, image):
    assert image["Size"] < 435_000_000
    assert image["Config"]["User"] == "termweave"
    assert image["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert shell("docker run --rm --entrypoint id termweave -u") == "1000\n"
    assert shell("docker run --rm termweave weights 'the cat'")


def test_a_build_that_was_killed_goes_on_in_another_container(shell, image, node, tmp_path):
    lines = [json.dumps({"id": str(number), "text": f"a text of number {number}"}) for number in range(5_000)]
    (tmp_path / "many.jsonl").write_text("\n".join(lines))
    tmp_path.chmod(0o755)
    index = commands("The image").splitlines()[1].replace("$PWD/docs:/work/docs", f"{tmp_path}:/work/docs")
    index = index.replace("index docs pages", "index docs/many.jsonl many")
    name = f"killed-{uuid.uuid4().hex[:8]}"
    shell(index.replace("docker run", f"docker run --detach --name {name}"))
    url = f"http://127.0.0.1:{shell.ports['OPENSEARCH_PORT']}/many-*/_stats/indexing"
    while json.load(urlopen(url))["_all"]["primaries"].get("indexing", {}).get("index_total", 0) < 500:
        assert shell(f"docker ps --quiet --filter name={name}"), "it ended before it was killed"
        time.sleep(0.5)
    shell(f"docker kill {name}")
    assert re.search(r"Resumed many-\S+: [1-9][\d,]* of 5,000 documents were sent before", shell(index))
    with urlopen(url.replace("many-*/_stats/indexing", "many/_count")) as answer:
        assert json.load(answer)["count"] == 5_000


def test_what_the_image_lacks_is_named_with_a_command_that_works(shell, image, node):
    index = "echo PAR1 >x.parquet; termweave index x.parquet x --url http://127.0.0.1:9200"
    said = shell(f"docker run --rm --network host --entrypoint sh termweave -c '{index}'", 2)
    assert "docker build . -f docker/Dockerfile -t termweave --build-arg EXTRAS=ui,elasticsearch,parquet" in said


def test_all_of_it_answers_after_one_command(shell, image):
    shell(commands("All of it with one command").replace("$(head -c 16 /dev/urandom | base64)", f'"{TOKEN}"'))
    pages, models = (f"http://127.0.0.1:{shell.ports[name]}" for name in ("PAGES_PORT", "MODELS_PORT"))
    known = {"Authorization": f"Bearer {TOKEN}"}
    with urlopen(Request(f"{pages}/search?index=pages&q=undo", headers=known)) as answer:
        assert b"indexing.md" in answer.read()
    with urlopen(Request(f"{models}/v1/models", headers=known)) as answer:
        assert json.load(answer)["data"]
    with urlopen(f"{pages}/search") as answer:
        assert "/login" in answer.url
    with pytest.raises(HTTPError, match="401"):
        urlopen(f"{models}/v1/models")


def test_the_token_is_asked_for(shell):
    said = shell("docker compose -f docker/termweave.yml up", 1)
    assert "TERMWEAVE_TOKEN is missing a value: Set it to a secret of at least 16 characters." in said


#: An ordinary user with a clone, without ../shared.
NEWCOMER = """
apt-get update -qq && apt-get install -qq -y --no-install-recommends git make >/dev/null
useradd --create-home newcomer && cd /home/newcomer && mkdir clone && tar -x -C clone && chown -R newcomer clone
exec su newcomer -c 'cd clone && git init -q && git add --all && make demo && make test FAST=1'
"""


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
