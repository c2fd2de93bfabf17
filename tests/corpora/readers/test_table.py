"""CSV and TSV: the dialect and the columns that are found, what is read, what is named, what is left out."""

import csv
import io
import re
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from termweave.corpora import open_source
from termweave.corpora.formats import lines
from termweave.errors import InputError, UsageError
from termweave.support.normal_form import normal
from tests.corpora.files import make, read


def write(folder, content, name="table.csv"):
    return make(folder, {name: content}) / name


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(CELLS.filter(bool), CELLS, CELLS, CELLS)),
    delimiter=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_what_csv_writes_is_read(tmp_path, rows, delimiter, end, quoting):
    made = io.StringIO()
    writer = csv.writer(made, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([("id", "title", "text", "Größe"), *rows])
    found = read(write(tmp_path, made.getvalue()))
    assert found == [(id_, normal(title), normal(text), {"Größe": normal(other)}) for id_, title, text, other in rows]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(*[CELLS.map(lambda cell: "x" + cell.translate({9: 32, 10: 32, 13: 32}))] * 2), min_size=1))
def test_a_tsv_without_quoting_is_read_as_it_stands(tmp_path, rows):
    content = "id\ttext\n" + "".join(f"{id_}\t{text}\n" for id_, text in rows)
    assert read(write(tmp_path, content)) == [(id_, "", normal(text), {}) for id_, text in rows]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("id,text\n1,a\n", [("1", "", "a", {})]),
        ("\ufeffid;text\r\n1;a,b\r\n", [("1", "", "a,b", {})]),
        ("sep=^\nid^text\n1^a\n", [("1", "", "a", {})]),
        ("sep=\t\nid\ttext\n1\ta\n", [("1", "", "a", {})]),
        ('"ID","Title","Body"\n"1","T","a ""b"" c"\n', [("1", "T", 'a "b" c', {})]),
        ("title,year\nT,2020\n", [("2", "T", "", {"year": "2020"})]),
        (",text,\n0,a,x\n", [("2", "", "a", {"column1": "0", "column3": "x"})]),
        ("id,text\n1, blanks \n", [("1", "", " blanks ", {})]),
        ("id,text\n", []),
        ('id,text\n\n1,"a\n\nb"\n\n', [("1", "", "a\n\nb", {})]),
        (";;\r\nid;text;year\r\n1;a;\r\n;;\r\n2;;3\r\n;;\r\n;;\r\n;\r\n", [("1", "", "a", {"year": ""}), ("2", "", "", {"year": "3"})]),
        ("id,text\nA,1\na,2\n\u00e9,3\ne\u0301,4\n", [("A", "", "1", {}), ("a", "", "2", {}), ("\u00e9", "", "3", {}), ("e\u0301", "", "4", {})]),
        ("id,text\n1,\u2028x\x0by\n", [("1", "", "\u2028x\x0by", {})]),
    ],
)  # fmt: skip
def test_the_tables_there_are(tmp_path, content, expected):
    assert read(write(tmp_path, content)) == expected


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("sku,name,about\n7,N,A\n", {"id_field": "sku", "title_field": "name", "text_fields": ["about"]}, ("7", "N", "A", {})),
        ("id,q,a\n1,Q,A\n", {"text_fields": ["q", "a"]}, ("1", "", "Q\nA", {})),
        ("id,text,x\n1,T,X\n", {"text_fields": ["x"]}, ("1", "", "X", {"text": "T"})),
        ("7\tu\tT\tB\n8\tu\tT\tB\n", {"id_field": "1", "title_field": "3", "text_fields": ["4"]}, ("7", "T", "B", {"column2": "u"})),
        ("1\tsome text\n2\tother\n", {"id_field": "1", "text_fields": ["2"]}, ("1", "", "some text", {})),
        ("0,1\n7,a\n", {"id_field": "0", "text_fields": ["1"]}, ("7", "", "a", {})),
    ],
)  # fmt: skip
def test_columns_can_be_named(tmp_path, content, options, expected):
    assert read(write(tmp_path, content), **options)[0] == expected


