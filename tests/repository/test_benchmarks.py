"""Every benchmark runs on its smallest input, so that none of them rots; and what a user can fix is said in a sentence."""

import json
import os
import random
import re
import shlex
import subprocess
import sys
import tomllib
import uuid
import venv
from pathlib import Path

import pytest

from termweave import cli

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: Imported by the scripts, no scripts themselves.
MODULES = {
    "entry_point",
    "figures",  # runs the others: test_figures.py
    "reproduction_rnn",
    "reproduction_runs",
    "reproduction_tables",
    "synthetic",
}
#: Run by other tests: tests/engine/elasticsearch, tests/learning, tests/training, tests/serving/connector.
ELSEWHERE = {"any_client", "engines", "feature_ranker", "learning"}
SMALL = "--set backbone={base} --set steps=4 --set every=2"
PAPER = "--data {data} --work {tmp_path} --set backbone={base} --set steps=2 --set every=2 --set batch=4 --set precision=fp32"
#: A call of a script -> what it prints. {squad} has an index that retrieval.py made; {base} is a model that knows nothing, {trained} one of a few steps.
CALLS = {
    "indexing --quick": ("verify: 40 documents intact", "reading 200 documents"),
    "latency --quick": ("150 documents, OpenSearch", "| hybrid+rNN |"),
    "latency --quick --learned": ("| content |", "ratio of the medians"),
    "throughput --quick": ("150 documents, 8 clients", "| hybrid+rNN, batches |"),
    "serving --quick": ("start until the address is printed", "| /api/search |"),
    "enriched_index {squad} --queries 3": ("weights,dense:", "bytes a document more", "hybrid:", "times the match"),
    "misspelt {squad} --mode lexical": ("| squad | 24 |",),
    "impacts {squad}": ("## Quantisation", "| squad | weights |", "| 0.03 |", "| a tenth, drawn |"),
    "fusion --data {data} --work {tmp_path} --models shipped --sets squad cranfield": (
        "| hybrid + rNN 0.9 |", "| earlier rule |", "hybrid minus earlier rule:",
    ),
    f"term_weights --data {{data}} --results {{tmp_path}}/results.jsonl --sets cranfield --seeds 0 --variants frozen {SMALL}": (
        "| BM25, stemmed words |", "| frozen |",
    ),
    "training_speed steps --data {data}/squad --backbone {base} --batch 4 --steps 3 --rounds 1": (
        "| sentence-transformers |", "sentence-transformers / termweave",
    ),
    "model_server --backbone {base} --quick": (
        "| single queries | 8 | termweave, shipped |", "| batches of 32 texts | 8 | sentence-transformers |",
    ),
    "encoding speed padding quality --data {data} --base {base} --sets cranfield --count 4 --rounds 1 --model {trained} --full {trained} "
    "--fewer {trained}": ("| texts | pieces, mean |", "| corpus | texts | CPU |", "| all layers, int8 | fewer layers |"),
    "rankers speed {squad} --model {ranker} --quick": ("| sentence-transformers |", "| int8 |", "| 20 |"),
    "rankers quality {squad} --model {ranker} --index {prefix}-squad --candidates 12 --queries 20": (
        "20 questions, hybrid, best 12 reranked", "| int8, 25% of the time", "| best k | stated risk |",
    ),
    # tables of papers: one of each family of models, and one that trains nothing
    f"reproduction coder --sets stackfaq --backbones all-MiniLM-L6-v2 --rows hard --beside cranfield --seeds 2 {PAPER} --set candidates=4": (
        "| base | ", "| hard | ", "after rNN",
    ),
    f"reproduction fectek --sets squad --rows DeepCT '+ FCM + TKGM' {PAPER}": ("| BM25 |  | ", "| DeepCT | ", "| + FCM + TKGM | "),
    f"reproduction sir --sets stackfaq --rows 'V1 top' 'V4 top' {PAPER} --set blocks=4,3,2 --set candidates=12": (
        "| base | ", "| V1 top | ", "| V4 top | ",
    ),
    "reproduction rnn --sets squad cranfield --backbones all-MiniLM-L6-v2 --data {data} --work {tmp_path}": (
        "| all-MiniLM-L6-v2 | dense + rNN, chosen | ", "| all-MiniLM-L6-v2 | hybrid |",
    ),
}  # fmt: skip
TOPICS = ("river", "engine", "garden", "planet", "violin", "castle", "harbour", "desert", "forest", "market", "winter", "copper")


