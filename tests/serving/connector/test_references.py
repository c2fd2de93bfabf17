"""What others name is not removed: the server deletes a pipeline or a model that is in use without asking."""

import json

import pytest

from termweave.engine import EngineResponseError
from termweave.errors import TermweaveError
from termweave.serving.connector import ml_commons
from termweave.serving.connector.connection import references

from .conftest import answering


@pytest.fixture
def clean(opensearch_engine, name):
    """Nothing of this name, in any section of the cluster's state."""
    yield name
    for path in ("_index_template", "_template", "_component_template", "_ingest/pipeline", "_search/pipeline"):
        opensearch_engine.request("DELETE", f"/{path}/{name}*")


def test_every_place_that_names_a_pipeline(opensearch_engine, clean):
    def put(path, body):
        opensearch_engine.request("PUT", path, body=body)

    search, ingest = f"{clean}-learned", f"{clean}-documents"
    put(f"/_search/pipeline/{search}", {"request_processors": [{"filter_query": {"query": {"match_all": {}}}}]})
    put(f"/_ingest/pipeline/{ingest}", {"processors": [{"set": {"field": "name", "value": search}}]})
    put(f"/_ingest/pipeline/{clean}-outer", {"processors": [{"pipeline": {"name": ingest}}]})
    put(f"/{clean}-shop", {"settings": {"index.search.default_pipeline": search, "index.default_pipeline": ingest}})
    put(f"/{clean}-closed", {"settings": {"index.hidden": True, "index.final_pipeline": ingest}})
    opensearch_engine.request("POST", f"/{clean}-closed/_close")
    put(f"/{search}", {"settings": {"index.default_pipeline": "_none"}})  # an index of that name does not count
    settings = {"index.search.default_pipeline": search}
    put(f"/_index_template/{clean}-new", {"index_patterns": [f"{clean}-daily-*"], "template": {"settings": settings}})
    put(f"/_component_template/{clean}-part", {"template": {"settings": settings}})
    put(f"/_template/{clean}-old", {"index_patterns": [f"{clean}-weekly-*"], "settings": settings})
    assert {str(each) for each in references(opensearch_engine, {search, ingest})} == {
        f"index {clean}-shop (index.search.default_pipeline: {search})",
        f"index {clean}-shop (index.default_pipeline: {ingest})",
        f"index {clean}-closed (index.final_pipeline: {ingest})",
        f"index template {clean}-new (index.search.default_pipeline: {search})",
        f"index template {clean}-old (index.search.default_pipeline: {search})",
        f"component template {clean}-part (index.search.default_pipeline: {search})",
        f"ingest pipeline {clean}-outer (processors.pipeline.name: {ingest})",
    }
    assert references(opensearch_engine, {f"{clean}-other"}) == []


def test_a_model_that_the_server_still_calls_deployed_is_undeployed_again(monkeypatch):
    """ml-commons answers that a model is undeployed although it could not note it, and then refuses to delete the model."""
    sent, refusals = [], [EngineResponseError(400, "Model cannot be deleted in deploying or deployed state", "deployed state")]

    class Server:
        def request(self, method, path, **_):
            sent.append(f"{method} {path.rpartition('/')[2]}")
            if method == "DELETE" and refusals:
                raise refusals.pop()

    monkeypatch.setattr(ml_commons.time, "sleep", lambda _: None)
    ml_commons.delete(Server(), "m")
    assert sent == ["POST _undeploy", "DELETE m"] * 2


@pytest.mark.nightly
@pytest.mark.engine
def test_an_application_keeps_its_pipeline(termweave, small, ml_engine):
    def default(pipeline):
        ml_engine.request("PUT", f"/{small}/_settings", body={"index.search.default_pipeline": pipeline})

    with answering(body={"query": {"match_all": {}}}) as url:
        termweave("connect", small, "--model-server", url)
        (model,) = ml_commons.models(ml_engine, f"{small}-query")
        default(f"{small}-learned")
        said = termweave("connect", small, "--remove", status=2)
        assert f"(index.search.default_pipeline: {small}-learned) would fail" in said
        assert 'PUT INDEX/_settings with {"index.search.default_pipeline": null}' in said
        default(None)
        maps = {"input_map": [{"query": "$.query"}], "output_map": [{"query": "$.query"}]}
        processor = {"model_id": model.id, "function_name": "remote", **maps}
        ml_engine.request("PUT", f"/_search/pipeline/{small}-mine", body={"request_processors": [{"ml_inference": processor}]})
        try:
            assert model.id in termweave("connect", small, "--remove", status=2)
            # Another address makes another model; the one in use stays.
            with answering(body={"query": {"match_all": {}}}) as other:
                notes = json.loads(termweave("connect", small, "--model-server", other, "--json"))["notes"]
            assert any(f"{small}-mine (request_processors.ml_inference.model_id: {model.id})" in note for note in notes)
            assert model in ml_commons.models(ml_engine, f"{small}-query")
        finally:
            ml_engine.request("DELETE", f"/_search/pipeline/{small}-mine")
    assert "removed search pipeline" in termweave("connect", small, "--remove")
    assert ml_commons.models(ml_engine, f"{small}-query") == []
    with pytest.raises(TermweaveError, match="404"):
        ml_engine.request("GET", f"/_search/pipeline/{small}-learned")
