"""An index whose mapping declares a field of each type, by `--mapping` or by an application, and what each feature of a search makes of it."""

import pytest

from termweave.errors import UsageError

#: Types that every server of the tests has.
FIELDS = {
    "half": {"type": "half_float"},
    "single": {"type": "float"},
    "count": {"type": "integer"},
    "tiny": {"type": "byte"},
    "day": {"type": "date", "format": "dd.MM.yyyy"},
    "nanos": {"type": "date_nanos"},
    "flag": {"type": "boolean"},
    "kind": {"type": "keyword"},
    "address": {"type": "ip"},
    "place": {"type": "geo_point"},
    "span": {"type": "integer_range"},
    "parts": {"type": "nested", "properties": {"size": {"type": "integer"}, "note": {"type": "text"}}},
    "maker": {"properties": {"size": {"type": "short"}, "town": {"type": "text", "fields": {"raw": {"type": "keyword"}}}}},
    "prose": {"type": "text"},
    "number": {"type": "alias", "path": "count"},
    "lean": {"type": "integer", "doc_values": False},
    "unseen": {"type": "integer", "index": False},
    "nothing": {"type": "keyword", "index": False, "doc_values": False},
}


def documents(**more):
    """Twenty documents with a value in each field; `more` has functions of their number for further fields."""
    return [
        {
            "id": f"d{n:02}", "title": f"kettle {n}", "text": "kettle " * (n % 3 + 1), "half": n / 10, "single": n * 1.1, "count": n, "tiny": n,
            "day": f"{n + 1:02}.01.2024", "nanos": f"2024-01-{n + 1:02}T00:00:00.123456789Z", "flag": n % 2 == 0, "kind": "ab"[n % 2],
            "address": f"10.0.0.{n}", "place": {"lat": 50 + n / 100, "lon": 7}, "span": {"gte": n, "lte": n + 1},
            "parts": [{"size": n, "note": "red"}, {"size": n + 100, "note": "blue"}], "maker": {"size": n, "town": f"Town {n % 4}"}, "prose": f"words {n}",
            "lean": n, "unseen": n, "nothing": "q", **{name: of(n) for name, of in more.items()},
        }
        for n in range(20)
    ]  # fmt: skip


def numbers(index, **options):
    """The numbers of the hits, in their order."""
    return [int(hit.id[1:]) for hit in index.search("kettle", k=30, **options)]


def refused(index, **options):
    """The sentence with which a search is refused."""
    with pytest.raises(UsageError) as error:
        index.answer("kettle", **options)
    return f"{error.value.message} {error.value.hint}"


def checked(index):
    """Use the fields of such an index in every feature."""
    for where, found in (
        ("half=0.1", [1]), ("half>=1.8", [18, 19]), ("half<70000", range(20)), ("single=1.1", [1]), ("single>1e39", []),
        ("count>17", [18, 19]), ("count<3000000000", range(20)), ("count>3000000000", []), ("count=3000000000", []), ("count>-3e9", range(20)),
        ("count<99999999999999999999", range(20)), ("tiny<=200", range(20)), ("number=7", [7]), ("number>18", [19]),
        ("day=2024-01-05", [4]), ("day>2024-01-18", [18, 19]), ("nanos<1900", []), ("nanos<3000", range(20)), ("nanos=2024-01-03", [2]),
        ("flag=true AND count<4", [0, 2]), ("kind=a* AND count<4", [0, 2]), ("kind>a AND count<4", [1, 3]),
        ("address=10.0.0.0/30", range(4)), ("address>10.0.0.17", [18, 19]), ("span=7", [6, 7]), ("span>18", [18, 19]), ("span<3000000000", range(20)),
        ("parts.size=107", [7]), ("NOT parts.size<3", range(3, 20)),
        ("maker.size>=18", [18, 19]), ("maker.town=Town 3 AND count<8", [3, 7]), ("maker.town.raw=Town 3 AND count<8", [3, 7]),
        ("lean>17", [18, 19]), ("unseen>17", [18, 19]),
        *((f"exists({name})", range(20)) for name in ("place", "span", "parts", "maker", "prose", "day", "number", "lean")),
    ):  # fmt: skip
        assert sorted(numbers(index, where=where)) == list(found), where
    for where, sentence in (
        ("half>>3", "holds numbers, and '>3' is not a number"), ("day>soon", "is not a date"), ("flag>true", "has no order"),
        ("address>x", "holds IP addresses"), ("address=10.*", "holds IP addresses, and '10.*' is a pattern"), ("count=1*", "is a pattern"),
        ("place>3", "is a geo_point, so that it cannot be compared by filters"), ("maker=x", "is an object and no value"),
        ("maker>x", "These can: maker.size, maker.town."), ("prose=w*", "is analysed text"), ("span>>3", "is not a number"),
    ):  # fmt: skip
        assert sentence in refused(index, where=where), where
    counted = ["single", "half", "day", "nanos", "flag", "address", "maker.town", "maker.town.raw", "count:5/10"]
    counted += ["half:0.5/100000", "single:1e39/", "day:2024-01-05/2024-01-10", "nanos:1900/2024-01-10", "number:3/"]
    for name, values in index.answer("kettle", facets=counted, k=1).facets.items():
        assert ":" not in name or sum(each.count for each in values) == 20
        assert all(len(each.value) < 25 for each in values), values
        assert [len(numbers(index, where=each.filter)) for each in values] == [each.count for each in values], name
    for name in ("half", "single", "count", "day", "nanos", "address", "number", "unseen", "maker.size"):
        assert numbers(index, sort=f"{name}:desc")[:2] == [19, 18], name
    assert len(numbers(index, collapse="maker.town")) == 4
    for name, why in (
        ("prose", "is analysed text"), ("span", "holds ranges"), ("place", "is a geo_point"), ("maker", "is an object"), ("parts", "is an object"),
        ("lean", "is not kept by document"), ("nothing", "is neither indexed nor kept"), ("nope", "has no field"),
    ):  # fmt: skip
        for options in ({"sort": name}, {"facets": [name]}, {"collapse": name}):
            assert why in refused(index, **options)
        assert "reads the metadata entry" in refused(index, rerank=f"boost@{name}:1") or name == "place"
    assert "of numbers, and 'day' holds something else" in refused(index, rerank="boost@day:1")
    best = index.search("kettle", rerank="boost@single:1", k=1, explain=True)[0]
    assert (best.id, best.explanation["parts"][-1]["value"]) == ("d19", 20.9)
    assert index.search("kettle", rerank="decay@place:1:1km:50.12,7", k=1)[0].id == "d12"
    assert index.search("kettle", rerank="decay@day:1:7d", k=1)[0].id == "d19"
    fields = index.search("kettle", where="count=7", fields=["number", "maker.town.raw"])[0].fields
    assert fields == {"count": 7, "maker": {"town": "Town 3"}}
    able = {*index.layout.able()}
    assert {"half", "day", "count", "maker.town", "unseen"} <= able
    assert not {"prose", "place", "span", "lean", "number", "maker.town.raw"} & able
