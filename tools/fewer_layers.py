"""A faster model of term weights and vectors: some layers of a trained one, which learn to give what all layers gave.

    python -m tools.fewer_layers --data ../shared/data --layers 2,3,6 --out DIR

The teacher is the shipped model, or a folder that `termweave train` wrote (`--model`). Its hidden states are computed once, with the int8 graph
that serves, and cached (`training.term_weights.hidden_states`). The student begins as the layers of the teacher that `--layers` names (1
is the lowest), with its embeddings and heads. With H, H' the states of teacher and student after the lower and the last layer that the heads
read, v, v' the vectors, and z, z' the logits of pieces:

    loss = mean (H_lower - H'_lower)^2 / var(H_lower) + mean (H_last - H'_last)^2 / var(H_last) + 5 (1 - v . v') + mean (z - z')^2

The texts are documents and training questions of the data of the shipped model (or of `--sets`), without any judgement. A student's
vectors lie in the teacher's space, but an index is built and searched with one model: their hashes differ.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import STATISTICS, TOKENIZER, WEIGHTS
from termweave.encoders.model_lookup import DEFAULT, resolve
from termweave.encoders.models import joint_model
from termweave.encoders.models.joint_model import JointModel, masked_mean, pooled
from termweave.encoders.onnx.export import export
from termweave.encoders.term_weighting import BM25, Form
from termweave.errors import TermweaveError, UsageError
from termweave.support.messages import duration
from termweave.training import backbone_model
from termweave.training.data.pairs import Collection
from termweave.training.term_weights.hidden_states import States, states
from termweave.training.term_weights.preparation import prepare
from tools.shipped_model import SOURCES, on_backbone, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.encoders.manifest import Manifest
    from termweave.encoders.term_weighting import Kind
    from termweave.training.term_weights.batch import Prepared

#: Share of the vectors in the loss.
_VECTORS = 5.0
#: Steps between two lines about the progress.
_SAY_EVERY = 50


@dataclass(frozen=True)
class DistilledTexts:
    """Texts of one kind, and what the teacher makes of them.

    Attributes:
        kind: "document" or "query".
        prepared: The analysed texts.
        states: Hidden states of the teacher.
    """

    kind: Kind
    prepared: Prepared
    states: States

    def batches(self, tokens: int, generator: random.Random) -> Iterator[list[int]]:
        """Texts of similar length, at most so many word-pieces a batch, padding included; without end."""
        lengths = [len(each.ids) for each in self.prepared.pieces]
        while True:
            shuffled = generator.sample(range(len(lengths)), len(lengths))
            whole: list[list[int]] = []
            for first in range(0, len(shuffled), 1024):  # alike in length, but not the same texts each time
                batch: list[int] = []
                for place in sorted(shuffled[first : first + 1024], key=lengths.__getitem__):
                    if batch and lengths[place] * (len(batch) + 1) > tokens:
                        whole.append(batch)
                        batch = []
                    batch.append(place)
                whole.append(batch)
            generator.shuffle(whole)
            yield from whole


def teacher_of(name: str) -> tuple[JointModel, Manifest, Path]:
    """Load backbone and heads of a model with both outputs; the shipped one takes the backbone of its package."""
    path = resolve(name)
    manifest = read_folder(path, check=False).manifest
    if manifest.kind != "anchored" or set(manifest.outputs) != {"weights", "dense"}:
        raise UsageError(f"{name} does not give term weights and vectors from one pass.", "Name one that `train fectek` made.")
    # A shipped folder has the heads alone.
    model = joint_model.load(path)[0] if (path / WEIGHTS).is_file() else on_backbone(path, manifest)
    if not model.shape.lower:
        raise UsageError(f"The heads of {name} read the last layer alone.", "Name a model with hidden > 0.")
    return model.eval().float(), manifest, path


def student_of(teacher: JointModel, layers: Sequence[int]) -> JointModel:
    """Make a model of these layers of the teacher, counted from 1; its lower states are those after the last kept layer up to the teacher's lower one."""
    last = int(teacher.backbone.config.num_hidden_layers)
    if list(layers) != sorted(set(layers)) or not 1 <= layers[0] <= teacher.shape.layer or layers[-1] != last:
        raise UsageError(
            f"--layers {','.join(map(str, layers))} cannot be kept.",
            f"Name layers in rising order, at least one up to {teacher.shape.layer}, and {last} at the end.",
        )
    torch.manual_seed(0)
    config = type(teacher.backbone.config).from_dict({**teacher.backbone.config.to_dict(), "num_hidden_layers": len(layers)})
    config._attn_implementation = "eager"  # noqa: SLF001 - as `transformer.load_backbone` asks for
    backbone = type(teacher.backbone)(config, add_pooling_layer=False)
    shape = replace(teacher.shape, layer=sum(layer <= teacher.shape.layer for layer in layers))
    student = JointModel(backbone, shape, teacher.pooling)
    student.heads.load_state_dict(teacher.heads.state_dict())
    backbone.embeddings.load_state_dict(teacher.backbone.embeddings.state_dict())
    for place, layer in enumerate(layers):
        backbone.encoder.layer[place].load_state_dict(teacher.backbone.encoder.layer[layer - 1].state_dict())
    return student


