"""Every figure of README.md and docs/ again, on the visible data sets: ``make figures``. It takes hours on two cores, and can be stopped.

    python benchmarks/figures.py                  run what is not done yet, in the order of the list
    python benchmarks/figures.py --list           the pages, the tables and their commands, and which are done
    python benchmarks/figures.py fusion impacts only these
    python benchmarks/figures.py --again fusion   once more, although it is done
    python benchmarks/figures.py --finished coder the rows of a table of reproduction.py that are there, without computing others

A command that ended with status 0 is done: what it printed is ``build/figures/NAME.txt``, and the tables in it are ``docs/results/NAME.json``, with the
command, the commit, the model and what the command says of itself in lines of JSON. A line says how many rows differ from the
result before (``git diff docs/results`` shows them). ``make docs`` copies such tables into the pages that have a place for them (``<!-- table:
NAME NUMBER -->``); compare the other pages with the outputs. A command that was stopped or failed leaves ``NAME.part`` and begins again; builds and trainings inside it resume. A
done command begins again when the model that is shipped changed. A server is needed (``$OPENSEARCH_URL``, or ``termweave node start``), for
`engines` also ``$ELASTICSEARCH_URL``.
"""

# ruff: noqa: E501 - a command on one line is what one copies
from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "figures"
RESULTS = ROOT / "docs" / "results"
_MODEL = ROOT / "encoders" / "shipped" / "minilm-l6-anchored" / "termweave.json"
_EIGHT = "nfcorpus cranfield vaswani stackfaq wikiqa trec-dl-2019-2020 medquad squad"
_FOURTEEN = "nfcorpus scifact cranfield vaswani wikiqa trec-dl-2019-2020 medquad squad-dev-reqa xquad-en-reqa stackfaq movies:dev banking77 clinc150 twitter-airlines"


@dataclass(frozen=True)
class Figures:
    """A table of the pages and the command that makes it.

    Attributes:
        name: Name of its output.
        page: The page that shows it.
        table: What it shows.
        command: A script of this folder or a verb of termweave, with its arguments. DATA is the folder of the data sets, WORK that of models; a
            word SETS: names follows.. stands for the paths of these sets.
        model: Whether the figures are those of the shipped model, so that another model makes them old.
    """

    name: str
    page: str
    table: str
    command: str
    model: bool = True

    def arguments(self, data: Path, work: Path) -> list[str]:
        """The command line."""
        words: list[str] = []  # a figure that needs another server takes its address from the environment
        in_sets = False
        for word in map(os.path.expandvars, shlex.split(self.command)):
            in_sets = in_sets or word == "SETS:"
            if word != "SETS:":
                words.append(str(data / word) if in_sets else word.replace("DATA", str(data)).replace("WORK", str(work)))
        script = ROOT / "benchmarks" / words[0]
        return (
            [sys.executable, str(script), *words[1:]] if script.suffix == ".py" else [sys.executable, "-m", "termweave", *words]
        )


FIGURES = (
    Figures("retrieval", "README.md, docs/figures.md", "all systems on full collections", f"retrieval.py SETS: {_EIGHT}"),
    Figures("models", "docs/encoding.md", "the model small against fast", f"retrieval.py --model small --name small --against fast SETS: {_FOURTEEN}"),
    Figures("chinese", "docs/encoding.md", "the model chinese", "retrieval.py --model chinese --name zh SETS: cmrc2018 cmrc2018-reqa drcd-reqa", model=False),
    Figures("fusion", "docs/fusion.md", "fusion and rNN with three dense models", "fusion.py --work WORK/fusion --data DATA"),
    Figures("learning", "docs/learning.md", "before and after learning", "learning.py --data DATA --work WORK/learning --minutes 15"),
    Figures("impacts", "docs/impacts.md", "8 bits, size, latency, pruning, statistics", "impacts.py SETS: nfcorpus cranfield stackfaq"),
    Figures("enriched_index", "docs/enriching.md", "size and searches of an enriched index", "enriched_index.py demo"),
    Figures("latency", "docs/latency.md", "latency of a search", "latency.py"),
    Figures("throughput", "docs/latency.md", "queries a second of eight clients", "throughput.py"),
    Figures("indexing", "docs/indexing.md", "documents a second", "indexing.py"),
    Figures("any_client", "docs/latency.md", "match queries through termweave connect; needs a connected index", "any_client.py DATA/cranfield cranfield --timed 60"),
    Figures("engines", "docs/engines.md", "the same ranking on both servers; needs $ELASTICSEARCH_URL", "engines.py --documents 2000 --queries 225 SETS: cranfield nfcorpus stackfaq"),
    Figures("encoding", "docs/encoding.md", "texts a second", "encoding.py --data DATA speed --count 48"),
    Figures("padding", "docs/encoding.md", "padding of batches", "encoding.py --data DATA padding", model=False),
    Figures("variants", "docs/term-weights.md", "variants of the head", "term_weights.py --data DATA --results WORK/term-weights.jsonl --sets cranfield stackfaq", model=False),
    Figures("serving", "docs/api.md", "searches a second through the page's API, start, a page beside its search", "serving.py --documents 200 --rounds 3 --seconds 4"),
    Figures("model-server", "docs/latency.md", "the model server against sentence-transformers", "model_server.py"),
    Figures("rankers", "docs/reranking.md", "pairs a second", "rankers.py speed DATA/stackfaq --rounds 4", model=False),
    Figures("misspelt", "docs/filters.md", "misspelt questions, corrected", "misspelt.py DATA/cranfield DATA/stackfaq DATA/xquad-en-reqa"),
    Figures("ltr", "docs/rankers.md", "feature rankers by cross-validation", "feature_ranker.py DATA/movies:dev DATA/nfcorpus DATA/scifact DATA/cranfield DATA/stackfaq DATA/wikiqa DATA/banking77"),
    Figures("training-speed", "docs/reproduction.md", "time of a training step", "training_speed.py steps --data DATA/stackfaq --length 128 --batch 16 --steps 4 --rounds 1", model=False),
    Figures("training-lengths", "docs/reproduction.md", "time of a training step, texts of many lengths", "training_speed.py steps --data DATA/medquad --length 256 --batch 16 --steps 3 --rounds 2", model=False),
    Figures("labels-speed", "docs/reproduction.md", "time of labels", "training_speed.py labels", model=False),
    *(
        Figures(name, "docs/reproduction.md", table, f"reproduction.py {name} --data DATA --work WORK/reproduction", model=False)
        for name, table in (("rnn", "rNN"), ("coder", "CODER"), ("dtr", "DTR"), ("fectek", "FecTek"), ("le-bs", "LE-BS"), ("sir", "SIR"))
    ),
)  # fmt: skip


