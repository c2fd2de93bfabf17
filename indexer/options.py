"""The build options, each declared once: command line, checks, fingerprint, ledger and updates read this table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from termweave.indexer.option_declaration import BuildOption, Flag, declared, option
from termweave.indexer.option_values import (
    MAPPING,
    MODEL,
    PRUNING,
    SETTINGS,
    SIGNALS,
    SWITCH,
    TEXT,
    VECTORS,
    WINDOW,
    as_json,
    as_text,
    check_mapping,
    check_settings,
    check_vectors,
    number,
    passages_of,
    pruning,
    pruning_of,
    share,
    vectors_of,
    whole_number,
    window,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.indexer.preparation.passages import Window
    from termweave.signals.pruning import Pruning

#: The headings of `index --help`, in their order. The first group needs no heading.
CONTENT, FIRST, MODELS, SENDING, SERVER = "Reading the corpus", "Options", "Models and signals", "Sending", "Index on the server"


def model(flag: str, text: str, default: str, example: str = "./my-model") -> Any:
    """Declare an option that takes a model. Another model makes another generation.

    Args:
        flag: "--weights".
        text: What `--help` says.
        default: What `--help` says of the default.
        example: A value, as the command line takes it.
    """
    made = Flag(flag, text, default=default, metavar="MODEL", example=example)
    return option(None, MODEL, made, heading=MODELS, optional=True, in_fingerprint="model")


@dataclass(frozen=True)
class BuildOptions:
    """How to build an index. The order of the fields is the order in which messages list them.

    Attributes:
        weights: Weights model: a folder, a package, a name or hf:OWNER/NAME; None: the shipped one; "none": no term weights.
        dense: Dense model, likewise.
        dense_query: Dense model for queries, where it is another one than `dense`; "none": the one that `dense` has for them.
        signals: Names of the signals; None: all that models and server allow.
        analyzer: OpenSearch analyzer of the text; None: english, or one that suits the language of the corpus.
        shards: Primary shards.
        settings: Further index settings: flat keys that begin with "index.".
        mapping: Further mapping. Its properties are filled from the metadata of the same name.
        keep_mapping: Take over mapping, analysis and fields of a source that is an index (`preparation.kept_mapping`).
        skip_bad: Leave out entries that cannot be read, and the second of two documents with one id.
        passages: How long texts are cut into passages; None: not at all.
        prune: Which impacts are not stored.
        vectors: How the numbers of vectors are stored: "float" or "byte".
        replicas: Copies of each shard; None: 1 if there are several data nodes, else 0.
        workers: Connections that send at the same time.
        patience: Seconds to keep trying while the server is overloaded or away.
        loading: Whether refresh and replicas are off while documents are sent; both are restored before verification.
        allow_refused: Share of the documents, 0 to 1, that the server may refuse before the generation is held back.
        fresh: Delete an unfinished generation instead of resuming it.
    """

    weights: str | Path | None = model(
        "--weights", "Weights model: folder, package, name or hf:OWNER/NAME; 'none' for no learned weights.", "the shipped one"
    )
    dense: str | Path | None = model(
        "--dense",
        "Dense model: the same, also in the layout of sentence-transformers; 'none' for no vectors.",
        "the shipped one",
    )
    dense_query: str | Path | None = model(
        "--dense-query",
        "Dense model for queries alone, trained together with --dense; with --update it takes the place of the one before, and no "
        "document is encoded again; 'none' for the one of --dense.",
        "the one of --dense",
        example="./my-query-model",
    )
    signals: tuple[str, ...] | None = option(
        None,
        SIGNALS,
        Flag(
            "--signals",
            "Signals to build, of lexical, weights, dense, term_frequency.",
            default="the first three, as far as models and server allow",
            metavar="LIST",
            example="lexical,dense",
            describe=",".join,
            compare=lambda signals: sorted(signals or ()),
            of_generation=lambda generation: sorted(generation.signals),
        ),
        heading=MODELS,
        optional=True,
        in_fingerprint="always",
        plain=list,
        kept_by_update=True,
    )
    analyzer: str | None = option(
        None,
        TEXT,
        Flag(
            "--analyzer",
            "OpenSearch analyzer of the text.",
            default="english; cjk or another if the models do not know the language",
            example="english",
            of_generation=lambda generation: generation.signals.get("lexical", {}).get("analyzer", "none"),
        ),
        heading=MODELS,
        optional=True,
        in_fingerprint="always",
        kept_by_update=True,
    )
    shards: int = option(
        1,
        whole_number(1),
        Flag("--shards", "Primary shards.", example="2"),
        heading=SERVER,
        in_fingerprint="always",
        kept_by_update=True,
    )
    settings: Mapping[str, Any] = option(
        dict,
        SETTINGS,
        Flag(
            "--settings",
            "Further index settings (JSON): analyzers, merges.",
            default="",
            metavar="FILE",
            example="FILE",
            describe=as_json,
            compare=lambda settings: {key: as_text(value) for key, value in settings.items()},
        ),
        heading=SERVER,
        in_fingerprint="always",
        plain=dict,
        kept_by_update=True,
        check=check_settings,
    )
    mapping: Mapping[str, Any] = option(
        dict,
        MAPPING,
        Flag(
            "--mapping",
            "Further mapping (JSON): your own properties are filled from the metadata of the same name.",
            default="",
            metavar="FILE",
            example="FILE",
            describe=as_json,
            compare=dict,
        ),
        heading=SERVER,
        in_fingerprint="always",
        plain=dict,
        kept_by_update=True,
        check=check_mapping,
    )
    keep_mapping: bool = option(
        False,
        SWITCH,
        Flag(
            "--keep-mapping",
            "Take over mapping, analyzers and fields of the index that is read, so that its queries work on NAME as before.",
            describe=lambda value: "yes" if value else "no",
            compare=bool,
            of_generation=lambda generation: "kept" in generation.source,
        ),
        heading=SERVER,
        in_fingerprint="if set",
        kept_by_update=True,
    )
    skip_bad: bool = option(
        False,
        SWITCH,
        Flag(
            "--skip-bad",
            "Leave out entries that cannot be read and the second of two documents with one id, and report them.",
            describe=lambda value: "yes" if value else "no",
        ),
        heading=CONTENT,
        in_fingerprint="always",
    )
    passages: Window | None = option(
        None,
        WINDOW,
        Flag(
            "--passage-size",
            "Cut longer texts into passages of whole sentences, each of at most so many words, which overlap by a quarter; 0: never. 160 suits "
            "the shipped model.",
            whole_number(0, example="160"),
            metavar="WORDS",
            example="160",
            default="0",
            describe=lambda window: str(window) if window else "none",
            compare=lambda window: str(window or 0),
            of_generation=passages_of,
            noted=True,
        ),
        heading=FIRST,
        optional=True,
        in_fingerprint="always",
        plain=lambda window: window.parameters() if window else {},
        kept_by_update=True,
        combine=window,
    )
    prune: Pruning = option(
        lambda: pruning("0"),
        PRUNING,
        Flag(
            "--prune",
            "Do not store light impacts: 0.1 (below .1 of the largest) or 30% (the lightest of each document).",
            default="",
            metavar="RULE",
            example="30%",
            of_generation=pruning_of,
            noted=True,
        ),
        heading=MODELS,
        in_fingerprint="if set",
        plain=lambda pruning: [pruning.share, pruning.below],
        kept_by_update=True,
    )
    vectors: str = option(
        "float",
        VECTORS,
        Flag(
            "--vectors",
            "How vectors are stored: float, or byte, which takes a quarter of the room.",
            metavar="TYPE",
            example="byte",
            of_generation=vectors_of,
            noted=True,
        ),
        heading=MODELS,
        in_fingerprint="if set",
        kept_by_update=True,
        check=check_vectors,
    )
    replicas: int | None = option(
        None,
        whole_number(0, example="1"),
        Flag("--replicas", "Copies of each shard.", default="1 with several data nodes, else 0", example="1"),
        heading=SERVER,
        optional=True,
        kept_by_update=True,
    )
    workers: int = option(
        4,
        whole_number(1, 64, "4"),
        Flag("--workers", "Connections that send at the same time.", example="4"),
        heading=SENDING,
    )
    patience: float = option(
        120.0,
        number(0, example="60"),
        Flag(
            "--patience",
            "Seconds to keep trying while the server is overloaded or away.",
            describe=lambda seconds: f"{seconds:g}",
            metavar="SECONDS",
            example="60",
        ),
        heading=SENDING,
    )
    loading: bool = option(
        True,
        SWITCH,
        Flag("--loading/--no-loading", "Send without refresh and replicas, and restore both at the end."),
        heading=SENDING,
    )
    allow_refused: float = option(
        0.0,
        share(),
        Flag(
            "--allow-refused",
            "Publish even if the server refused so many of the documents; 100%: continue to the end even if it refuses all.",
            describe=lambda share: f"{share:.0%}",
            metavar="SHARE",
            example="0.1%",
        ),
        heading=SENDING,
    )
    fresh: bool = option(False, SWITCH, Flag("--fresh", "Delete an unfinished generation instead of resuming it."), heading=FIRST)

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that an option does not take."""
        for name, declaration in DECLARED.items():
            declaration.refuse_unless_allowed(name, getattr(self, name))


#: The table: name of an option -> its declaration.
DECLARED: Mapping[str, BuildOption] = {made.name: declared(made) for made in fields(BuildOptions)}
#: Name of an option -> its default.
DEFAULTS: Mapping[str, Any] = {name: made.default for name, made in BuildOptions.__dataclass_fields__.items()}


def from_flags(values: Mapping[str, Any]) -> BuildOptions:
    """Make options of what the flags of the command line gave.

    Args:
        values: `Flag.argument` -> value, parsed; None: the flag was not given.

    Raises:
        UsageError: An option does not take its value.
    """
    given = {}
    for name, declaration in DECLARED.items():
        parts = [values[flag.argument] for flag in declaration.flags]
        if any(part is not None for part in parts):
            given[name] = declaration.combine(*parts)
    return BuildOptions(**given)
