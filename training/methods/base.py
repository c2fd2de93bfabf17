"""What can be trained, as data: `termweave methods`, the help, the checks of --set and the docs all read it.

A method is one file with a `Method` named `METHOD` and one line in `_FILES` below (or an entry point in the group
``termweave.methods`` of another package). Nothing here imports torch.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from termweave import plugins
from termweave.errors import UsageError
from termweave.training import views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from termweave.encoders.form import Form
    from termweave.training.lessons import Lesson

#: The files of the methods that come with termweave.
_FILES = {"bert-scorer": "termweave.training.bert_scorer", "fectek": "termweave.training.fectek"}
#: The backbone that is made anew. It knows nothing until it is trained, so all of it is unless somebody says otherwise, and nobody
#: trains its vector: it gives none.
FROM_SCRATCH = "scratch"
_OF_SCRATCH = {"top_layers": -1, "outputs": "weights"}
#: The start that needs no other model.
ANCHOR = "anchor"
_TRUE = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

Value = bool | int | float | str
#: Of documents, questions and steps nobody has more; torch and numpy count no further than some powers of two.
LARGEST = 10**9


@dataclass(frozen=True)
class Parameter:
    """One thing that can be set.

    Attributes:
        name: As in ``--set name=value``.
        default: What holds otherwise; its type is the parameter's type.
        help: One sentence.
        choices: The only values, where there are few.
        least: The smallest number, where there is one.
        above: A number that it must exceed, likewise.
        most: The largest; without one, a whole number is at most `LARGEST`.
    """

    name: str
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None

    @property
    def type(self) -> str:
        """bool, int, float or str."""
        return type(self.default).__name__

    def parse(self, given: object) -> Value:
        """A value as written on a command line or in a file.

        Raises:
            UsageError: It is of the wrong type, or none of the choices.
        """
        try:
            value = self._parsed(given)
        except (ValueError, KeyError):
            raise UsageError(f"{self.name}={given} is not {_A[self.type]}.", f"{self.name}: {self.help}") from None
        if self.choices and value not in self.choices:
            raise UsageError(f"{self.name}={given} is not known.", f"Choose one of: {', '.join(self.choices)}.")
        if not isinstance(value, str):
            self._bounded(given, value)
        return value

    def _bounded(self, given: object, value: float) -> None:
        most = LARGEST if self.most is None and self.type == "int" else self.most
        if self.least is not None and value < self.least:
            raise UsageError(f"{self.name}={given} is too small.", f"It must be at least {self.least:g}.")
        if self.above is not None and value <= self.above:
            raise UsageError(f"{self.name}={given} is too small.", f"It must be above {self.above:g}.")
        if most is not None and value > most:
            raise UsageError(f"{self.name}={given} is too large.", f"It must be at most {most:,.10g}.")

    def _parsed(self, given: object) -> Value:
        if isinstance(given, list) and self.type == "str" and all(isinstance(each, str) for each in given):
            given = ",".join(given)  # TOML has lists where a command line has commas
        if isinstance(given, list | dict):
            raise ValueError  # noqa: TRY004 - caught above, with the others
        text = str(given).strip()
        if isinstance(self.default, bool):
            return given if isinstance(given, bool) else _TRUE[text.lower()]
        if isinstance(given, bool):
            raise ValueError  # noqa: TRY004 - caught above, with the others
        if isinstance(self.default, int):
            return int(text)
        if isinstance(self.default, float):
            if not math.isfinite(number := float(text)):
                raise ValueError
            return number
        return text


#: Settings that heads hang on, and what a manifest calls them.
_SHAPE = {
    **{name: name for name in ("hidden", "layer", "shared", "terms", "query", "tf_power", "k1", "b")},
    "fcm": "gate",
    "bmes": "tags",
    "anchor": "kind",
}


def _of_start(name: str) -> dict[str, object]:
    """Settings that a model's heads hang on: who begins with them and says nothing else wants these."""
    from termweave.encoders.folder import ModelFolder, resolve  # noqa: PLC0415 - plans of other runs need none

    manifest = ModelFolder.read(resolve(name), check=False).manifest
    known = {**manifest.heads, **manifest.anchor, "terms": manifest.terms}
    return {setting: known[key] for setting, key in _SHAPE.items() if known.get(key) not in (None, "")}


_A = {"bool": "true or false", "int": "a whole number", "float": "a finite number", "str": "a text"}


