"""The programs of docs/clients on 225 questions of cranfield: they get the order of `termweave search --server-fusion`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from termweave import corpora
from termweave.indexer import BuildOptions, build
from termweave.search import Index

from .conftest import serving

pytestmark = [pytest.mark.nightly, pytest.mark.engine]
ROOT = Path(__file__).parents[3]
#: Program -> the command that prepares it, the command that runs it, and what a machine needs.
PROGRAMS = {
    "search.sh": (None, ["sh", "search.sh"], ("curl", "jq")),
    "search.mjs": (["npm", "install", "--silent"], ["node", "search.mjs"], ("node", "npm")),
    "Search.java": (["mvn", "-q", "-B", "compile"], ["mvn", "-q", "-B", "exec:java"], ("mvn",)),
}


@pytest.fixture(scope="module")
def cranfield(ml_engine):
    """An index of cranfield that is connected, and its questions: id -> text."""
    folder = ROOT.parent / "shared" / "data" / "cranfield"
    if not folder.is_dir():
        pytest.skip("the data sets stand beside the project and are not here")
    name, dataset = f"test-clients-{os.getpid()}", corpora.open_dataset(str(folder))
    try:
        build(ml_engine, dataset, name, BuildOptions())
        with serving(ml_engine.url, name) as url:
            connect = [sys.executable, "-m", "termweave", "connect", name]
            environment = {**os.environ, "OPENSEARCH_URL": ml_engine.url}
            subprocess.run([*connect, "--model-server", url], env=environment, check=True)
            yield name, folder, {query.id: query.text for query in dataset.queries()}
            subprocess.run([*connect, "--remove"], env=environment, check=True)
    finally:
        ml_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.fixture(scope="module")
def expected(ml_engine, cranfield):
    """The ten best documents of each question with their scores, by termweave with the server's fusion."""
    name, _, questions = cranfield
    index = Index.open(ml_engine, name)
    asked = (index.search(text, mode="hybrid@min-max", server_fusion=True) for text in questions.values())
    return [{hit.id: hit.score for hit in hits} for hits in asked]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gets_the_order_of_termweave(ml_engine, cranfield, expected, program, tmp_path):
    prepare, command, needs = PROGRAMS[program]
    if missing := [each for each in needs if shutil.which(each) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    name, _, questions = cranfield
    folder = shutil.copytree(ROOT / "docs" / "clients", tmp_path / "clients")
    if prepare:
        subprocess.run(prepare, cwd=folder, check=True)
    arguments = [f"-Dexec.args={ml_engine.url} {name}"] if command[0] == "mvn" else [ml_engine.url, name]
    text = "".join(" ".join(question.split()) + "\n" for question in questions.values())
    ran = subprocess.run([*command, *arguments], cwd=folder, input=text, capture_output=True, text=True, check=True)
    plain = re.sub(r"\x1b\[\d*m", "", ran.stdout)  # Maven resets the colours of the terminal
    found = [line.split() for line in plain.strip().splitlines()]
    assert len(found) == 225
    for ids, scores in zip(found, expected, strict=True):  # documents whose scores differ in the last bits may change places
        assert [scores.get(each, min(scores.values())) for each in ids] == pytest.approx(list(scores.values()), rel=1e-5)


def test_the_benchmark(ml_engine, cranfield):
    name, folder, _ = cranfield
    command = [sys.executable, ROOT / "benchmarks" / "any_client.py", folder, name, "--queries", "20", "--timed", "3"]
    environment = {**os.environ, "OPENSEARCH_URL": ml_engine.url}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "for 20 of 20 queries" in ran.stdout
    assert "| match through the pipeline |" in ran.stdout
