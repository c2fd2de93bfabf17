"""`termweave doctor` and `config`: check this machine, tell what is missing and how to install it, and show the settings."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.declared_options import CONTEXT
from termweave.cli.shared_options import verb
from termweave.engine.embedded import folders, java, node
from termweave.errors import EngineError, EngineUnreachable, TermweaveError
from termweave.support import paths
from termweave.support.extras import install
from termweave.support.messages import printable, sized, without_password

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.output import Output
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
    version = platform.python_version()
    python = _finding("Python", f"{version} at {sys.executable}", version=version)
    machine = [python, _java(), _memory(), _disk(), _opensearch(settings), _runtime()]
    findings = [*machine, *_models(), _chosen(settings), _training()]
    places = _places()
    ok = all(each["ok"] for each in findings)
    data = {"schema": "termweave.doctor/1", "ok": ok, "findings": findings, "places": places}
    out.emit(data, lambda: _print(findings, places))
    if not ok:
        raise click.exceptions.Exit(1)


def _finding(name: str, text: str, advice: str = "", *, ok: bool = True, **figures: Any) -> Finding:
    return {"name": name, "ok": ok, "text": text, "advice": advice, **figures}


def _java() -> Finding:
    try:
        installation = java.find(fetch=False)
    except TermweaveError as error:
        # Not a failure: `node start` downloads a JDK. The message names the installations that do not fit.
        advice = "termweave node start downloads a JDK; or install one and set JAVA_HOME."
        return _finding("Java", error.message, advice, home=None, version=None)
    home, version = str(installation.home), installation.version
    return _finding("Java", f"{version} at {home}", home=home, version=version)


def _memory() -> Finding:
    total, available = node.total_and_available()
    enough = available > 1_200_000_000
    advice = "" if enough else "A node needs 700 MB, a model 300 MB: close other programs, or use a server elsewhere with --url."
    return _finding("Memory", f"{sized(available)} free of {sized(total)}", advice, ok=enough, total=total, available=available)


def _disk() -> Finding:
    free = min(map(folders.free_bytes, (paths.cache(), folders.run_folder(folders.default_home()))))
    advice = "" if free > 2_000_000_000 else "Server and JDK take 1 GB, an index about ten times its text: free some space."
    return _finding("Disk", f"{sized(free)} free", advice, ok=free > 1_000_000_000, free=free)


def _opensearch(settings: Settings) -> Finding:
    from termweave.dialect import dialect_of
    from termweave.engine.client.connection import connect

    name, url = "OpenSearch", None if settings.url is None else without_password(settings.url)
    try:
        with connect(settings) as engine:
            can = engine.capabilities
            able = {"k-NN": can.knn, "sparse_vector": can.sparse_vector, "neural_sparse": can.neural_sparse}
            able["vector doc values"] = can.vector_doc_values
            abilities = ", ".join(name for name, has in able.items() if has) or "neither k-NN nor neural_sparse"
            text = f"{can.distribution} {can.version} at {engine.url} ({abilities}; at most {can.max_clause_count} clauses)"
            advice = "" if can.knn else "Without the k-NN plugin there are no dense vectors: use --signals lexical,weights."
            if can.distribution == "elasticsearch":
                obstacle = dialect_of(can).weights_obstacle(can)
                advice = f"No term weights can be stored: {obstacle}." if obstacle else ""
            return _finding(engine.product, text, advice, url=engine.url, capabilities=asdict(can))
    except EngineError as error:
        if url is not None or not isinstance(error, EngineUnreachable):
            return _finding(name, error.message, error.hint, ok=False, url=url, capabilities=None)
        state = node.status()
        died = " (it ended without being stopped)" if state is not None and state.state == "dead" else ""
        return _finding(name, f"not running{died}", "Start it with: termweave node start", url=None, capabilities=None)


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
    """Check whether models can be trained and exported; missing packages are no failure, because everything else runs without them."""
    from termweave.training.needs import missing

    absent = dict(missing())
    who = "'termweave train', 'learn', 'export', 'backbone import', and models without an ONNX graph"
    text = f"not installed: {', '.join(absent)} (for {who}; all else runs without)" if absent else f"all that is needed for {who}"
    return _finding("Training", text, " ".join(absent.values()), missing=list(absent))


def _runs_on_gpu() -> bool:
    from termweave.encoders.kinds import read_folder
    from termweave.encoders.model_lookup import DEFAULT, resolve
    from termweave.encoders.onnx.runtime import OnnxModel

    try:
        return OnnxModel(read_folder(resolve(DEFAULT))).on_gpu
    except TermweaveError:  # the model's own finding says so
        return False


def _gpu() -> str | None:
    """Ask the NVIDIA driver for names and memory of the graphics processors; None: there are none, or the driver does not answer."""
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
    from termweave.encoders.model_lookup import dependence, known_models, own_folders, shipped_folders

    # The others are languages without a graph.
    shipped = [each.name for each in shipped_folders() if each.parent.name == "shipped"]
    of_user = [each.name for each in own_folders()]
    advice = "" if shipped else "This installation carries no model: reinstall termweave, or give --weights and --dense."
    return [
        _finding("Shipped models", ", ".join(shipped) or "none", advice, ok=bool(shipped), names=shipped),
        _finding("Your models", ", ".join(of_user) or f"none in {paths.models()}", dependence(known_models()), names=of_user),
    ]


def _chosen(settings: Settings) -> Finding:
    """Check the models that a build uses without further options, and report their names and size."""
    from termweave.encoders import load
    from termweave.encoders.model_lookup import PACKAGES, SHORT

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
    listed: list[tuple[str, Path]] = [
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
    for name, path in listed:
        if not any(path.is_relative_to(row["path"]) for row in rows):
            rows.append({"name": name, "path": str(path), "exists": path.is_dir(), "bytes": folders.size(path)})
    return rows


def _print(findings: list[Finding], places: list[dict[str, Any]]) -> None:
    for finding in findings:
        mark = click.style("ok  ", fg="green") if finding["ok"] else click.style("FAIL", fg="red")
        click.echo(f"{mark} {finding['name']:<16} {printable(finding['text'], lines=True)}")
        if finding["advice"]:
            click.echo(f"     {'':<16} {printable(finding['advice'])}")
    again = [row["name"] for row in places if row["name"] in {"cache", "servers", "JDKs"}]
    click.echo(f"\nFolders. If removed, only {' and '.join(again)} can be made again:")
    for row in places:
        click.echo(f"     {row['name']:<16} {row['path']}  {sized(row['bytes']) if row['exists'] else 'not there yet'}")
    elsewhere = any(row["name"] == "node" for row in places)
    holders, them = ("State and node hold", "them") if elsewhere else ("State holds", "it")
    click.echo(
        f"{holders} the indices of the embedded node, ledgers and what was learned, with the terms and texts of your corpora: treat {them} as "
        "you treat the corpora. Config and models are your own."
    )


@click.group("config", context_settings=CONTEXT)
def config() -> None:
    """The current settings: from flags, then TERMWEAVE_*, then termweave.toml, then defaults.

    \b
    Examples:
      termweave config show
      TERMWEAVE_URL=https://search:9200 termweave config show --json
    """


@verb("show", config, connects=True)
def show(*, settings: Settings, out: Output) -> None:
    """Print every setting with its value and where it comes from, and the folders of data, cache and ledgers.

    \b
    Examples:
      termweave config show
      termweave config show --json
    """
    described = {
        "settings": (paths.config(), "The user's termweave.toml ($XDG_CONFIG_HOME)"),
        "models": (paths.models(), "Models that are found by name ($XDG_DATA_HOME)"),
        "cache": (paths.cache(), "What can be made again: server archives, statistics ($XDG_CACHE_HOME)"),
        "state": (paths.state(), "Ledgers and faults.log ($XDG_STATE_HOME)"),
        "ledgers": (paths.state() / "ledgers", "What was sent to which index; 'index --update' and 'verify' read it"),
        "node": (folders.run_folder(folders.default_home()), "Data and logs of the embedded node: its indices"),
    }
    rows: dict[str, answers.Setting] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        shown = None if value is None else value if isinstance(value, bool | int | float) else without_password(str(value))
        rows[name] = {"value": shown, "from": settings.origin(name), "description": str(field.description)}
        if ignored := [each.origin for each in settings.ignored if each.name == name]:
            rows[name]["ignored"] = ignored
    wide, lines = max(map(len, rows)), []
    for name, row in rows.items():
        origin = f"{row['from']} (not {', '.join(row['ignored'])})" if "ignored" in row else row["from"]
        lines.append(f"{name:<{wide}} {'-' if row['value'] is None else row['value']!s:<30} {origin:<22} {row['description']}")
    lines += ["", "Folders ('termweave doctor' shows their sizes):"]
    lines += [f"{name:<{wide}} {path!s:<53} {description}" for name, (path, description) in described.items()]
    places = {name: {"path": str(path), "description": description} for name, (path, description) in described.items()}
    out.emit({"schema": "termweave.config/1", "settings": rows, "folders": places}, "\n".join(lines))
