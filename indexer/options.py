"""The build options, each declared once: command line, checks, fingerprint, ledger and updates read the fields of `BuildOptions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from annotated_types import Ge, Le, MinLen

from termweave.catalog.typed_fields import DECLARED
from termweave.contracts import signal
from termweave.declared_settings import LARGEST, Setting, check, settings_of, share
from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.catalog.lineage import Lineage
    from termweave.contracts.signal import Pruning
    from termweave.settings import Settings
else:  # the values are checked by `_pruning`
    Pruning = Any

#: The headings of `index --help`. The first group needs no heading.
_CONTENT, _MODELS, _SENDING, _SERVER = "Reading the corpus", "Models and signals", "Sending", "Index on the server"


@dataclass(frozen=True)
class BuildSetting(Setting):
    """The declaration of a build option.

    Attributes:
        fingerprint: Whether a build with another value makes another generation. "if set": only a value that is not the default counts;
            "model": the hash of the model counts.
        fixed: Whether an update keeps the value that the generation was built with, and refuses another one.
        stored: Returns the value that a generation was built with; None: its stored options or the index tell it.
    """

    fingerprint: Literal["always", "if set", "model", "never"] = "never"
    fixed: bool = False
    stored: Callable[[Lineage], Any] | None = None


#: An option that makes another generation, and one that does so only if it is set; an update keeps both.
_fixed = partial(BuildSetting, fingerprint="always", fixed=True)
_fixed_if_set = partial(BuildSetting, fingerprint="if set", fixed=True)
_fixed_on_server, _model_if_set = partial(_fixed, heading=_SERVER), partial(_fixed_if_set, heading=_MODELS)
_sending = partial(BuildSetting, heading=_SENDING)


def _model(text: str, default: str = "the shipped one") -> BuildSetting:
    return BuildSetting(text, "MODEL", default, _MODELS, fingerprint="model")


@dataclass(frozen=True, slots=True)
class Window:
    """The length and distance of the passages that long texts are cut into (`preparation.passages`).

    Attributes:
        size: Largest number of words in a passage; a text that is not longer stays whole.
        stride: Smallest number of words from the start of one passage to the start of the next; 0 becomes three quarters of the size.
    """

    size: int
    stride: int = 0

    def __post_init__(self) -> None:
        if self.stride == 0:
            object.__setattr__(self, "stride", self._usual_stride)
        if not 0 < self.stride <= self.size:
            hint = "Choose a stride from 1 to the size; with a larger one words between two passages would be lost."
            raise UsageError(f"Passages of {self.size} words cannot begin every {self.stride} words.", hint)

    def __str__(self) -> str:
        return str(self.size) if self.stride == self._usual_stride else f"{self.size}/{self.stride}"

    @property
    def _usual_stride(self) -> int:
        return max(1, self.size * 3 // 4)

    @classmethod
    def from_lineage(cls, values: Mapping[str, Any]) -> Window | None:
        """Read a window from the values in a lineage; None if texts are not cut."""
        return cls(values["size"], values["stride"]) if values else None

    def parameters(self) -> dict[str, int]:
        """Return the values that a lineage stores."""
        return asdict(self)


def _window(value: Any) -> Window | None:
    if value is None or isinstance(value, Window):
        return value
    if not str(value).isdecimal() or int(value) > LARGEST:
        raise UsageError(f"passages must be a number of words or a Window, not {value}.", "Write --passage-size 160.")
    return Window(int(value)) if int(value) else None


def _pruning(value: Any = "0") -> Pruning:
    return value if isinstance(value, signal.Pruning) else signal.Pruning.parse(str(value))


def _stored_pruning(lineage: Lineage) -> Pruning:
    pruned = next((each for each in lineage.signals.values() if "prune_share" in each), {})
    return signal.Pruning(pruned.get("prune_share", 0.0), pruned.get("prune_below", 0.0))


def _settings(value: Any) -> Any:
    from termweave.indexer.preparation import user_mapping  # noqa: PLC0415

    return user_mapping.settings_of(value)


def _mapping(value: Any) -> Any:
    from termweave.indexer.preparation import user_mapping  # noqa: PLC0415

    return user_mapping.mapping_of(value)


def _types(value: Any) -> Any:
    """Read the types of metadata entries, a mapping or texts such as ``price=number,day=date``; returns entry -> name in `DECLARED`."""
    if isinstance(value, str | tuple | list):
        texts = value.split(",") if isinstance(value, str) else [part for each in value for part in str(each).split(",")]
        value = {name.strip(): kind.strip() for name, _, kind in (each.rpartition("=") for each in texts if each.strip())}
    if not isinstance(value, Mapping):
        return value
    names = {"keyword": "text", "long": "integer", "double": "number", **dict(zip(DECLARED, DECLARED, strict=True))}
    if wrong := next((f"{name}={kind}".lstrip("=") for name, kind in value.items() if not name or str(kind) not in names), ""):
        hint = f"Write FIELD=TYPE, where TYPE is one of {', '.join(DECLARED)}."
        raise UsageError(f"--types {wrong}: the type does not exist, or the field before the = is missing.", hint)
    return {name: names[kind] for name, kind in value.items()}


@dataclass(frozen=True)
class BuildOptions:
    """Choices of a build. The order of the fields is the order in which messages list them. Texts are read as on the command line.

    Attributes:
        model: Model for both: `weights` and `dense` become this name.
        weights: Weights model: a folder, a package, a name or hf:OWNER/NAME; None: the shipped one; "none": no term weights.
        dense: Dense model, likewise.
        dense_query: Dense model for queries, where it is another one than `dense`; "none": the one that `dense` has for them.
        signals: Names of the signals; None: all that models and server allow.
        analyzer: OpenSearch analyzer of the text; None: english, or one that suits the language of the corpus.
        shards: Primary shards.
        settings: Further index settings: flat keys that begin with "index."; or a file.
        mapping: Further mapping. Its properties are filled from the metadata of the same name. Or a file.
        keep_mapping: Take over mapping, analysis and fields of a source that is an index (`preparation.user_mapping`).
        types: Metadata entry -> its type or notation: a name of `typed_fields.DECLARED`.
        skip_bad: Leave out entries that cannot be read, and the second of two documents with one id.
        passages: How long texts are cut into passages: a `Window`, or the number of words; None: not at all.
        prune: Which impacts are not stored: a `Pruning`, or a rule such as "30%".
        vectors: How the numbers of vectors are stored: "float" or "byte".
        replicas: Copies of each shard; None: 1 if there are several data nodes, else 0.
        workers: Connections that send at the same time.
        patience: Seconds to keep trying while the server is overloaded or away.
        loading: Whether refresh and replicas are off while documents are sent; both are restored before verification.
        allow_refused: Share of the documents, 0 to 1, that the server may refuse before the generation is held back.
        fresh: Delete an unfinished generation instead of resuming it.
    """

    model: Annotated[
        str | Path | None,
        _model(
            "Model for term weights and vectors in one pass: small (better), fast, chinese, or another one; replaces --weights and --dense.",
            "the shipped one; chinese for Chinese text, where it is installed",
        ),
    ] = None
    weights: Annotated[str | Path | None, _model("Weights model: a folder, package, name, hf:OWNER/NAME, or 'none'.")] = None
    dense: Annotated[str | Path | None, _model("Dense model: likewise, also a folder of sentence-transformers.")] = None
    dense_query: Annotated[
        str | Path | None,
        _model(
            "Dense model for queries alone, trained together with --dense; with --update it takes the place of the one before, and no "
            "document is encoded again; 'none' for the one of --dense.",
            "the one of --dense",
        ),
    ] = None
    signals: Annotated[
        tuple[str, ...] | None,
        _fixed(
            "Signals to build, of lexical, weights, dense, learned.",
            "LIST",
            "the first three, as far as models and server allow",
            _MODELS,
            convert=lambda names: tuple(sorted(names)) if isinstance(names, tuple) else names,
            stored=lambda lineage: tuple(sorted(lineage.signals)),
        ),
        MinLen(1),
    ] = None
    analyzer: Annotated[
        str | None,
        _fixed(
            "OpenSearch analyzer of the text.",
            default_text="english; cjk or another if the models do not know the language",
            heading=_MODELS,
            stored=lambda lineage: lineage.signals.get("lexical", {}).get("analyzer"),
        ),
    ] = None
    shards: Annotated[int, _fixed_on_server("Primary shards."), Ge(1), Le(LARGEST)] = 1
    settings: Annotated[
        Mapping[str, Any], _fixed_on_server("Further index settings (JSON): analyzers, merges.", "FILE", convert=_settings)
    ] = field(default_factory=dict)
    mapping: Annotated[
        Mapping[str, Any],
        _fixed_on_server("Further fields (JSON mapping), filled from metadata of the same name.", "FILE", convert=_mapping),
    ] = field(default_factory=dict)
    keep_mapping: Annotated[
        bool,
        _fixed_if_set(
            "Take over mapping, analyzers and fields of the index that is read, so that its queries work on NAME as before.",
            heading=_SERVER,
            stored=lambda lineage: "kept" in lineage.source,
        ),
    ] = False
    types: Annotated[
        Mapping[str, str],
        _fixed_if_set(
            f"Type of a metadata field, where the values do not tell it: FIELD={', '.join(DECLARED)}; values of another type count as missing. "
            "Several are separated by commas, or the option is repeated.",
            "FIELD=TYPE",
            heading=_CONTENT,
            convert=_types,
            stored=lambda lineage: (lineage.options or {}).get("types", {}),
            repeatable=True,
        ),
    ] = field(default_factory=dict)
    skip_bad: Annotated[
        bool,
        BuildSetting(
            "Leave out entries that cannot be read and the second of two documents with one id, and report them.",
            heading=_CONTENT,
            fingerprint="always",
        ),
    ] = False
    passages: Annotated[
        Window | None,
        _fixed(
            "Cut longer texts into passages of whole sentences, each of at most so many words, which overlap by a quarter; 0: never. 160 "
            "suits the shipped model.",
            "WORDS",
            "0",
            flag="--passage-size",
            convert=_window,
            stored=lambda lineage: Window.from_lineage(lineage.passages),
        ),
    ] = None
    prune: Annotated[
        Pruning,
        _model_if_set(
            "Do not store light impacts: 0.1 (below .1 of the largest) or 30% (the lightest of each document).",
            "RULE",
            convert=_pruning,
            stored=_stored_pruning,
        ),
    ] = field(default_factory=_pruning)
    vectors: Annotated[
        Literal["float", "byte"],
        _model_if_set(
            "How vectors are stored: float, or byte, which takes a quarter of the room.",
            stored=lambda lineage: "byte" if lineage.signals.get("dense", {}).get("byte_scale") else "float",
        ),
    ] = "float"
    replicas: Annotated[
        int | None,
        BuildSetting("Copies of each shard.", default_text="1 with several data nodes, else 0", heading=_SERVER, fixed=True),
        Ge(0),
        Le(LARGEST),
    ] = None
    workers: Annotated[int, _sending("Connections that send at the same time."), Ge(1), Le(64)] = 4
    patience: Annotated[float, _sending("Seconds to retry while the server is busy or away.", "SECONDS", "120"), Ge(0)] = 120.0
    loading: Annotated[bool, _sending("Send without refresh and replicas, and restore both at the end.")] = True
    allow_refused: Annotated[
        float,
        _sending(
            "Publish even if the server refused so many of the documents (0.1%); 100%: continue to the end even if it refuses all.",
            "SHARE",
            "0%",
            convert=share,
        ),
        Ge(0),
        Le(1),
    ] = 0.0
    fresh: Annotated[bool, BuildSetting("Delete an unfinished generation instead of resuming it.")] = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that an option does not take, or models that contradict each other."""
        check(self)
        if self.model is None:
            return
        for name in ("weights", "dense"):
            if getattr(self, name) not in {None, self.model}:
                hint = "Leave --model out, and name two models with --weights and --dense."
                raise UsageError(f"--model names one model for term weights and vectors, and --{name} names another.", hint)
            object.__setattr__(self, name, self.model)


#: The options of a build, without the one that describes the corpus.
BUILDING = tuple(each.name for each in fields(BuildOptions) if each.name != "skip_bad")
#: The options that decide how texts are encoded.
ENCODING = ("model", "weights", "dense", "dense_query", "passages")


def in_words(value: object) -> str:
    """Return the value of an option as messages and lineages write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping) and value and all(str(each) in DECLARED for each in value.values()):
        return ",".join(f"{name}={each}" for name, each in sorted(value.items()))
    if isinstance(value, Mapping) and value:
        import orjson  # noqa: PLC0415 - not needed by `--help`

        return orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()
    if isinstance(value, tuple | list):
        return ",".join(value)
    return "none" if value is None or value == {} else str(value)


def models_in(options: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The options of a command, with the models of the settings where it names none."""
    stored = {} if "model" in options else {"weights": settings.weights, "dense": settings.dense}
    return {**stored, **options}


@cache
def build_settings() -> Mapping[str, BuildSetting]:
    """The declared options: name -> its declaration, with its flag."""
    return {name: cast("BuildSetting", replace(each.setting, flag=each.flag)) for name, each in settings_of(BuildOptions).items()}
