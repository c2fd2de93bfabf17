"""Create the index of a generation and read its settings back, open and close it for writing, and set it for searching."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.corpora.index.entries import fields_of
from termweave.engine import Engine, EngineResponseError
from termweave.engine.client.capabilities import check_native_vectors
from termweave.engine.client.payloads import NO_PIPELINES, WHOLE_DOCUMENTS, as_text
from termweave.errors import EngineError, UsageError
from termweave.indexer.generations.listing import closed_error
from termweave.support.messages import clipped, few

if TYPE_CHECKING:
    from termweave.catalog.lineage import Lineage
    from termweave.indexer.ledger.build_lock import Lease


#: Part of the server's reason for not creating an index -> what to do. The first match wins.
_ADVICE = (
    ("source is not supported", "Leave index.derived_source out of the --settings file: no server derives weights and vectors."),
    ("Limit of total fields", "Put a larger index.mapping.total_fields.limit into the file of --settings."),
    ("Limit of mapping depth", "Put a larger index.mapping.depth.limit into the file of --settings."),
    ("analyzer", "Name an analyzer that the server has (english, german, cjk, standard), or define it with --settings FILE."),
    ("setting", "Correct the file that --settings names."),
    ("type", "Correct the file that --mapping names: OpenSearch's documentation lists the types of fields."),
)
#: Settings that belong to one index and cannot be given to another.
_PRIVATE = frozenset({"uuid", "creation_date", "provided_name", "version", "history", "resize", "blocks"})
#: Seconds to wait for copies, until that is said, and between two looks at them.
_COPYING, _NOTICEABLE, _LOOK = 30, 5, 0.25
#: Documents are sent while nobody searches: no refresh, no copies.
LOADING = {"index.refresh_interval": "-1", "index.number_of_replicas": 0}
#: Settings that change what is stored, or how it is found and scored; with a dot at the end all that begin so. A template may well define an
#: analyzer that `--analyzer` names.
_MATTER = (
    "index.similarity.default.", "index.analysis.analyzer.default_search.", "index.mode", "index.mapping.source.",
    "index.mapping.ignore_malformed", "index.derived_source.",
)  # fmt: skip
#: Their values where they change nothing.
_USUAL = ("BM25", "standard", "stored", "false")
#: Settings that a managed cluster may set as it likes: they decide how fast and how safe an index is.
_PACE = {"index.number_of_replicas", "index.refresh_interval"}


def writer(index: str, number: int) -> str:
    """Return the name of the alias that documents of a generation are sent to under the lease of this number."""
    return f"{index}.write-{number}"


def create(engine: Engine, index: str, mapping: dict[str, Any], lineage: Lineage, settings: dict[str, Any], lease: Lease) -> None:
    """Create the empty index of a generation.

    Documents are sent to its writer alias with `require_alias`: if somebody deletes the index meanwhile, the server must not create
    one of that name by itself, without mapping and lineage.

    Raises:
        UsageError: The mapping has vectors that would end the server, or the cluster's templates make another index of it.
        EngineError: The server refuses mapping or settings.
    """
    check_native_vectors(engine, mapping, settings)
    mappings = {**mapping, **WHOLE_DOCUMENTS, "_meta": {"termweave": lineage.as_meta()}}
    body = {"settings": settings | NO_PIPELINES, "mappings": mappings, "aliases": {writer(index, lease.number): {}}}
    try:
        # Documents wait for the shards, as long as --patience allows; here the server would wait for half a minute in silence.
        _create(engine, index, body, wait_for_active_shards=0)
    except EngineResponseError as error:
        if error.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR} and "shards open" not in error.reason:
            advice = [advice for part, advice in _ADVICE if part in error.reason]
            advice += [error.hint or "Correct what --mapping or --settings says."]
            error.hint = template_advice(engine, index) or advice[0]
        raise


def _create(engine: Engine, index: str, body: dict[str, Any], **params: Any) -> None:
    """Create an index, unless an earlier attempt that was answered with 503 has created it, and compare the index with the request.

    Index templates of the cluster may have given the index other mappings or settings.

    Raises:
        UsageError: The index differs in what decides how documents are stored, found and scored; the message names each difference.
    """
    try:
        engine.request("PUT", f"/{index}", params=params, body=body)
    except EngineResponseError as error:
        if not (error.status == HTTPStatus.BAD_REQUEST and "resource_already_exists" in str(error.body)):
            raise  # nobody else makes an index of this random name
    stored = engine.request("GET", f"/{index}", params={"flat_settings": True})[index]
    forced = [*_mapping_differences(stored["mappings"], body["mappings"])]
    forced += _setting_differences(stored["settings"], body["settings"])
    if forced:
        differences = "; ".join(map(clipped, forced))
        advice = template_advice(engine, index)
        raise UsageError(f"The cluster created {index} with what termweave did not ask for: {differences}.", advice)


def create_like(engine: Engine, index: str, model: str, lineage: Lineage) -> dict[str, Any]:
    """Create an empty index with the mapping and settings of another generation (`model`), set for loading.

    Returns:
        The refresh interval and the number of replicas to restore after loading.
    """
    answer = engine.request("GET", f"/{model}", params={"flat_settings": True})[model]
    settings = {key: value for key, value in answer["settings"].items() if key.split(".")[1] not in _PRIVATE}
    if "index.verified_before_close" in settings:  # only a closed index has this setting
        raise closed_error(model)
    mapping = {**answer["mappings"], **WHOLE_DOCUMENTS, "_meta": {"termweave": lineage.as_meta()}}
    _create(engine, index, {"settings": {**settings, **LOADING, **NO_PIPELINES}, "mappings": mapping})
    return {key: settings.get(f"index.{key}") for key in ("refresh_interval", "number_of_replicas")}


def no_writer(index: str) -> dict[str, Any]:
    """Return the action on aliases that removes all writer aliases of a generation; another action must be sent with it."""
    return {"remove": {"index": index, "alias": f"{index}.write*"}}


def open_writer(engine: Engine, index: str, lease: Lease) -> None:
    """Add the writer alias of a lease to a generation, and remove the aliases of earlier leases, whose builders cannot write any more.

    An ingest pipeline in the settings of the index, which a user or an index template may have set, is switched off.
    """
    engine.request("PUT", f"/{index}/_settings", body=NO_PIPELINES)
    add = {"add": {"index": index, "alias": writer(index, lease.number)}}
    engine.request("POST", "/_aliases", body={"actions": [no_writer(index), add]})


def close_writer(engine: Engine, index: str, lease: Lease, *actions: dict[str, Any]) -> None:
    """Remove the writer alias of a lease, so that no more documents can be sent, and do other actions on aliases in the same atomic request.

    Raises:
        EngineError: Another builder has removed the writer alias.
    """
    remove = {"remove": {"index": index, "alias": writer(index, lease.number), "must_exist": True}}
    try:
        engine.request("POST", "/_aliases", body={"actions": [*actions, remove]})
    except EngineResponseError as error:
        raise (lease.lost() if error.status == HTTPStatus.NOT_FOUND else error) from error


def is_written(engine: Engine, index: str) -> bool:
    """Whether a generation has a writer alias, which means that a builder writes to the generation, or died while it did."""
    aliases = engine.request("GET", f"/{index}/_alias")[index]["aliases"]
    return any(alias.startswith(f"{index}.write") for alias in aliases)


def finish_loading(engine: Engine, index: str, refresh_interval: Any, replicas: int) -> None:
    """Set an index for searching and make all its documents visible.

    It waits for replicas: a generation that is published before they are up has one copy, which is lost if its node fails.

    Args:
        engine: The server.
        index: The generation.
        refresh_interval: The setting of that name; None: the server's default.
        replicas: Copies of each shard.
    """
    settings = {"index.refresh_interval": refresh_interval, "index.number_of_replicas": replicas}
    engine.request("PUT", f"/{index}/_settings", body=settings)
    engine.request("POST", f"/{index}/_refresh")
    if replicas:
        wait_for_copies(engine, index, "is published")


def wait_for_copies(engine: Engine, index: str, next_step: str) -> None:
    """Wait for the replicas of an index, at most `_COPYING` seconds, and tell the user if not all are up by then.

    The wait ends early when no copy is under way, as where the cluster has too few nodes. A copy that is not placed yet may be about to be:
    the cluster looks which nodes have parts of it ("in-flight fetch"), or copies of other indices come first. So two looks in a row must
    find nothing under way.

    Args:
        engine: The server.
        index: The generation.
        next_step: What happens next to the index, as the verb of the sentence to the user: "is published".
    """
    with suppress(EngineResponseError):  # this user may not ask: the copies go on
        began, idle, announced = time.monotonic(), 0, False
        while idle < 2 and (waited := time.monotonic() - began) < _COPYING:
            health = engine.request("GET", f"/_cluster/health/{index}")
            if health["status"] == "green":
                return
            if waited > _NOTICEABLE and not announced:
                announced = True
                engine.outage.say(f"Waiting for the replicas of {index}, up to {_COPYING - waited:.0f} s.")
            under_way = health["number_of_in_flight_fetch"] or health["number_of_pending_tasks"]
            under_way = under_way or engine.request("GET", "/_cluster/health")["initializing_shards"]
            idle = 0 if under_way else idle + 1
            time.sleep(_LOOK)
        engine.outage.say(
            f"{index} {next_step} though not all of its replicas are up: documents are lost if a node fails now. "
            "GET /_cluster/allocation/explain says what the replicas wait for."
        )


def template_advice(engine: Engine, index: str) -> str:
    """Return a sentence on which index templates of the cluster apply to an index, and what to do about them; "": no such template is known."""
    if not (names := _templates(engine, index)):
        return ""
    noun = "The index template" if len(names) == 1 else "The index templates"
    return (
        f"{noun} {few([repr(name) for name in names])} of the cluster may cause this: correct the template, exclude this name from its patterns, "
        "or set what you want instead in the file of --settings."
    )


def _templates(engine: Engine, index: str) -> list[str]:
    """Return the names of the templates that apply to an index: the composable one with the highest priority, else all templates of the older kind."""

    def applies(template: Mapping[str, Any]) -> bool:
        return any(fnmatchcase(index, pattern) for pattern in template["index_patterns"])

    with suppress(EngineError):  # this role may not ask
        listed = engine.request("GET", "/_index_template")["index_templates"]
        matching = [each for each in listed if applies(each["index_template"])]
        if matching:
            return [max(matching, key=lambda each: (each["index_template"].get("priority", 0), each["name"]))["name"]]
        return sorted(name for name, each in engine.request("GET", "/_template").items() if applies(each))
    return []


def _mapping_differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> Iterator[str]:
    """Yield each difference of a stored mapping from the requested one, as text. Further fields are harmless: no document has them."""
    source = {"enabled": True, "mode": "stored"} | (stored.get("_source") or {})
    yield from (f"_source.{part} {as_text(source[part])}" for part in ("excludes", "includes") if source.get(part))
    yield from (f"_source.{part} {as_text(source[part])}" for part in ("enabled", "mode") if source[part] not in {True, "stored"})
    if (stored.get("_routing") or {}).get("required"):
        yield "_routing.required true"
    if stored.get("dynamic", "true") != requested.get("dynamic", "true"):
        yield f"dynamic {stored.get('dynamic', 'true')}"
    kinds, fields = fields_of(stored), fields_of(requested)
    yield from (f"{name} of type {kinds.get(name)}" for name, kind in fields.items() if kinds.get(name) != kind)
    yield from (f"a runtime field {name}" for name in stored.get("runtime") or {} if name in fields)


def _setting_differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> Iterator[str]:
    """Yield each setting, as text, that differs from the requested value, or that matters and was not requested."""
    for name in sorted(stored.keys() - _PACE):
        request, value = requested.get(name), as_text(stored[name])
        matters = any(name.startswith(each) if each.endswith(".") else name == each for each in _MATTER) and value not in _USUAL
        if matters if request is None else value != as_text(request):
            yield f"{name} {value}"
