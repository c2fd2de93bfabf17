"""SIR (paper 003): a ranker that selects its own hard negatives, in the four versions of the paper, and three baselines.

A block of a question holds one right document, always at place 0, and |S_i| wrong ones. M compressors, the last of which is the
classifier, read smaller and smaller blocks: 88, 48 and 16 documents in the paper, the right one included (K_1 = 47, K_2 = 15).

    P(o^j)   = exp(o^j) / sum_j' exp(o^j')                                                         Eq. 2
    L(i)     = -log P(o_i^0) - sum_{j>=1} log(1 - P(o_i^j))                                        Eq. 1
    S_{i+1}  = Top(f_i(S_i), K_i), and the right document                                          Eq. 4
    V1, V2   theta_i = argmin sum_q L(i), one fit after the other; V2 goes on from compressor i-1  Eq. 3
    V3       L = L(1) + L(M), one model, blocks selected anew in every step                        Eq. 5, 6
    CPR_i    = softmax(P_1 * ... * P_i), documents matched by identity                             Eq. 7
    V4       L = sum_i L(i) with CPR_i for P                                                       Eq. 8, 9

Eq. 7 as printed is a softmax of numbers between 0 and 1: CPR of the right document is at most .0303 in a block of 88, .0547 of 48, .1534 of
16, .2797 of 8, and the loss cannot fall below 4.4718, 3.8613, 2.7460, 2.0341. Indices of a selection carry no gradient, probabilities of all levels do.

Readings. In V1 every compressor starts from the same checkpoint. So with the random selector the earlier ones have no effect, and only the
last one is trained. With the top selector V1 and V2 select once, from all candidates of a question. Baselines have one block of the last size:
random (wrong documents of the whole collection), static (the first stage's best), lcl (localized contrastive loss: -log P(o^0), wrong
documents drawn anew from the candidates). The paper prints no schedule: the rate rises for a tenth of the steps and falls linearly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from termweave.declared_settings import Setting, written
from termweave.errors import UsageError
from termweave.support.messages import duration, paced
from termweave.training.data.arrays import np, torch
from termweave.training.methods.base import Preset
from termweave.training.methods.cross_encoder import CrossEncoderMethod, RankerParameters
from termweave.training.methods.parameters import PRESET, TO_THE_END, MixtureParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.training.data.sampler import Batch
    from termweave.training.methods.base import Questions
    from termweave.training.ranker.model import Blocks, RankerInputs
    from termweave.training.trainer.trainer import Fit, Trainer

#: Versions that train one compressor after the other, and those that train one model on all levels.
_ONE_BY_ONE, _TOGETHER = ("v1", "v2"), ("v3", "v4")
_BASELINES = ("random", "static", "lcl")
#: Seconds between two lines about a selection.
_SAY_EVERY = 15.0


# -- Equations -------------------------------------------------------------------------------------------------------------------


def log_probabilities(scores: Tensor, present: Tensor) -> Tensor:
    """Compute log P of Eq. 2 over each block: ``(B, n) -> (B, n)``; -inf for an absent document."""
    return scores.masked_fill(~present, -torch.inf).log_softmax(dim=1)


def block_loss(logarithms: Tensor, present: Tensor) -> Tensor:
    """Compute Eq. 1 (Eq. 8, given log CPR), the mean over the blocks.

    Args:
        logarithms: log P ``(B, n)``, float32 or better; the right document at place 0.
        present: bool ``(B, n)``.

    Returns:
        A scalar. For a P near 1, 1 - P is summed from the other documents' P, so that it keeps its digits and its gradient.
    """
    size = logarithms.shape[1]
    itself = torch.eye(size, dtype=torch.bool, device=logarithms.device)[1:]
    others = logarithms.unsqueeze(1).expand(-1, size - 1, -1).masked_fill(itself, -torch.inf).logsumexp(dim=2)
    shares = logarithms[:, 1:].exp()
    wrong = torch.where(shares > 0.5, others, torch.log1p(-shares.clamp(max=0.5))).masked_fill(~present[:, 1:], 0.0)
    return (-logarithms[:, 0] - wrong.sum(dim=1)).mean()


def survivors(scores: Tensor, present: Tensor, size: int) -> Tensor:
    """Select by Eq. 4: places of the right document and of the `size` - 1 wrong ones with the largest scores.

    Args:
        scores: ``(B, n)``: scores by the compressor, or random numbers.
        present: bool ``(B, n)``; absent documents come last.
        size: Documents of the next block, the right one included.

    Returns:
        int64 ``(B, min(size, n))``, 0 first. It carries no gradient.
    """
    wrong = scores.detach().masked_fill(~present, -torch.inf)[:, 1:]
    best = wrong.argsort(dim=1, descending=True, stable=True)[:, : size - 1] + 1
    return torch.cat([torch.zeros_like(best[:, :1]) if best.shape[1] else best.new_zeros((len(best), 1)), best], dim=1)


def conditional(levels: Sequence[Tensor], kept: Sequence[Tensor], present: Sequence[Tensor]) -> list[Tensor]:
    """Compute log CPR of each level (Eq. 7); documents are matched by identity.

    Args:
        levels: log P of each level, ``(B, n_i)``.
        kept: For each level but the first: places of its documents in the level before, int64 ``(B, n_i)``.
        present: bool ``(B, n_i)`` of each level.
    """
    result: list[Tensor] = []
    earlier: list[Tensor] = []
    for level, (logarithms, present_here) in enumerate(zip(levels, present, strict=True)):
        earlier = [each.gather(1, kept[level - 1]) for each in earlier]
        earlier.append(logarithms)
        joint = torch.stack(earlier).masked_fill(~present_here, 0.0).sum(dim=0)  # 0 where absent: no gradient through -inf
        result.append(log_probabilities(joint.exp(), present_here))
    return result


# -- Candidates ------------------------------------------------------------------------------------------------------------------


def _block(
    inputs: RankerInputs, settings: SirParameters, question: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Draw one right document and wrong ones: int64 ``(n,)``, and the features of the first stage, float32 ``(n, F)``."""
    lists, size = inputs.lists, settings.block()
    right = int(generator.choice(sorted(inputs.pairs.relevant[question])))
    column = int(np.flatnonzero(lists.documents[question] == right)[0])
    documents = np.full(size, -1, dtype=np.int64)  # `first_stage.NOTHING`
    features = np.zeros((size, lists.features.shape[2]), dtype=np.float32)
    documents[0], features[0] = right, lists.features[question, column]
    if settings.variant == "random":  # any documents of the collection; the first stage knows nothing of most of them
        drawn = generator.integers(len(inputs.documents), size=2 * size)
        known = inputs.pairs.known[question]
        wrong = np.array([each for each in dict.fromkeys(drawn.tolist()) if each not in known], dtype=np.int64)
        if len(wrong) < size - 1:  # in a small collection many were drawn twice
            others = np.setdiff1d(np.arange(len(inputs.documents)), [*wrong, *known])
            wrong = np.concatenate([wrong, generator.permutation(others)])
        wrong = wrong[: size - 1]
        documents[1 : 1 + len(wrong)] = wrong
        return documents, features
    pool = inputs.negatives[question]
    columns = (pool if settings.variant == "static" else generator.permutation(pool))[: size - 1]
    documents[1 : 1 + len(columns)] = lists.documents[question, columns]
    features[1 : 1 + len(columns)] = lists.features[question, columns]
    return documents, features


