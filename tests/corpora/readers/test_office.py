"""PDF and office files: what is read of them, and that a damaged, encrypted or slow file is a refusal with its name."""

import os
import random
import shutil
import signal
import zipfile
from contextlib import closing, suppress

import pytest
from docx import Document as Word
from openpyxl import Workbook
from pptx import Presentation

from termweave.corpora import open_source
from termweave.corpora.formats import office_text
from termweave.corpora.formats.fields import BadLine
from termweave.corpora.readers import office_file as office
from termweave.errors import InputError, UsageError
from tests.corpora.readers.test_fuzzed_readers import mutated


def pdf(lines, title="Pump manual", pages=1):
    """A PDF with these lines on each page."""
    text = b"BT /F1 12 Tf 20 180 Td 14 TL " + b" ".join(b"(%s) Tj T*" % line.encode("latin-1") for line in lines) + b" ET"
    kids = b" ".join(b"%d 0 R" % (5 + page) for page in range(pages))
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Resources << /Font << /F1 3 0 R >> >> /Contents 4 0 R >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(text), text),
        *[page] * pages,
        b"<< /Title (%s) >>" % title.encode(),
    ]
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer << /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    content += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return content + trailer % (len(objects) + 1, len(objects), content.index(b"xref\n0 "))


#: A page with the mark of encryption (RC4, 40 bits), to which no password fits.
_KEYS = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >> /ID [<00> <00>] " % (b"00" * 32, b"00" * 32)
ENCRYPTED = pdf(["x"]).replace(b"/Info", _KEYS + b"/Info")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("office")
    (root / "manual.pdf").write_bytes(pdf(["The pump of the cool-", "ing circuit hums.", "\xc4pfel fallen."]))
    word = Word()
    word.add_heading("Annual report", 0)
    word.add_paragraph("Sales rose in spring.")
    table = word.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "North", "42"
    word.save(root / "report.docx")
    slides = Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Road map", "First step\nSecond step"
    slide.notes_slide.notes_text_frame.text = "Greet the guests."
    slides.save(root / "talk.pptx")
    book = Workbook()
    book.active.title = "Cities"
    book.active.append(["city", "people"])
    book.active.append(["Ulm", 126000])
    book.save(root / "cities.xlsx")
    (root / "notes.txt").write_text("plain text")
    return root


@pytest.fixture(scope="module")
def read(folder):
    return {document.id: (document.title, document.text) for document in open_source(folder).documents()}


def test_a_folder_of_office_files_is_read_with_titles(folder, read):
    documents = dict(read)
    title, text = documents.pop("manual.pdf")
    assert (title, text.split("\n")[-1]) == ("Pump manual", "Äpfel fallen.")
    assert documents == {
        "notes.txt": ("", "plain text"),
        "report.docx": ("Annual report", "Sales rose in spring.\nNorth\n42"),
        "talk.pptx": ("Road map", "First step\nSecond step\n\nGreet the guests."),
        "cities.xlsx": ("", "Cities\ncity people\nUlm 126000"),
    }
    assert "each text file is a document (1 .xlsx, 1 .pdf, 1 .txt, 1 .docx, 1 .pptx)" in open_source(folder).remarks[0]


@pytest.mark.parametrize("name", ["manual.pdf", "report.docx", "talk.pptx", "cities.xlsx"])
def test_one_file_is_a_corpus_of_one_document_whatever_its_name(folder, read, tmp_path, name):
    (tmp_path / "file").write_bytes((folder / name).read_bytes())
    source = open_source(tmp_path / "file")
    (document,) = source.documents()
    assert (document.id, document.title, document.text) == ("file", *read[name])
    assert "--passage-size" in source.remarks[0]


def test_encrypted_and_damaged_files_are_refused_by_name_and_the_others_read(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "secret.pdf").write_bytes(ENCRYPTED)
    (tmp_path / "secret.docx").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(600))
    (tmp_path / "cut.pdf").write_bytes((folder / "manual.pdf").read_bytes()[:60])
    (tmp_path / "cut.xlsx").write_bytes((folder / "cities.xlsx").read_bytes()[:900])
    source = open_source(tmp_path, skip_bad=True)
    assert len(list(source.documents())) == 5
    reasons = {skipped.file.rpartition("/")[2]: skipped.reason for skipped in source.skipped}
    assert sorted(reasons) == ["cut.pdf", "cut.xlsx", "secret.docx", "secret.pdf"]
    assert all(("damaged" if name.startswith("cut") else "encrypted") in reason for name, reason in reasons.items())
    with pytest.raises(InputError, match=r"cut\.pdf: it is damaged"):
        list(open_source(tmp_path).documents())


def test_a_file_that_takes_too_long_or_ends_its_reader_costs_that_file_only(folder, tmp_path, monkeypatch):
    slow = tmp_path / "slow.pdf"
    slow.write_bytes(pdf(["words of a page " * 4] * 30, pages=3000))
    with closing(office.Extractor()) as extractor:
        assert extractor.document(folder / "manual.pdf", ".pdf", "x").title == "Pump manual"
        with monkeypatch.context() as patch:
            patch.setattr(office, "SECONDS", 0.05)
            with pytest.raises(BadLine, match="takes more than"):
                extractor.document(slow, ".pdf", "x")
        assert extractor.document(folder / "report.docx", ".docx", "x").title == "Annual report"
        monkeypatch.setattr(extractor, "_line", lambda process: os.kill(process.pid, signal.SIGSEGV) or b"")
        with pytest.raises(BadLine, match="ended the program"):
            extractor.document(slow, ".pdf", "x")
        monkeypatch.undo()
        assert extractor.document(folder / "cities.xlsx", ".xlsx", "x").text.startswith("Cities")


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    bomb = tmp_path / "bomb.docx"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(3_000_000))
    long = tmp_path / "long.pdf"
    long.write_bytes(pdf(["a line that is longer than the limit"], pages=9))
    for limit, value, file, said in (
        ("MOST_UNPACKED", 2_000_000, bomb, "unpacks to more than"),
        ("MAX_LINE", 100, long, "its text is longer than"),
        ("LONGEST", 100, bomb, "larger than"),
    ):
        monkeypatch.setattr(office_text, limit, value)
        assert said in office_text.answer({"path": str(file), "kind": file.suffix})["bad"]


def test_mutated_files_end_as_documents_or_refusals(folder, tmp_path):
    dice = random.Random(7)
    with closing(office.Extractor()) as extractor:
        for number in range(60):
            original = dice.choice(["manual.pdf", "report.docx", "talk.pptx", "cities.xlsx"])
            file = tmp_path / f"{number}-{original}"
            file.write_bytes(mutated((folder / original).read_bytes(), dice))
            with suppress(BadLine):
                document = extractor.document(file, file.suffix, "x")
                assert (document.title + document.text).encode().decode() == document.title + document.text


def test_without_the_extra_files_are_named_and_the_command_that_helps(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(office, "readable", lambda: False)
    source = open_source(folder)
    assert [document.id for document in source.documents()] == ["notes.txt"]
    assert "4 files are of other types and ignored" in source.remarks[1]
    assert "[office]'` reads .docx, .pdf, .pptx, .xlsx." in source.remarks[1]
    (tmp_path / "only.pdf").write_bytes(ENCRYPTED)
    for place in (tmp_path, tmp_path / "only.pdf"):
        with pytest.raises(UsageError, match=r"\[office\]'"):
            open_source(place)