def distillation_loss(teacher: JointModel, student: JointModel, texts: DistilledTexts, batch: Sequence[int]) -> Tensor:
    """The loss of one batch, as the docstring of this file has it."""
    ids, mask, features, expected = _padded(texts, batch)
    half = expected.shape[-1] // 2
    real = mask.bool()
    with torch.autocast("cpu", torch.bfloat16):
        lower, last = student.states(ids, mask)
    lower, last = lower.float(), last.float()
    both = torch.cat((lower, last), dim=-1)
    loss = torch.zeros(())
    for states_of_student, states_of_teacher in ((lower, expected[..., :half]), (last, expected[..., half:])):
        target = states_of_teacher[real]
        loss = loss + nn.functional.mse_loss(states_of_student[real], target) / target.var()
    cosine = (pooled(last, mask, teacher.pooling) * pooled(expected[..., half:], mask, teacher.pooling)).sum(dim=-1)
    with torch.no_grad():
        z = teacher.heads.head(texts.kind)(expected, features, masked_mean(expected, mask).unsqueeze(1))
    logits = student.heads.head(texts.kind)(both, features, masked_mean(both, mask).unsqueeze(1))
    words = features[..., 0] > 0  # the others are no pieces of terms, and their logits are not used
    return loss + _VECTORS * (1 - cosine).mean() + (nn.functional.mse_loss(logits[words], z[words]) if bool(words.any()) else 0.0)