def narrowed(model: Any, inputs: RankerInputs, keep: int, say: Callable[[str], None]) -> RankerInputs:
    """Apply Eq. 4 after a fit: keep, of each question's wrong candidates, the `keep` that the trained compressor scores best."""
    chosen: list[NDArray[np.int64]] = []
    began = reported = time.monotonic()
    for question, columns in enumerate(inputs.negatives):
        if question and time.monotonic() - reported > _SAY_EVERY:
            reported = time.monotonic()
            rate = question / (reported - began)
            left = (len(inputs.negatives) - question) / rate
            of = f"{question:,} of {len(inputs.negatives):,} questions"
            say(f"selecting the best {keep}: {of}, {paced(rate, 'question')}, {duration(left)} left")
        lists = inputs.lists
        texts = [inputs.documents[document] for document in lists.documents[question, columns].tolist()]
        scores = model.rank(inputs.reader, inputs.pairs.questions[question], texts, lists.features[question, columns])
        chosen.append(columns[(-scores).argsort(kind="stable")[:keep]])
    return replace(inputs, negatives=chosen)


# -- Declaration -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SirParameters(MixtureParameters, RankerParameters):
    """The parameters of sir."""

    heading: ClassVar[str] = "Of sir"
    preset: Annotated[Literal["default", "paper"], PRESET] = "default"
    variant: Annotated[
        Literal["v1", "v2", "v3", "v4", "random", "static", "lcl"], Setting("Version of the paper, or a baseline.")
    ] = "v3"
    blocks: Annotated[
        tuple[int, ...], Setting("Documents in the block of each compressor, the right one included: 88,48,16 in the paper.")
    ] = (16, 8)
    selector: Annotated[
        Literal["auto", "top", "random"],
        Setting("Wrong documents that go on: the best or any; auto: top for v3 and v4, else random."),
    ] = "auto"
    reuse: Annotated[bool, Setting("Later levels take scores from the first pass; false: each is scored again.")] = True
    questions: int = 2000
    dev: int = 50
    batch: int = 4
    steps: int = 300
    every: int = 50
    layers_rate: float = 3e-5
    schedule: Literal["one-cycle", "linear", "constant"] = "linear"
    warmup: float = 0.1

    @classmethod
    def derived(cls, changed: Mapping[str, object]) -> dict[str, object]:
        """Return derived defaults: no anchor with variant=random, because the first stage has no scores of random documents."""
        return super().derived(changed) | ({"anchor": False} if changed.get("variant") == "random" else {})

    def check(self) -> None:
        """Raise `UsageError` for block sizes that do not decrease or cannot be filled, and for an anchor where the first stage has no scores."""
        super().check()
        sizes = self.blocks
        if not sizes or sizes[-1] < 2 or any(one <= other for one, other in pairwise(sizes)):
            raise UsageError(
                f"blocks={written(sizes)} cannot be used.", "Write falling whole numbers from 2 on: blocks=88,48,16."
            )
        if self.variant not in _BASELINES and sizes[0] - 1 > self.candidates:
            raise UsageError(
                f"A block of {sizes[0]} documents needs candidates={sizes[0] - 1}.", "Raise candidates, or shorten it."
            )
        if self.variant == "random" and self.anchor:
            raise UsageError("The first stage has no score of random documents.", "Set anchor=false, or another variant.")

    def selected_by(self) -> str:
        """Return the selector, "top" or "random": as set, or for "auto" the better one in the paper."""
        return self.selector if self.selector != "auto" else "top" if self.variant in _TOGETHER else "random"

    def block(self) -> int:
        """Return the size of the first block, or of the only block of a baseline."""
        return self.blocks[-1 if self.variant in _BASELINES else 0]

    def trained_blocks(self) -> tuple[int, ...]:
        """Return the sizes of the blocks that are scored with gradients: in a step, or with V1 and V2 in one step of each fit."""
        if self.variant in _BASELINES or (self.variant == "v1" and self.selected_by() == "random"):
            return self.blocks[-1:]
        return self.blocks[:1] if self.variant in _TOGETHER and self.reuse else self.blocks

    def scored(self) -> int:
        """Return how many pairs a step scores, with V1 and V2 summed over one step of every fit; the selection between two fits is not counted."""
        return self.batch * sum(self.trained_blocks())


