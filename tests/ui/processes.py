"""`termweave serve` in a process of its own."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager


def until(condition, seconds=30):
    """Wait until a condition holds; return what it gave."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@contextmanager
def serving(*arguments, **environment):
    """Start `termweave serve` as a user does: the process and what it says of itself. It ends with the block."""
    line = [sys.executable, "-m", "termweave", "serve", *arguments, "--port", "0", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, env={**os.environ, **environment}, **pipes) as process:
        try:
            text = ""
            while not text.endswith("}\n"):  # the JSON has several lines
                text += (said := process.stdout.readline())
                assert said, process.stderr.read()
            yield process, json.loads(text)
        finally:
            process.kill()