def main() -> int:
    """Run, or list, the commands; return the number of those that failed, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to make  [default: all]")
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the data sets  [default: ../shared/data]"
    )
    parser.add_argument("--list", action="store_true", help="show the commands, and run nothing")
    parser.add_argument("--again", action="store_true", help="also what is done")
    parser.add_argument(
        "--finished",
        action="store_true",
        help="only print the rows of tables of reproduction.py that are there; such a table is not done",
    )
    parser.add_argument(
        "--work", type=Path, default=HOME / "work", help="folder of what commands keep  [default: build/figures/work]"
    )
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - {each.name for each in FIGURES}):
        parser.error(f"there are no figures {', '.join(unknown)}; --list shows all")
    chosen = [each for each in FIGURES if not given.names or each.name in given.names]
    if given.list:
        for each in chosen:
            state = "done" if done(each) else "to do"
            print(
                f"{state}  {each.name}: {each.page}, {each.table}\n       {shlex.join(each.arguments(given.data, given.work)[1:])}"
            )
        return 0
    if given.finished:
        chosen = [
            replace(each, command=f"{each.command} --finished") for each in chosen if each.command.startswith("reproduction.py")
        ]
    failed = [
        each.name
        for each in chosen
        if (given.again or given.finished or not done(each)) and not made(each, given.data, given.work)
    ]
    print(f"Failed: {', '.join(failed)}." if failed else f"All is done: {HOME}.")
    return 1 if failed else 0


def done(figures: Figures) -> bool:
    """Whether the result is there, is whole, and is that of the model that is shipped now."""
    record = _recorded(figures)
    if not record:
        return False
    whole = re.match(r"(\d+) of \1\b", str(record.get("rows", "")))  # a table of reproduction.py whose rows are all there
    commands = [figures.command, *([f"{figures.command} --finished"] if whole else [])]
    return record["command"] in commands and (not figures.model or record["model"] == _shipped())


def made(figures: Figures, data: Path, work: Path) -> bool:
    """Run a command; its output appears under its name only if it ends with status 0."""
    for folder in (HOME, work):
        folder.mkdir(parents=True, exist_ok=True)
    part, began = HOME / f"{figures.name}.part", time.monotonic()
    print(f"{figures.name}: {figures.command}", flush=True)
    with part.open("w", encoding="utf-8") as output:
        status = subprocess.run(figures.arguments(data, work), stdout=output, cwd=ROOT, check=False).returncode
    minutes = (time.monotonic() - began) / 60
    print(f"{figures.name}: status {status}, {minutes:.1f} min", flush=True)
    if status != 0:
        return False
    os.replace(part, HOME / f"{figures.name}.txt")  # noqa: PTH105 - one step, also where the file exists
    record = {"what": figures.table, "command": figures.command, "commit": _commit(), "model": _shipped()}
    text = (HOME / f"{figures.name}.txt").read_text(encoding="utf-8")
    record |= {name: value for line in text.splitlines() if line.startswith('{"') for name, value in json.loads(line).items()}
    tables, before = tables_in(text), _recorded(figures).get("tables", [])
    old = Counter(json.dumps(row) for table in before for row in table)
    new = Counter(json.dumps(row) for table in tables for row in table)
    print(
        f"{figures.name}: {(new - old).total()} of {new.total()} rows differ from docs/results/{figures.name}.json before",
        flush=True,
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{figures.name}.json").write_text(as_json(record, tables), encoding="utf-8")
    return True


def tables_in(text: str) -> list[list[list[str]]]:
    """Return the tables of a text in Markdown: each is a list of rows, the head first."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    tables = [[[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.splitlines()] for block in blocks]
    return [[table[0], *table[2:]] for table in tables]


def as_json(record: dict[str, Any], tables: list[list[list[str]]]) -> str:
    """Return a result as JSON with a line for each row, so that a change of a figure is a change of a line."""
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in record.items())
    rows = (",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in table) for table in tables)
    return f'{{\n{head},\n "tables": [\n' + ",\n".join(f"  [\n{table}\n  ]" for table in rows) + "\n ]\n}\n"


def _recorded(figures: Figures) -> dict[str, Any]:
    """The result that is kept; {}: there is none."""
    try:
        return dict(json.loads((RESULTS / f"{figures.name}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _commit() -> str:
    """The commit that made a result."""
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()


def _shipped() -> str:
    """The hash of the shipped model, and the beginning of the digest of its int8 graph: another quantisation gives other figures."""
    manifest = json.loads(_MODEL.read_text(encoding="utf-8"))
    return f"{manifest['hash']} {manifest['files']['model.int8.onnx'][:8]}"


if __name__ == "__main__":
    sys.exit(main())
