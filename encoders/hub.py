"""Models from the Hugging Face hub, where a name says so: ``hf:OWNER/NAME``, ``hf:OWNER/NAME@REVISION``.

Nothing else of termweave fetches a model. The hub's own client does the work, with its own settings (HF_TOKEN, HF_ENDPOINT,
HF_HOME, HF_HUB_OFFLINE) and in its own cache: a download that broke off goes on, and what is there is not fetched again.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from termweave.encoders.folder import GRAPHS, MANIFEST, STATISTICS, TOKENIZER
from termweave.errors import ModelError, UsageError
from termweave.words import first_line

PREFIX = "hf:"
#: What a model folder or a backbone consists of; a repository often holds the same weights in five other formats.
_FILES = (
    MANIFEST,
    TOKENIZER,
    STATISTICS,
    *GRAPHS.values(),
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "model.safetensors",
    "heads.safetensors",
    "modules.json",
    "*_Pooling/config.json",
    "README.md",
)


def named(name: str) -> bool:
    """Whether a model's name means one on the hub."""
    return name.startswith(PREFIX)


def fetch(name: str) -> Path:
    """The folder of a model on the hub, fetched first where it is not here.

    Args:
        name: ``hf:OWNER/NAME``, or ``hf:OWNER/NAME@REVISION`` (a branch, a tag or a commit).

    Raises:
        UsageError: The name is none, or the hub has no such model or revision.
        ModelError: The hub does not answer and the model was not fetched before, or it may not be read.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - .3 s, and rarely wanted
    from huggingface_hub.errors import (  # noqa: PLC0415
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    if repository.count("/") != 1:
        raise _no_name(name)
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(_FILES)))
    except HFValidationError as error:
        raise _no_name(name) from error
    except GatedRepoError as error:
        raise ModelError(
            f"The hub does not let you read {repository}.",
            "Accept its conditions on its page, then set HF_TOKEN to a token of yours.",
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"The hub has no model {repository}, or does not show it to you.", "See the spelling; for a private one set HF_TOKEN."
        ) from error
    except RevisionNotFoundError as error:
        raise UsageError(f"{repository} has no revision {revision!r}.", "Name a branch, a tag or a commit of it.") from error
    except Exception as error:  # those of the client's transport differ from version to version
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise ModelError(
            f"{name} could not be fetched: {first_line(error)}.",
            "See the network (and HF_ENDPOINT, HF_HUB_OFFLINE), or download it elsewhere and give the folder.",
        ) from error


def _no_name(name: str) -> UsageError:
    return UsageError(f"{name!r} names no model on the hub.", "Write hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.")