def _check(settings: Mapping[str, Any]) -> None:
    """What holds for every method.

    Raises:
        UsageError: The vector is wanted of layers that are cut off, or of a backbone that nobody has trained; a view is not known; a
            click log would not be read; of the anchor something is to be kept.
    """
    views.parse(str(settings["views"]))
    if settings["clicks"] and settings["pairs"] not in ("auto", "clicks"):
        raise UsageError(
            f"pairs={settings['pairs']} does not read the click log {settings['clicks']}.",
            "Set pairs=clicks, or leave clicks out.",
        )
    if settings["keep"] and settings["start"] == ANCHOR:
        raise UsageError(
            f"keep={settings['keep']} keeps nothing: the heads begin as the anchor.", "Set start=MODEL too, or leave keep out."
        )
    scratch, cut = settings["backbone"] == FROM_SCRATCH, settings["layers"] and settings["top_layers"] == 0
    if not (scratch or cut):
        return
    from termweave.training.teachers import MADE  # noqa: PLC0415 - numpy

    dense, teacher = "dense" in str(settings["outputs"]).split(","), settings.get("teacher") in MADE
    if scratch and (teacher or (dense and not settings.get("joint"))):
        raise UsageError(
            "The vectors of a backbone made from scratch mean nothing: nobody has trained them.",
            "Leave outputs and teacher out; fectek trains the vector with joint=1 and outputs=weights,dense.",
        )
    if cut and (dense or teacher):
        raise UsageError(
            f"layers={settings['layers']} cuts off the layers that the frozen backbone's vector is made of.",
            "Set outputs=weights and a teacher that is a file or none, or leave layers at 0.",
        )


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        name: As in ``termweave train NAME``.
        title: One line.
        source: Paper.
        equations: What is computed, in the paper's numbers.
        note: What to know before choosing it; a short paragraph.
        parameters: Of this method; those of every method are added (`COMMON`).
        form: How the logits become weights, given the settings.
        lesson: Where what a step learns stands, as ``module:class`` of a `Lesson`; it needs torch.
        check: Raises `UsageError` for values that do not go together.
        fitted: The settings with what hangs on whether questions are made of the corpus (`made`).
    """

    name: str
    title: str
    source: str
    equations: tuple[str, ...]
    note: str
    parameters: tuple[Parameter, ...]
    form: Callable[[Mapping[str, Any]], Form]
    lesson: str
    check: Callable[[Mapping[str, Any]], None] = lambda _: None
    fitted: Callable[..., Mapping[str, Any]] = lambda settings, *, made: settings  # noqa: ARG005 - the name is the contract

    @property
    def every(self) -> tuple[Parameter, ...]:
        """Own parameters first."""
        return (*self.parameters, *COMMON)

    def settings(self, given: Mapping[str, object]) -> dict[str, Any]:
        """All parameters with their values. Some defaults are others where the backbone is made from scratch, or the start is a model.

        Raises:
            UsageError: A name that is not known, or a value that cannot be.
            ModelError: The model to start from is incomplete.
        """
        known = {parameter.name: parameter for parameter in self.every}
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                raise UsageError(
                    f"The method {self.name} has no parameter {name!r}.",
                    f"Did you mean {near[0]}?" if near else f"`termweave methods {self.name}` lists them.",
                )
        asked = {**_OF_SCRATCH, **given} if given.get("backbone") == FROM_SCRATCH else given
        if (start := str(given.get("start", ANCHOR)).strip()) != ANCHOR:
            asked = {**{name: value for name, value in _of_start(start).items() if name in known}, **asked}
        found = {name: parameter.parse(asked.get(name, parameter.default)) for name, parameter in known.items()}
        _check(found)
        self.check(found)
        return found

    def changed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that differ from the defaults."""
        return {each.name: settings[each.name] for each in self.every if settings[each.name] != each.default}

    def lesson_class(self) -> type[Lesson]:
        """The class that `lesson` names."""
        module, _, name = self.lesson.partition(":")
        found: type[Lesson] = getattr(import_module(module), name)
        return found


#: Positions that no backbone has, and for which a new one takes no more than some megabytes.
_LENGTH = 32_768
#: Nine bits are the largest impact that an index stores exactly (`signals.weights`), 511; beyond, a figure would promise too much.
BITS = Parameter("bits", 8, "Bits in which weights are stored when the development figures are made; 0: float.", least=0, most=9)

