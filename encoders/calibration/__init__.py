"""The spread of a model's scores: the unit in which fusion measures the scores of a query.

The similarities of one dense model lie between -.1 and .7, those of another all between .7 and .9. What a difference of .1 means
therefore depends on the model. It is measured on fixed questions and texts that are part of this package, so that it is a property
of the model and not of a corpus: how far the best similarity of a question lies above the hundredth of 240. Each question is answered by
one text; the texts of a topic are plausible wrong answers, and the other topics are unrelated.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from termweave.support import atomic_files, paths

if TYPE_CHECKING:
    from termweave.encoders.text_encoder import TextEncoder


#: The best similarity of a question is compared with the one at this share of the list: the hundredth of 240.
BELOW = 100 / 240
#: The file of a model folder that holds its figure.
NOTE = "calibration.json"
#: Of the texts and the measure. A note of another version does not count.
_VERSION = 1


@cache
def questions_and_texts(language: str) -> tuple[list[str], list[str]]:
    """The questions and texts in a language, "english" or "chinese"; the text at a position answers the question there."""
    rows = [json.loads(line) for line in (Path(__file__).parent / f"{language}.jsonl").read_text("utf-8").splitlines()]
    return [row["question"] for row in rows], [row["text"] for row in rows]


def spread(encoder: TextEncoder, output: str) -> float:
    """Measure the distance between the scores that an encoder's model gives for an output.

    An exported model brings the figure along (`write`). For other models the first call encodes the texts, which takes seconds, and
    notes the figure in the cache.

    Args:
        encoder: The encoder whose model is measured.
        output: "dense": the mean difference between the best and a middling similarity of a question. "weights", for a sparse model not
            made by termweave: the mean difference between the best and a middling score of a question, as a share of the best score.

    Returns:
        A figure above 0; 0 for an encoder without this output.
    """
    models = encoder.models
    if output not in models:
        return 0.0
    hashes = _hashes(encoder, output)
    figure = noted(models[output].folder, hashes, output)
    if figure is None:
        figure = _measured(encoder) if output == "dense" else _measured_weights(encoder)
        _note(_cached(output, hashes), output, figure, hashes)
    return figure


def noted(folder: Path | None, hashes: list[str], output: str = "dense") -> float | None:
    """Read the spread noted in a model's folder or in the cache; None: it was never measured, or the note is damaged."""
    for file in (*([folder / NOTE] if folder else []), _cached(output, hashes)):
        try:
            content = json.loads(file.read_bytes())
            if content["models"] == hashes and content["version"] == _VERSION:
                return float(content[f"{output}_spread"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _cached(output: str, hashes: list[str]) -> Path:
    """The file in the cache that notes the spread of the models with these hashes."""
    return paths.cache() / "calibration" / f"{output}-{'-'.join(hashes)}.json"


def write(encoder: TextEncoder) -> None:
    """Measure the spread of an exported dense model and note it in the model's folder, so that the figure travels with the model."""
    _note(encoder.models["dense"].local_folder / NOTE, "dense", _measured(encoder), _hashes(encoder, "dense"))


def _hashes(encoder: TextEncoder, output: str) -> list[str]:
    """The hash of the document encoder and, if there is a separate query encoder, that one's hash."""
    models = encoder.models
    return [models[name].hash for name in (output, f"{output}_query") if name in models]


def _note(file: Path, output: str, measured: float, hashes: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write(file, json.dumps({f"{output}_spread": measured, "models": hashes, "version": _VERSION}).encode())


def _measured(encoder: TextEncoder) -> float:
    """Measure `spread` of the vectors, in the language in which the model finds more of the right answers; on a tie in English."""
    encoder = encoder.only({"dense"})
    results = []
    for language in ("english", "chinese"):
        questions, texts = questions_and_texts(language)
        queries = np.stack([each.vector for each in encoder.encode(questions, kind="query") if each.vector is not None])
        documents = np.stack([each.vector for each in encoder.encode(texts, kind="document") if each.vector is not None])
        similarities = queries @ documents.T
        answered = float(np.mean(similarities.argmax(axis=1) == np.arange(len(texts))))
        ordered = -np.sort(-similarities, axis=1)
        results.append((answered, float(np.mean(ordered[:, 0] - ordered[:, round(BELOW * len(texts)) - 1]))))
    return max(1e-6, max(results, key=lambda result: result[0])[1])


def _measured_weights(encoder: TextEncoder) -> float:
    """Measure `spread` of the term weights, in English."""
    encoder = encoder.only({"weights"})
    questions, texts = questions_and_texts("english")
    queries, documents = (
        [each.weights.as_dict() for each in encodings if each.weights is not None]
        for encodings in (encoder.encode(questions, kind="query"), encoder.encode(texts, kind="document"))
    )
    shares = []
    for query in queries:
        scores = [sum(factor * text.get(term, 0.0) for term, factor in query.items()) for text in documents]
        best, *others = sorted(scores, reverse=True)
        if best > 0:
            shares.append(1 - others[round(BELOW * len(texts)) - 2] / best)
    return max(1e-6, float(np.mean(shares))) if shares else 1.0
