"""README.md: its console example prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
#: Differs from run to run: the name of a generation, and how long the build took.
VARYING = ((r"-\d{14}-[0-9a-f]{8}\b", "-GENERATION"), (r"sent in [\d.]+ s(, \d+/s)?", "sent in TIME"))
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def steps():
    """The commands of the console block, each with the lines that the page shows below it."""
    block = re.search(r"```console\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL).group(1)
    return [tuple(part.partition("\n")[::2]) for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]


def lines_and_numbers(output):
    """The lines without their numbers, and the numbers.

    Lines are sorted because standard output and standard error have no order between each other; numbers stand apart because the int8
    graph computes slightly different ones on processors without VNNI.
    """
    for pattern, replacement in VARYING:
        output = re.sub(pattern, replacement, output)
    lines = sorted((NUMBER.sub("N", line), NUMBER.findall(line)) for line in output.splitlines())
    return [text for text, _ in lines], [float(number) for _, numbers in lines for number in numbers]


@pytest.mark.engine
def test_the_example_prints_what_the_page_shows(opensearch_engine, tmp_path):
    name = f"kitchen{uuid.uuid4().hex[:8]}"
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "termweave"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m termweave "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "OPENSEARCH_URL": opensearch_engine.url,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    try:
        for line, expected in steps():
            ended = subprocess.run(
                line.replace("kitchen", name),
                shell=True,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                check=True,
                timeout=120,
            )
            printed, printed_numbers = lines_and_numbers(ended.stdout.replace(name, "kitchen"))
            shown, shown_numbers = lines_and_numbers(expected)
            assert printed == shown, line
            assert printed_numbers == pytest.approx(shown_numbers, rel=0.02, abs=0.02), line
    finally:
        opensearch_engine.request("DELETE", f"/{name}-*", params={"expand_wildcards": "all"})


def test_the_example_indexes_and_searches():
    verbs = {line.split()[1] for line, _ in steps() if line.startswith("termweave ")}
    assert verbs == {"index", "search"}