#: Parameters of every method of term weights.
COMMON = (
    Parameter(
        "skip_bad",
        default=False,
        help="Leave entries of the corpus out that cannot be read, and the second of two with one id (--skip-bad).",
    ),
    Parameter("id_field", "", "Key or column of the corpus that holds the id, where it is not called like one (--id-field)."),
    Parameter("title_field", "", "That of the title (--title-field)."),
    Parameter("text_field", "", "That of the text; several, with commas, are joined (--text-field)."),
    Parameter(
        "backbone",
        "",
        "Folder of a BERT-like model in transformers' layout, or hf:OWNER/NAME; empty: all-MiniLM-L6-v2, where its package is installed; "
        "'scratch': a small new one with a vocabulary of the corpus's characters, which top_layers=-1 and outputs=weights then go with.",
    ),
    Parameter(
        "layers",
        0,
        "How many of the backbone's layers there are, from below; 0: all. Term weights alone need fewer: half the layers take half the time "
        "(docs/encoding.md).",
        least=0,
    ),
    Parameter(
        "top_layers", 0, "How many of the top layers are trained: 0 leaves the backbone frozen, -1 trains all of it.", least=-1
    ),
    Parameter(
        "outputs",
        "weights,dense",
        "What the model gives: term weights alone, or the pooled vector too.",
        ("weights", "weights,dense"),
    ),
    Parameter("layer", -1, "The lower of the two layers whose states a deep head sees; -1: the one in the middle.", least=-1),
    Parameter(
        "start",
        ANCHOR,
        "What the heads begin as: the anchor itself, or the heads of a trained model on the same backbone (a folder, or a name such as "
        "shipped), whose shape and anchor are then the defaults.",
    ),
    Parameter(
        "keep",
        0.0,
        "With start=MODEL: how much of it is kept. What is judged and saved lies between the parameters begun with (1) and those trained (0).",
        least=0,
        most=0.95,
    ),
    Parameter(
        "hidden",
        128,
        "Width of the head's hidden layer; 0: a linear head on the last layer, as in the papers.",
        least=0,
        most=10_000,
    ),
    Parameter(
        "terms", "word", "What is weighed: words (Chinese ones by jieba), or the backbone's word-pieces.", ("word", "piece")
    ),
    Parameter("k1", 1.2, "BM25's k1, where weights are anchored on it.", least=0, most=100),
    Parameter("b", 0.75, "BM25's b, likewise.", least=0, most=1),
    Parameter("max_length", 256, "Word-pieces the model sees in use; no more than the backbone counts.", least=8, most=_LENGTH),
    Parameter("training_length", 128, "Word-pieces of a text that training looks at; likewise.", least=8, most=_LENGTH),
    Parameter(
        "pairs",
        "auto",
        "Where questions come from: judgements (qrels), a click log (clicks), or the corpus itself; auto: the first that is there.",
        ("auto", "qrels", "clicks", "corpus"),
    ),
    Parameter("clicks", "", "Click log: lines of query, document id and count (tab-separated, or JSON)."),
    Parameter(
        "views",
        "title,heading,sentence,span",
        "How questions are made of documents: title -> body, heading -> section, first sentence -> rest, cropped spans.",
    ),
    Parameter("documents", 5000, "Documents trained on, at most.", least=2),
    Parameter("questions", 12000, "Questions trained on, at most.", least=2),
    Parameter(
        "dev", 300, "Questions that decide when to stop, at most: of the split 'dev', or held out, where there is none.", least=5
    ),
    Parameter("seed", 0, "Same seed, same model, on the same machine.", least=0, most=2**32 - 1),
    Parameter("steps", 500, "Steps of the optimiser, at most.", least=1),
    Parameter("every", 100, "Steps between two looks at the development questions; each leaves a checkpoint.", least=1),
    Parameter("patience", 3, "Looks without a better figure after which training stops.", least=1),
    Parameter("batch", 48, "Questions (or texts) in a batch.", least=1, most=10_000),
    Parameter("rate", 1e-3, "Peak learning rate of the heads.", above=0, most=10),
    Parameter("layers_rate", 5e-5, "Peak learning rate of the backbone's layers.", above=0, most=10),
    Parameter("weight_decay", 0.01, "AdamW's.", least=0, most=100),
    Parameter("dropout", 0.0, "Share of what a head's last layer sees that a step leaves out.", least=0, most=0.95),
    Parameter(
        "ema",
        0.0,
        "Decay of the running mean of the parameters that is judged and kept; 0: the parameters.",
        least=0,
        most=0.99999,
    ),
)


def names() -> list[str]:
    """Of all methods."""
    return [*_FILES, *plugins.names("methods")]


def get(name: str) -> Method:
    """A method by name.

    Raises:
        UsageError: There is none of this name.
    """
    if name not in names():
        near = get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Methods: {', '.join(names())}."
        raise UsageError(f"There is no method {name!r}.", hint)
    found: Method = import_module(_FILES[name]).METHOD if name in _FILES else plugins.load("methods", name)
    return found


def given(assignments: Sequence[str], config: Path | None) -> dict[str, object]:
    """What a user set: a TOML file first, ``--set key=value`` over it.

    Raises:
        UsageError: An assignment without "=", or a file that is no TOML or has tables.
    """
    found: dict[str, object] = {}
    if config is not None:
        try:
            found.update(tomllib.loads(config.read_text(encoding="utf-8")))
        except (ValueError, OSError) as error:
            raise UsageError(f"{config} cannot be read: {error}.", "Write one `key = value` a line (TOML).") from error
        if tables := [f"[{name}]" for name, value in found.items() if isinstance(value, dict)]:
            raise UsageError(
                f"{config} has the table {', '.join(tables)}.", "Settings stand without a table: one `key = value` a line."
            )
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set {assignment} says no value.", "Write --set key=value.")
        found[name.strip()] = value
    return found
