"""Profiles: listed, chosen, dropped; one in force gives way only to a better one."""

from dataclasses import replace
from functools import partial

import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog import audit
from termweave.catalog.lineage import read_lineage, store_lineage
from termweave.catalog.profiles import Profile
from termweave.evaluation.experiment import runs_of
from termweave.evaluation.systems import plain_system, system_of
from termweave.evaluation.tuning import tune as tuning
from termweave.indexer import BuildOptions, build
from termweave.records import Query
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import profiles

from .conftest import beir, valid

FITTED = {"dataset": "mine:test", "measure": "nDCG@10", "queries": 30, "held_out": {"tuned": 0.5, "default": 0.4}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty questions, each the name of a colour and a number, and the document that says it."""
    words = [f"{colour} house number {number}" for colour in ("red", "green", "blue") for number in range(10)]
    documents, queries = ({f"{kind}{n}": text for n, text in enumerate(words)} for kind in "dq")
    return beir(tmp_path_factory.mktemp("colours"), documents, queries, dict(zip(queries, documents, strict=True)))


@pytest.fixture
def index(opensearch_engine, folder, name):
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions())
    return tw.connect(opensearch_engine.url).index(name)


def in_force(index):
    return tw.connect(index.engine.url).index(index.name).lineage.profile


def test_profiles_are_listed_chosen_and_dropped(index, termweave):
    profiles = partial(termweave, "profiles", index.name)
    assert f"has no profiles. Make one: termweave tune {index.name} DATASET." in profiles().stdout
    for name, share in (("first", 0.3), ("second", 0.6)):
        index.adopt(Profile(name, {"weights": 1 - share, "dense": share}, "adaptive", None, FITTED))
    table = profiles().stdout
    assert table.index("first") < table.index("second") < table.index("in force")
    told = valid(profiles("--use", "first", "--json").stdout, "profiles")
    assert (told["in_force"], [each["name"] for each in told["profiles"]]) == ("first", ["first", "second"])
    for options, left in ((["--use", "hybrid"], ""), (["--use", "second"], "second"), (["--drop", "second"], "")):
        profiles(*options)
        assert in_force(index) == left
    assert "no profile 'second'.\nIts profiles are: first." in profiles("--drop", "second", status=2).stderr


def test_a_profile_in_force_gives_way_to_a_better_one_only(index, folder, termweave, monkeypatch):
    index.adopt(Profile("old", {"weights": 0.5, "dense": 0.5}, "rrf", None, {}))
    report = tuning.tune(index, corpora.open_dataset(folder))
    assert report.in_force == "old"
    shown, tune = {"tuned": 0.6, "default": 0.5}, ("tune", index.name, str(folder))
    worse = replace(report, gain=0.1, figures=shown | {"in force": 0.7})
    assert not worse.better
    assert replace(worse, figures=shown | {"in force": 0.6}).better
    alone = replace(worse, in_force="", figures=shown)
    assert alone.better

    chance = replace(alone, p=0.3)
    monkeypatch.setattr(tuning, "tune", lambda *_, name, **__: replace(chance, profile=replace(report.profile, name=name)))
    said = termweave(*tune, "--profile", "guess", status=3).stderr
    assert "may be chance (p 0.3); 'guess' is stored as a proposal, which no search uses" in said
    assert in_force(index) == "old"
    termweave("search", index.name, "red house", "--mode", "guess")
    termweave(*tune, "--profile", "guess", "--adopt")
    assert in_force(index) == "guess"
    assert "profile:" in termweave("audit", index.name, "-n", "1").stdout
    termweave("profiles", index.name, "--use", "old")

    monkeypatch.setattr(tuning, "tune", lambda *_, **__: worse)
    said = termweave(*tune, "--profile", "new", status=3)
    assert ("'old', has the higher mean" in said.stderr, "old, in force" in said.stdout, in_force(index)) == (True, True, "old")

    def while_another_is_published(*_, **__):
        build(index.engine, corpora.open_source(folder), index.name, BuildOptions(signals=("weights", "dense")))
        return replace(chance, profile=report.profile)

    monkeypatch.setattr(tuning, "tune", while_another_is_published)
    assert "by now. The profile is stored with" in termweave(*tune, "--adopt").stderr
    assert audit.read(index.engine, index.name, 1)[0].act != "profile"  # nothing came into force


def test_what_another_version_stored_is_named(index, termweave):
    record, whole = index.lineage, Profile("mine", {"weights": 1.0}, "adaptive", None, FITTED).as_meta()
    drop, weights = ("profiles", index.name, "--drop", "mine"), {"weights": {"magic": 1.0}}
    changes = ({"bad": 1}, weights, {"reranking": 3}, {"rules": ["ranker@/etc"]}, {"rewrite": {"magic": 1}})
    for damaged in (7, *(whole | change for change in changes)):
        store_lineage(index.engine, index.generation, replace(record, profiles={"mine": damaged}, profile="mine"))
        for verb in (("search", index.name, "red house"), ("profiles", index.name)):
            said = termweave(*verb, status=1).stderr
            assert ("The profile 'mine'" in said, f"Remove it with 'termweave {' '.join(drop)}'" in said) == (True, True)
    termweave(*drop)
    termweave("search", index.name, "red house")
    signals = {**record.signals, "lexical": {"more": 1}}
    store_lineage(index.engine, index.generation, replace(record, signals=signals))
    said = termweave("search", index.name, "red house", status=1).stderr
    assert "stores parameters of the signal 'lexical' that the installed version does not have" in said


def test_rewriting_that_an_index_has_no_words_for_is_refused_and_a_profile_named(opensearch_engine, name, folder, termweave):
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions(signals=("weights",), dense="none"))
    refused = termweave("profiles", name, "--save", "shop", "--rewrite", "spelling", "--use", "shop", status=2)
    assert "no field in which words can be looked up" in refused.stderr
    opened = tw.connect(opensearch_engine.url).index(name)
    opened.adopt(Profile("shop", {"weights": 1.0}, "adaptive", None, rewrite={"spelling": True}))
    said = " ".join(termweave("search", name, "red house", status=2).stderr.split())
    assert "The profile 'shop' asks for operators or spelling" in said
    assert f"--rewrite none searches without them, 'termweave profiles {name} --drop shop' deletes the profile" in said


def test_a_profile_is_put_together(index, termweave, tmp_path):
    path, name = tmp_path / "synonyms.txt", index.name
    path.write_text("crimson => red\n")
    options = ("--mode", "lexical", "--rewrite", f"spelling,synonyms@{path}", "--use", "shop")
    saved = termweave("profiles", name, "--save", "shop", *options)
    assert "spelling, 1 rule of synonyms" in " ".join(saved.stdout.split())
    path.unlink()  # the profile keeps the rules
    opened = tw.connect(index.engine.url).index(name)
    plain = [hit.id for hit in opened.search("red house", mode="lexical")]
    assert plain
    assert [hit.id for hit in opened.search("crimson house")] == plain
    assert not opened.search("crimson", mode="lexical")
    assert list(opened.run({"q": "crimson hous"}, k=10).scores["q"]) == plain
    systems = [system_of("shop", None, opened), plain_system("lexical", None)]
    evaluated = runs_of(opened, [Query("q", "crimson house")], systems, lambda *_: None, 10)
    assert list(evaluated[0]["shop"].scores["q"]) == plain
    assert evaluated[0]["shop"].scores != evaluated[0]["BM25"].scores
    assert not opened.search("crimson", rewrite="none")

    termweave("profiles", name, "--save", "new", "--mode", "shop", "--rerank", "rnn>diverse@0.2")
    profile = profiles.find(read_lineage(index.engine, index.generation), "new")
    assert reranking_of(profile).name == "rnn>diverse@0.2"
    assert profiles.rewriting_of(profile).synonyms == ("crimson => red",)
    newer = ("--mode", "new", "--rerank", "profile>diverse@0.3", "--rewrite", "none")
    termweave("profiles", name, "--save", "newer", *newer)
    profile = profiles.find(read_lineage(index.engine, index.generation), "newer")
    assert (reranking_of(profile).name, profiles.rewriting_of(profile)) == ("rnn>diverse@0.2>diverse@0.3", None)
    termweave("profiles", name, "--save", "shop", "--mode", "dense")  # searches use the profile of this name
    act = audit.read(index.engine, name, 1)[0]
    assert (act.act, act.before, act.after) == ("profile", "shop", "shop")
    for wrong, said in (
        (["--mode", "lexical"], "go with --save"),
        (["--save", "lexical"], "cannot be called"),
        (["--save", "x", "--rerank", "ranker@/nowhere"], "There is no model folder"),
        (["--save", "x", "--rerank", "diverse>rnn"], "'rnn' here.\nA profile keeps rnn first, then rules"),
        (["--save", "x", "--rerank", "boost@price"], "A rule must name an entry of this index"),
    ):
        assert said in termweave("profiles", name, *wrong, status=2).stderr
