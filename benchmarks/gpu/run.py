"""Measure termweave on a GPU: join and verify the pieces of `pack.py`, then run each step of `steps.py` within its own time.

    python3 run.py PIECES --out DIR [--device cpu --small] [--steps parity speed]

Needs nothing but Python and, on a machine with a GPU, its PyTorch, whose CUDA libraries ONNX Runtime uses. Each step writes DIR/STEP.json as it
goes, so that what is cut off keeps what it has measured. All steps together take at most eight minutes, after a minute of unpacking.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import lzma
import os
import subprocess
import sys
import tarfile
import time
from io import BytesIO
from pathlib import Path
from typing import Any

#: Step -> the most seconds it may take; 480 together.
LIMITS = {"devices": 50, "parity": 100, "speed": 110, "training": 100, "learn": 120}
#: Requirements of the installed termweave[train] that are not met, one a line.
MISSING = """
from importlib.metadata import PackageNotFoundError, requires, version
from packaging.requirements import Requirement
for line in requires("termweave"):
    need = Requirement(line)
    if need.marker is None or need.marker.evaluate({"extra": "train"}):
        try:
            if not need.specifier.contains(version(need.name), prereleases=True):
                print(f"{need.name}{need.specifier} (it has {version(need.name)})")
        except PackageNotFoundError:
            print(need.name)
"""


class Joined:
    """The pieces as one file to read."""

    def __init__(self, files: list[Path]) -> None:
        self._files = iter(files)
        self._piece = BytesIO()

    def read(self, size: int) -> bytes:
        """At most so many bytes; b"" at the end."""
        while not (content := self._piece.read(size)):
            if (file := next(self._files, None)) is None:
                return b""
            self._piece = BytesIO(file.read_bytes())
        return content


def verified(folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """The table of a pack, and its pieces in order; ends the program with a sentence where one is missing or damaged."""
    table = folder / "pack.json"
    if not table.is_file():
        sys.exit(f"Error: {folder} holds no pack.json. Copy the folder that pack.py wrote, pack.json and all pieces.")
    try:
        pack = json.loads(table.read_text())
        pieces = [(folder / piece["name"], piece["bytes"], piece["sha256"]) for piece in pack["pieces"]]
    except (ValueError, KeyError, TypeError):
        sys.exit(f"Error: {table} is damaged. Copy it again.")
    if absent := [file.name for file, *_ in pieces if not file.is_file()]:
        sys.exit(f"Error: {len(absent)} of {len(pieces)} pieces are missing: {', '.join(absent)}. Copy them to {folder}.")
    for file, size, digest in pieces:
        if file.stat().st_size != size:
            sys.exit(f"Error: {file.name} is cut: it holds {file.stat().st_size:,} bytes of {size:,}. Copy it again.")
        with file.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != digest:
                sys.exit(f"Error: {file.name} is damaged: its bytes are not those that were packed. Copy it again.")
    return pack, [file for file, *_ in pieces]


def unpacked(folder: Path, into: Path) -> None:
    """Unpack verified pieces, unless this pack lies there already."""
    pack, files = verified(folder)
    if pack["packages"] and "{}.{}".format(*sys.version_info) != pack["python"]:
        sys.exit(f"Error: this is Python {sys.version.split()[0]}, and the pack is for {pack['python']}: pack.py --python.")
    mark = into / "unpacked.json"
    content = (folder / "pack.json").read_text()
    if mark.is_file() and mark.read_text() == content:
        return
    with lzma.open(Joined(files)) as packed, tarfile.open(fileobj=packed, mode="r|") as tar:  # type: ignore[call-overload]
        tar.extractall(into, filter="data")
    mark.write_text(content)


def environment(into: Path) -> dict[str, str]:
    """The environment of a step: packed packages come first, and ONNX Runtime finds PyTorch's CUDA libraries beside itself."""
    found = importlib.util.find_spec("nvidia")
    beside = into / "site" / "nvidia"
    if found and found.submodule_search_locations and not beside.exists():
        beside.symlink_to(next(iter(found.submodule_search_locations)))
    own = {"PYTHONPATH": str(into / "site"), "XDG_CACHE_HOME": str(into / "cache"), "XDG_STATE_HOME": str(into / "state")}
    own |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true", "PYTHONUNBUFFERED": "1"}
    if (into / "jdk").is_dir():
        own |= {"JAVA_HOME": str(into / "jdk"), "TERMWEAVE_OPENSEARCH_ARCHIVES": str(into / "archives")}
    return os.environ | own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", type=Path, help="folder of the pieces and pack.json")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--into", type=Path, help="folder to unpack into  [default: PIECES/unpacked]")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries everything without a GPU")
    parser.add_argument(
        "--small", action="store_true", help="few texts and steps, and ten times the limit: the processor may be slow"
    )
    parser.add_argument("--steps", nargs="+", choices=LIMITS, default=list(LIMITS))
    given = parser.parse_args()
    into = (given.into or given.pieces / "unpacked").resolve()
    into.mkdir(parents=True, exist_ok=True)
    unpacked(given.pieces, into)
    given.out.mkdir(parents=True, exist_ok=True)
    variables = environment(into)
    asked = subprocess.run([sys.executable, "-c", MISSING], env=variables, capture_output=True, text=True, check=True)
    if asked.stdout:
        sys.exit(
            f"Error: this machine lacks {', '.join(asked.stdout.split(chr(10))[:-1])}. Take them out of machine.txt and pack again."
        )
    failed = False
    for step in given.steps:
        file, started = given.out / f"{step}.json", time.monotonic()
        command = [sys.executable, into / "benchmarks" / "gpu" / "steps.py", step, "--device", given.device]
        command += ["--home", into, "--out", file.resolve(), *(["--small"] if given.small else [])]
        limit = LIMITS[step] * (10 if given.small else 1)
        try:
            status = subprocess.run(command, env=variables, timeout=limit, check=False).returncode
            said = "done" if not status else f"failed ({status})"
        except subprocess.TimeoutExpired:
            status, said = 1, f"stopped at its limit of {limit} s"
        print(f"{step}: {said}, {time.monotonic() - started:.0f} s; {file}", flush=True)
        failed |= bool(status)
        if step == "devices" and status:
            break  # without the GPU the others would measure something else
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