def _padded(texts: DistilledTexts, batch: Sequence[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids ``(T, n)``, mask ``(T, n)``, features ``(T, n, 2)`` and the teacher's states ``(T, n, 2d)``."""
    pieces, anchors = [texts.prepared.pieces[place] for place in batch], [texts.prepared.anchors[place] for place in batch]
    features = [anchor.features(each.words, texts.kind) for anchor, each in zip(anchors, pieces, strict=True)]
    states = [texts.states.values[texts.states.starts[place] : texts.states.starts[place + 1]] for place in batch]
    ids = [torch.from_numpy(each.ids) for each in pieces]
    floats = ([torch.from_numpy(each.astype("float32")) for each in part] for part in (features, states))
    ids_mask_and_floats = (ids, [torch.ones_like(each) for each in ids], *floats)
    return tuple(nn.utils.rnn.pad_sequence(each, batch_first=True) for each in ids_mask_and_floats)


def texts_of(
    sets: Sequence[Path], most: int, teacher: JointModel, manifest: Manifest, path: Path, length: int
) -> list[DistilledTexts]:
    """Documents and training questions of these sets, at most so many of each, with the teacher's states."""
    tokenizer = PieceTokenizer(path / TOKENIZER)
    analysis = analysis_of(manifest.analysis, tokenizer.tokenizer, model=manifest.name)
    bm25 = BM25.from_anchor(manifest.anchor)
    parts = []
    for folder in sets:
        data = Collection(folder)
        statistics = data.statistics(analysis)
        kinds: dict[Kind, list[str]] = {"document": data.texts, "query": [query.text for query in data.judged("train")[0]]}
        for kind, texts in kinds.items():
            drawn = random.Random(0).sample(texts, min(most, len(texts)))  # noqa: S311
            prompt = str(manifest.settings.get("prompts", {}).get(kind, ""))
            form = Form.from_anchor(manifest.anchor)
            prepared = prepare(drawn, analysis, tokenizer, statistics, bm25, kind, length, form, prompt)
            target = states(teacher, backbone_model.fingerprint(teacher.backbone), prepared.pieces, say=say)
            parts.append(DistilledTexts(kind, prepared, target))
    return parts


def distil(
    teacher: JointModel, student: JointModel, parts: Sequence[DistilledTexts], steps: int, tokens: int, rate: float
) -> None:
    """Train the student in place: AdamW, one cycle; a part is drawn by its number of word-pieces."""
    generator = random.Random(0)  # noqa: S311
    streams = [part.batches(tokens, generator) for part in parts]
    shares = [float(part.states.starts[-1]) for part in parts]
    optimizer = torch.optim.AdamW(student.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.05)
    student.train()
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # the teacher's states have none
    began, total = time.monotonic(), 0.0
    for step in range(1, steps + 1):
        chosen = generator.choices(range(len(parts)), shares)[0]
        loss = distillation_loss(teacher, student, parts[chosen], next(streams[chosen]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += float(loss.detach())
        if step % _SAY_EVERY == 0:
            left = (time.monotonic() - began) / step * (steps - step)
            say(f"step {step} of {steps}: loss {total / _SAY_EVERY:.4f}, {duration(left)} left")
            total = 0.0
    student.eval()


def write(student: JointModel, manifest: Manifest, path: Path, out: Path, described: dict[str, Any]) -> None:
    """Write and export the student's folder."""
    out.mkdir(parents=True)
    for name in (TOKENIZER, STATISTICS):
        shutil.copyfile(path / name, out / name)
    training = {**described, "backbone_hash": backbone_model.fingerprint(student.backbone)}
    joint_model.save(student, out, replace(manifest, name=out.name, hash="", files={}, quantisation={}, training=training))
    say(f"exported: {export(out)}")


def layers(text: str) -> list[int]:
    """Numbers with commas between them; argparse says in one line what is none."""
    return [int(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the docstring of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fewer_layers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, in BEIR's layout")
    parser.add_argument("--sets", nargs="+", default=[source.set for source in SOURCES], help="%(default)s")
    parser.add_argument("--model", default=DEFAULT, help="the teacher [%(default)s]")
    parser.add_argument("--layers", type=layers, default="2,3,6", help="layers of the teacher that stay [%(default)s]")
    parser.add_argument("--out", type=Path, required=True, help="new folder of the student")
    parser.add_argument("--texts", type=int, default=20_000, help="most documents and most questions of a set [%(default)s]")
    parser.add_argument("--length", type=int, default=128, help="word-pieces of a text [%(default)s]")
    parser.add_argument("--steps", type=int, default=2000, help="[%(default)s]")
    parser.add_argument("--tokens", type=int, default=2048, help="word-pieces of a step [%(default)s]")
    parser.add_argument("--rate", type=float, default=3e-4, help="largest learning rate [%(default)s]")
    options = parser.parse_args(arguments)
    try:
        if options.out.exists():
            raise UsageError(f"{options.out} exists.", "Name a new folder with --out.")
        teacher, manifest, path = teacher_of(options.model)
        student = student_of(teacher, options.layers)
        sets = [options.data / name for name in options.sets]
        parts = texts_of(sets, options.texts, teacher, manifest, path, options.length)
        distil(teacher, student, parts, options.steps, options.tokens, options.rate)
        described = {
            "method": f"layers {', '.join(map(str, options.layers))} of {manifest.name} ({manifest.hash}), {options.steps} steps of distillation"
        }
        write(student, manifest, path, options.out, described)
    except TermweaveError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
