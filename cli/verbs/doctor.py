"""`termweave doctor`: check this machine, and say what is missing and how to get it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.shared_options import verb
from termweave.support.extras import install
from termweave.support.messages import printable, sized, without_password

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.cli.common.output import Output
    from termweave.settings import Settings

#: Result of one check: its name, whether all is well, a description, what to do if not, and figures for --json.
Finding = dict[str, Any]


@verb("doctor", connects=True)
def command(*, settings: Settings, out: Output) -> None:
    """Check Python, Java, memory, disk, OpenSearch, models and folders; say what is missing and how to get it.

    The exit status is 1 if something is missing that termweave needs.

    \b
    Examples:
      termweave doctor
      termweave doctor --json
      termweave doctor --url https://search:9200 --user me
    """
    findings = [
        _python(),
        _java(),
        _memory(),
        _disk(),
        _opensearch(settings),
        _runtime(),
        *_models(),
        _chosen(settings),
        _training(),
    ]
    paths = _places()
    ok = all(each["ok"] for each in findings)
    data = {"schema": "termweave.doctor/1", "ok": ok, "findings": findings, "places": paths}
    out.emit(data, lambda: _print(findings, paths))
    if not ok:
        raise click.exceptions.Exit(1)


def _finding(name: str, text: str, advice: str = "", *, ok: bool = True, **figures: Any) -> Finding:
    return {"name": name, "ok": ok, "text": text, "advice": advice, **figures}


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return _finding("Python", f"{version} at {sys.executable}", version=version)


def _java() -> Finding:
    from termweave.engine.embedded import java
    from termweave.errors import TermweaveError

    try:
        installation = java.find(fetch=False)
    except TermweaveError as error:
        # Not a failure: `node start` downloads a JDK. The message names the installations that do not fit.
        advice = "termweave node start downloads a JDK; or install one and set JAVA_HOME."
        return _finding("Java", error.message, advice, home=None, version=None)
    return _finding(
        "Java", f"{installation.version} at {installation.home}", home=str(installation.home), version=installation.version
    )


def _memory() -> Finding:
    from termweave.engine.embedded import memory

    total, available = memory.total_and_available()
    enough = available > 1_200_000_000
    advice = "" if enough else "A node needs 700 MB, a model 300 MB: close other programs, or use a server elsewhere with --url."
    return _finding("Memory", f"{sized(available)} free of {sized(total)}", advice, ok=enough, total=total, available=available)


def _disk() -> Finding:
    from termweave.engine.embedded import folders
    from termweave.support import paths

    where = folders.run_folder(folders.default_home())
    free = min(folders.free_bytes(paths.cache()), folders.free_bytes(where))
    advice = "" if free > 2_000_000_000 else "Server and JDK take 1 GB, an index about ten times its text: free some space."
    return _finding("Disk", f"{sized(free)} free", advice, ok=free > 1_000_000_000, free=free)


def _opensearch(settings: Settings) -> Finding:
    from dataclasses import asdict

    from termweave.dialect import dialect_of
    from termweave.engine.client.connection import connect
    from termweave.engine.embedded import node
    from termweave.errors import EngineError, EngineUnreachable

    name = "OpenSearch"
    try:
        with connect(settings) as engine:
            can = engine.capabilities
            able = {
                "k-NN": can.knn,
                "sparse_vector": can.sparse_vector,
                "neural_sparse": can.neural_sparse,
                "vector doc values": can.vector_doc_values,
            }
            abilities = ", ".join(name for name, has in able.items() if has) or "neither k-NN nor neural_sparse"
            text = f"{can.distribution} {can.version} at {engine.url} ({abilities}; at most {can.max_clause_count} clauses)"
            advice = "" if can.knn else "Without the k-NN plugin there are no dense vectors: use --signals lexical,weights."
            if can.distribution == "elasticsearch":
                obstacle = dialect_of(can).weights_obstacle(can)
                advice = f"No term weights can be stored: {obstacle}." if obstacle else ""
            return _finding(engine.product, text, advice, url=engine.url, capabilities=asdict(can))
    except EngineUnreachable as error:
        if settings.url is not None:
            return _finding(name, error.message, error.hint, ok=False, url=without_password(settings.url), capabilities=None)
        state = node.status()
        died = " (it ended without being stopped)" if state is not None and state.state == "dead" else ""
        return _finding(name, f"not running{died}", "Start it with: termweave node start", url=None, capabilities=None)
    except EngineError as error:
        shown = None if settings.url is None else without_password(settings.url)
        return _finding(name, error.message, error.hint, ok=False, url=shown, capabilities=None)


def _runtime() -> Finding:
    from termweave.encoders.onnx.runtime import cuda_problem, onnx_runtime

    try:
        onnxruntime = onnx_runtime()
    except ImportError as error:
        advice = "Install it with: pip install --force-reinstall termweave"
        return _finding("ONNX Runtime", f"does not load: {error}", advice, ok=False, providers=[])
    providers = [name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers()]
    gpu = _gpu()
    text = f"{onnxruntime.__version__} ({', '.join(providers)}); GPU: {gpu or 'none, models run on the processor'}"
    advice = cuda_problem() if gpu else ""
    if gpu and not advice and not _runs_on_gpu():
        advice = f"CUDA's libraries are missing, so models run on the processor: {install('gpu')}."
    return _finding("ONNX Runtime", text, advice, version=onnxruntime.__version__, providers=providers, gpu=gpu)


def _training() -> Finding:
    """Whether `train` can run. Nothing else needs it, so what is missing is no failure."""
    from termweave.training.needs import missing

    absent = missing()
    text = (
        f"not installed: {', '.join(what for what, _ in absent)} (only 'termweave train' needs it)"
        if absent
        else "all that 'termweave train' needs"
    )
    return _finding("Training", text, " ".join(advice for _, advice in absent), missing=[what for what, _ in absent])


def _runs_on_gpu() -> bool:
    from termweave.encoders.kinds import read_folder
    from termweave.encoders.model_lookup import DEFAULT, resolve
    from termweave.encoders.onnx.runtime import OnnxModel
    from termweave.errors import TermweaveError

    try:
        return OnnxModel(read_folder(resolve(DEFAULT))).on_gpu
    except TermweaveError:  # the model's own finding says so
        return False


def _gpu() -> str | None:
    """Name and memory of the graphics processors, from their driver; None if there are none."""
    import shutil
    import subprocess

    driver = shutil.which("nvidia-smi")
    if driver is None:
        return None
    command = [driver, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - the driver's program
    except (OSError, subprocess.TimeoutExpired):
        return None
    return "; ".join(result.stdout.strip().splitlines()) or None if result.returncode == 0 else None


def _models() -> list[Finding]:
    from importlib.resources import files

    from termweave.encoders.model_lookup import dependence, known_models
    from termweave.support import paths

    try:
        home = files("termweave.encoders").joinpath("shipped")
        shipped = sorted(each.name for each in home.iterdir() if each.joinpath("termweave.json").is_file())
    except (ImportError, OSError):
        shipped = []
    advice = "" if shipped else "This installation carries no model: reinstall termweave, or give --weights and --dense."
    folder = paths.models()
    own = sorted(each.name for each in folder.iterdir() if (each / "termweave.json").is_file()) if folder.is_dir() else []
    return [
        _finding("Shipped models", ", ".join(shipped) or "none", advice, ok=bool(shipped), names=shipped),
        _finding("Your models", ", ".join(own) or f"none in {folder}", dependence(known_models()), names=own),
    ]


def _chosen(settings: Settings) -> Finding:
    """The models that a build takes without further options, and their size."""
    from termweave.encoders import load
    from termweave.encoders.model_lookup import PACKAGES, SHORT
    from termweave.errors import TermweaveError

    try:
        encoder = load(settings.weights, settings.dense)
        encoder.encode(["water boils"], kind="document")
    except TermweaveError as error:
        return _finding("Chosen model", error.message, error.hint, ok=False, names=[], bytes=None)
    names = list(dict.fromkeys(model.name for model in encoder.models.values()))
    size = encoder.graph_bytes
    text = f"{' and '.join(names)}: {sized(size)}" if size else ", ".join(names) or "none"
    advice = f"Others: --model {' or '.join(sorted({*SHORT, *PACKAGES}))} (docs/encoding.md)."
    return _finding("Chosen model", text, advice, names=names, bytes=size)


def _places() -> list[dict[str, Any]]:
    from termweave.engine.embedded import folders
    from termweave.support import paths

    wanted: list[tuple[str, Path]] = [
        ("state", paths.state()),
        ("cache", paths.cache()),
        ("config", paths.config()),
        ("models", paths.models()),
        # For root the server's folders are separate; for others they are below state and cache, and counted there.
        ("node", folders.run_folder(folders.default_home())),
        ("servers", folders.distribution_cache()),
        ("JDKs", folders.jdk_cache()),
    ]
    rows: list[dict[str, Any]] = []
    for name, path in wanted:
        if not any(path.is_relative_to(row["path"]) for row in rows):
            rows.append({"name": name, "path": str(path), "exists": path.is_dir(), "bytes": folders.size(path)})
    return rows


def _print(findings: list[Finding], paths: list[dict[str, Any]]) -> None:
    for finding in findings:
        mark = click.style("ok  ", fg="green") if finding["ok"] else click.style("FAIL", fg="red")
        click.echo(f"{mark} {finding['name']:<16} {printable(finding['text'], lines=True)}")
        if finding["advice"]:
            click.echo(f"     {'':<16} {printable(finding['advice'])}")
    again = [row["name"] for row in paths if row["name"] in {"cache", "servers", "JDKs"}]
    click.echo(f"\nFolders. If removed, only {' and '.join(again)} can be made again:")
    for row in paths:
        click.echo(f"     {row['name']:<16} {row['path']}  {sized(row['bytes']) if row['exists'] else 'not there yet'}")
    elsewhere = any(row["name"] == "node" for row in paths)
    holders, them = ("State and node hold", "them") if elsewhere else ("State holds", "it")
    click.echo(
        f"{holders} the indices of the embedded node, ledgers and what was learned, with the terms and texts of your corpora: treat {them} as "
        "you treat the corpora. Config and models are your own."
    )