def run(script, *arguments, url="", home=None, patience=300):
    """Run a script to its end; `home`: where it keeps caches; `patience`: seconds."""
    environment = {**os.environ, "OPENSEARCH_URL": url, "OMP_NUM_THREADS": "1"} | ({"XDG_CACHE_HOME": str(home)} if home else {})
    command = [sys.executable, BENCHMARKS / f"{script}.py", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=patience)


def printed(script, *arguments, **where):
    ended = run(script, *arguments, **where)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of BEIR data sets under names that the scripts know: 48 documents on 12 topics, and two questions on each topic."""
    root = tmp_path_factory.mktemp("data")
    generator = random.Random(0)
    words = [f"{first}{last}" for first in ("bar", "cor", "del", "fen") for last in ("ton", "mer", "lis", "dal", "gin")]
    for name in ("squad", "cranfield", "stackfaq", "nfcorpus", "drcd-reqa"):
        (root / name / "qrels").mkdir(parents=True)
        documents, judged = [], ["query-id\tcorpus-id\tscore"]
        for number in range(4 * len(TOPICS)):
            topic = TOPICS[number % len(TOPICS)]
            text = f"The {topic} and the {' '.join(generator.choices(words, k=6))}. An old {topic} is like a {generator.choice(TOPICS)}."
            documents.append({"_id": f"d{number}", "title": f"{topic} {number}", "text": text})
            judged += [f"{kind}{number % len(TOPICS)}\td{number}\t1" for kind in "ab"]
        queries = [
            {"_id": f"{kind}{number}", "text": question.format(topic)}
            for number, topic in enumerate(TOPICS)
            for kind, question in (("a", "What is a {}?"), ("b", "Where is the old {}?"))
        ]
        for file, rows in (("corpus", documents), ("queries", queries)):
            (root / name / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for split in ("train", "test"):
            (root / name / "qrels" / f"{split}.tsv").write_text("\n".join(judged) + "\n")
    return root


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A BERT of six narrow layers that knows nothing, with the shipped model's tokeniser."""
    torch = pytest.importorskip("torch", reason="training needs the extra [train]")
    transformers = pytest.importorskip("transformers", reason="training needs the extra [train]")
    pytest.importorskip("onnx", reason="exporting needs the extra [train]")
    folder = tmp_path_factory.mktemp("base")
    shipped = Path(__file__).parents[2] / "encoders" / "shipped" / "minilm-l6-anchored"
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(shipped / "tokenizer.json"), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((shipped / "tokenizer.json").read_bytes())
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=6, num_attention_heads=4, intermediate_size=128)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(data, base, tmp_path_factory):
    """A model with weights and vectors, of a few steps from the narrow BERT."""
    out = tmp_path_factory.mktemp("models") / "squad"
    command = ["train", "fectek", str(data / "squad"), "--out", str(out), *SMALL.format(base=base).split()]
    assert cli.run(command) == 0
    return out


@pytest.fixture(scope="module")
def prefix(opensearch_engine):
    """A prefix of index names of one's own; what was made under it is removed."""
    chosen = f"bench{uuid.uuid4().hex[:8]}"
    yield chosen
    opensearch_engine.request("DELETE", f"/{chosen}*,misspelt-squad*", params={"expand_wildcards": "all"})


