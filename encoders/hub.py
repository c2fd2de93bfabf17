"""Models on the Hugging Face hub, named ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION``.

Nothing else in termweave fetches a model. The hub's own client does the work, with its own settings (HF_TOKEN, HF_ENDPOINT, HF_HOME,
HF_HUB_OFFLINE) and in its own cache: an interrupted download continues, and a file that was fetched is not fetched again.
"""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path
from typing import Any

from termweave.encoders.manifest import GRAPHS, MANIFEST, SENTENCE_GRAPH, STATISTICS, TOKENIZER
from termweave.errors import ModelError, UsageError
from termweave.support.messages import first_line

PREFIX = "hf:"
#: A name that an index may give: no two dots in a row and no slash in the revision, which the cache would take for a path.
_CACHED = re.compile(r"hf:(?!.*\.\.)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[A-Za-z0-9][\w.-]*)?", re.ASCII)
#: The files of a model folder, of a backbone and of a sentence-transformers model. A repository often holds the same weights in
#: five other formats, too. A graph may have files of tensors: model.onnx_data.
_FILES = [MANIFEST, TOKENIZER, STATISTICS, *GRAPHS.values(), f"{SENTENCE_GRAPH}*"]
_FILES += """
    README.md idf.json config.json tokenizer_config.json special_tokens_map.json modules.json router_config.json
    config_sentence_transformers.json sentence_*_config.json heads.safetensors
    model.safetensors model.safetensors.index.json model-*-of-*.safetensors
    *Transformer/*.json *Transformer/model.safetensors *Transformer/model-*-of-*.safetensors
    *Pooling/config.json *_Dense/config.json *_Dense/model.safetensors
    document_*/*.json document_*/model.safetensors query_*/*.json query_*/model.safetensors
""".split()  # noqa: SIM905 - reads as the list it is


def is_hub_name(name: str) -> bool:
    """Whether a name begins with ``hf:``, the prefix of models on the hub."""
    return name.startswith(PREFIX)


def well_formed(name: str) -> bool:
    """Whether a name is ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION`` and holds nothing that a path or a shell would interpret."""
    return _CACHED.fullmatch(name) is not None


def cached(name: str) -> Path | None:
    """Return the folder of a model in the hub's local cache; None: the cache does not hold the model, or the name is malformed.

    No server is asked, so this function is safe for names that the user did not write.

    Args:
        name: ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION``.
    """
    if not well_formed(name):
        return None
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415 - .3 s, and rarely wanted

    try:
        return _snapshot(name, local_files_only=True)
    except (HFValidationError, LocalEntryNotFoundError):
        return None


def _snapshot(name: str, **options: Any) -> Path:
    """Have the hub's client return the folder of a model with a well-formed name; `options` are those of its `snapshot_download`."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - .3 s, and rarely wanted

    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_FILES, **options))


def fetch(name: str) -> Path:
    """Return the folder of a model on the hub; the files that are not in the local cache are fetched first.

    Args:
        name: ``hf:OWNER/NAME``, or ``hf:OWNER/NAME@REVISION`` (a branch, a tag or a commit).

    Raises:
        UsageError: The name is malformed, or the hub has no such model or revision.
        ModelError: The hub does not answer and the model was not fetched before, or the hub does not permit reading it.
    """
    from huggingface_hub import errors  # noqa: PLC0415 - .3 s, and rarely wanted
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    malformed = UsageError(f"{name!r} names no model on the hub.", "Write hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.")
    if repository.count("/") != 1:
        raise malformed
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        return _snapshot(name)
    except errors.HFValidationError as error:
        raise malformed from error
    except errors.GatedRepoError as error:
        hint = "Accept the conditions on the model's page, then set HF_TOKEN to a token of yours."
        raise ModelError(f"The hub does not let you read {repository}.", hint) from error
    except errors.RepositoryNotFoundError as error:
        raise UsageError(f"The hub has no model {repository}.", "Check the name; for a private model set HF_TOKEN.") from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(f"{repository} has no revision {revision!r}.", "Name a branch, a tag or a commit of it.") from error
    except Exception as error:  # the client's transport raises other classes in every version
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        hint = "Check the network (and HF_ENDPOINT, HF_HUB_OFFLINE), or download the model elsewhere and give the folder."
        raise ModelError(f"{name} could not be fetched: {first_line(error)}.", hint) from error