def test_a_header_line_that_only_options_make_one_is_said(tmp_path):
    path = write(tmp_path, "d1,the cat\nd2,a dog\n")
    by_options = "its first line is the header line, because an option names a cell of it"
    for options, said, count in (
        ({"id_field": "d1", "text_fields": ["the cat"]}, by_options, 1),
        ({"id_field": "1", "text_fields": ["2"]}, "no header line", 2),
    ):
        assert said in open_source(path, **options).remarks[0]
        assert len(read(path, **options)) == count
    assert "first line" not in open_source(write(tmp_path, "id,text\n1,a\n"), text_fields=["text"]).remarks[0]


PLAIN = "".join(f"{number}\tsome text\n" for number in range(3000))
QUOTED = "".join(f'"{number}"\t"some ""text"""\r\n' for number in range(30))


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (PLAIN + '3000\t"To be or not\n3001\tx\n', 3002),
        (PLAIN + '3000\t"To be" or not\n3001\t"x"\n', 3002),  # as many do not end with a quote as do
        (PLAIN + '3000\t"To be\tor not"\n', 3001),
        (QUOTED, 30),
        (QUOTED + '3000\t"a tab\tand a\nline"\n', 31),
    ],
)
def test_quotes_of_a_tsv_are_characters_unless_most_hold_cells(tmp_path, content, kept):
    assert len(read(write(tmp_path, content), id_field="1", text_fields=["2"])) == kept


def test_the_advice_on_stray_quotes_makes_a_table_that_is_read(tmp_path):
    path = write(tmp_path, QUOTED.replace("\r", "") + '3000\t"To be" or not\n3001\t\n')
    with pytest.raises(InputError, match="line 31: a quoted cell has text after") as caught:
        read(path, id_field="1", text_fields=["2"])
    (command,) = re.findall("`(sed [^`]+)`", caught.value.hint)
    made = subprocess.run(f"{command} {path}", shell=True, capture_output=True, check=True).stdout
    found = read(write(tmp_path, made), id_field="1", text_fields=["2"])
    assert [text for _, _, text, _ in found[-3:]] == ['"some ""text"""', '"To be" or not', ""]


def test_a_quote_that_is_never_closed_takes_no_memory_and_no_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 1 << 16)
    good = "id,text,x\n" + "".join(f'{number},"good, quoted",\n' for number in range(1, 40))
    rows = "".join(f"{number},some text that is good,\n" for number in range(20_000))
    source = open_source(write(tmp_path, good + 'opens,"here,\n' + rows), skip_bad=True)
    assert sum(1 for _ in source.documents()) == 39 + 20_000
    assert [str(each).rpartition("line 41: ")[2][:40] for each in source.skipped] == ["a quote that opens here is never closed,"]


def test_cells_with_the_separator_are_lists(tmp_path):
    file = write(tmp_path, "id,text,colours,size\n1,red; or blue,red;blue ;,10\n2,green,green,20;\n")
    assert read(file, list_separator=";") == [
        ("1", "", "red; or blue", {"colours": ["red", "blue"], "size": "10"}),
        ("2", "", "green", {"colours": "green", "size": ["20"]}),
    ]
    assert open_source(file, list_separator=";").fingerprint != open_source(file).fingerprint
    write(tmp_path, "x", "a.txt")
    for other in (tmp_path, write(tmp_path, '{"id": "1", "text": "x"}\n', "goods.jsonl")):
        with pytest.raises(UsageError, match="is for cells of a table"):
            open_source(other, list_separator=";")


@pytest.mark.parametrize(
    ("mark", "options", "commas"), [(";", {}, True), ("\t", {}, True), (",", {}, False), (";", {"list_separator": ","}, False)]
)
def test_commas_can_be_in_numbers_where_they_separate_nothing_else(tmp_path, mark, options, commas):
    path = write(tmp_path, f'id{mark}text{mark}price\n1{mark}tea{mark}"12,50"\n')
    assert open_source(path, **options).decimal_commas is commas