@pytest.fixture(scope="module")
def squad(data, prefix, opensearch_engine):
    """A data set of which retrieval.py has made the index PREFIX-squad."""
    output = printed("retrieval", str(data / "squad"), "--name", prefix, url=opensearch_engine.url)
    assert all(part in output for part in ("| nDCG@10 | BM25 |", "| squad |", "hybrid+rNN"))
    return data / "squad"


@pytest.fixture(scope="module")
def ranker(base, tmp_path_factory):
    """A cross-encoder that knows nothing."""
    transformers = pytest.importorskip("transformers", reason="making models needs the extra [train]")
    pytest.importorskip("sentence_transformers", reason="the comparison needs sentence-transformers")
    model = tmp_path_factory.mktemp("ranker")
    transformers.BertForSequenceClassification(transformers.AutoConfig.from_pretrained(base, num_labels=1)).save_pretrained(model)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(model)
    return model


def test_every_script_is_run():
    scripts = {path.stem for path in BENCHMARKS.glob("*.py")} - MODULES
    assert scripts == {*(call.partition(" ")[0] for call in CALLS), *ELSEWHERE, "retrieval"}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call.split()[:2]))
def test_a_script_runs_on_its_smallest_input(call, request, tmp_path, opensearch_engine):
    names = {name: request.getfixturevalue(name) for name in re.findall(r"{(\w+)}", call)}
    arguments, where = shlex.split(call.format(**names)), {"url": opensearch_engine.url, "home": tmp_path / "cache"}
    output = printed(*arguments, **where)
    for part in CALLS[call]:
        assert part in output
    if call.startswith("reproduction"):
        assert json.loads(output.splitlines()[-1])["commits"]
        assert printed(*arguments, "--finished", **where) == output


def test_a_benchmark_without_a_server_ends_in_a_sentence():
    ended = run("indexing", url="http://127.0.0.1:9")
    assert ended.returncode == 5, ended.stderr
    assert ended.stderr.startswith("Error: ")
    assert "http://127.0.0.1:9" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.nightly
def test_what_a_gpu_will_run_is_packed_and_runs_without_network_on_a_processor(data, tmp_path, closed_port, opensearch_engine):
    """In a fresh environment that has the packages of this one, but not termweave."""
    pytest.importorskip("torch", reason="training needs the extra [train]")
    lock = tomllib.loads((BENCHMARKS.parent / "uv.lock").read_text())
    (tmp_path / "there.txt").write_text(" ".join({package["name"] for package in lock["package"]} - {"termweave", "pystemmer"}))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    packed = f"--data {data} --out {tmp_path}/pieces --there {tmp_path}/there.txt --python {python} --preset 0 --piece 20"
    assert "1 packages" in printed("gpu/pack", *packed.split(), patience=900)
    assert len(list((tmp_path / "pieces").glob("pack.0*"))) > 2
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False, symlinks=True)
    (packages,) = fresh.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{closed_port}")
    own = {"no_proxy": "127.0.0.1", "OPENSEARCH_URL": opensearch_engine.url, "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **nowhere, **own}
    command = [fresh / "bin" / "python", BENCHMARKS / "gpu" / "run.py", tmp_path / "pieces", "--out", tmp_path / "out"]
    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    try:
        ended = subprocess.run([*command, "--device", "cpu", "--small"], check=False, **options)
    finally:
        opensearch_engine.request("DELETE", "/learn-stackfaq*", params={"expand_wildcards": "all"})
    results = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "out").glob("*.json")}
    assert not ended.returncode, ended.stdout + ended.stderr
    assert all(result["finished"] for result in results.values())
    assert results["devices"]["fast"]["elsewhere"] == {}
    assert results["parity"]["fast"]["dequantised"]["cosine_min"] > 0.99999
    assert set(results["speed"]["ratio"]) < set(results["speed"]["rates"])
    assert all(results["training"][method]["loss_difference"] < 1e-3 for method in ("coder", "fectek", "dtr", "sir"))
    assert results["learn"]["row"]["set"] == "stackfaq"