class Sir(CrossEncoderMethod):
    """A ranker (cross-encoder) that selects its own hard negatives: self-involvement ranker.

        Eq. 1     L(i) = -log P(o_i^0) - sum over wrong j of log(1 - P(o_i^j));  Eq. 2: P = softmax over the block
        Eq. 4     S_{i+1} = the K_i wrong documents with the best scores, and the right one
        Eq. 5     V3: L = L(1) + L(M)
        Eq. 7     CPR_i = softmax(P_1 * ... * P_i), of the documents of level i
        Eq. 8, 9  V4: L = sum over i of L(i) with CPR_i for P

    The default ranker is anchored: its logit is the first stage's score times a factor, plus a residual that starts at zero, so that it
    begins as the first stage and learns what that gets wrong. preset=paper is the paper's model: no anchor, blocks of 88, 48 and 16. V1 and
    V2 train one compressor after the other; with their top selector they collapse in the paper.
    """

    name = "sir"
    source = "Yes SIR! Optimizing semantic space of negatives with self-involvement ranker (paper 003)"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            "the paper's set-up: no anchor, blocks of 88, 48 and 16, each level scored again, AdamW 5e-5, 2 epochs over all questions; not printed: "
            "512 word-pieces, a rate that falls linearly after a tenth; the paper's candidates are those of HDCT or ANCE, here of candidates_from",
            {
                **TO_THE_END,
                "anchor": False,
                "variant": "v4",
                "blocks": (88, 48, 16),
                "reuse": False,
                "batch": 4,
                "layers_rate": 5e-5,
                "rate": 5e-5,
                "max_length": 512,
                "training_length": 512,
                "epochs": 2.0,
                "every": 1000,
            },
        )
    }
    parameters = SirParameters

    def draw(self, inputs: Any, settings: Any, generator: np.random.Generator, questions: Questions) -> Blocks:
        """Draw a block for each question: one right document, and wrong ones from where `variant` says."""
        rows = questions()
        drawn = [_block(inputs, settings, question, generator) for question in rows.tolist()]
        documents, features = (np.stack(part) for part in zip(*drawn, strict=True))
        blocks: Blocks = self.models.Blocks(rows, documents, features, generator.random(documents.shape, dtype=np.float32))
        return blocks

    def loss(self, fit: Fit, batch: Batch) -> dict[str, Tensor]:
        """Compute the parts of the loss of a batch: "block" for one block, else "level1" and so on."""
        settings = fit.settings
        present = torch.from_numpy(batch.drawn.documents >= 0).to(fit.device)
        if settings.variant not in _TOGETHER:
            logarithms = log_probabilities(self.score(fit, batch), present)
            contrast = settings.variant == "lcl"
            return {"block": -logarithms[:, 0].mean() if contrast else block_loss(logarithms, present)}
        levels, places, present_at = self._levels(fit, batch, present)
        if settings.variant == "v4":
            levels = conditional(levels, places, present_at)
            used = list(range(len(levels)))  # Eq. 9
        else:
            used = sorted({0, len(levels) - 1})  # Eq. 5
        return {f"level{level + 1}": block_loss(levels[level], present_at[level]) for level in used}

    def _levels(self, fit: Fit, batch: Batch, present: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Compute Algorithm 1, lines 1 and 2: log P of each level, the places of documents that went on to the next level, and masks of present documents."""
        settings, random = fit.settings, torch.from_numpy(batch.drawn.keys).to(fit.device)
        scores, places = self.score(fit, batch), torch.arange(present.shape[1], device=present.device).expand_as(present)
        levels, selected, present_at = [log_probabilities(scores, present)], [], [present]
        for size in settings.blocks[1:]:
            by = scores if settings.selected_by() == "top" else random.gather(1, places)
            selected.append(survivors(by, present_at[-1], size))
            places = places.gather(1, selected[-1])
            present_at.append(present_at[-1].gather(1, selected[-1]))
            scores = scores.gather(1, selected[-1]) if settings.reuse else self.score(fit, batch, places)
            levels.append(log_probabilities(scores, present_at[-1]))
        return levels, selected, present_at

    def fits(self, trainer: Trainer) -> None:
        """Fit one model; V1 and V2 fit each compressor whose result is used."""
        settings: SirParameters = trainer.settings
        if settings.variant not in _ONE_BY_ONE:
            trainer.fit()
            return
        sizes, top = settings.blocks, settings.selected_by() == "top"
        inputs: Sequence[RankerInputs] = trainer.inputs
        begun = {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}
        for level, size in enumerate(sizes):
            last = level == len(sizes) - 1
            if settings.variant == "v1":
                if not (top or last):
                    continue
                trainer.model.load_state_dict(begun)
            trainer.fit(f"compressor-{level + 1}", inputs, blocks=(size,))
            if top and not last:
                inputs = [narrowed(trainer.model, each, sizes[level + 1] - 1, trainer.say) for each in inputs]
