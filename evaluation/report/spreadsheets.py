"""Cells of CSV and TSV files that no spreadsheet runs as a formula."""

from __future__ import annotations

import re

#: Beginnings that make a spreadsheet run a cell; the last ones are full-width forms, which some spreadsheets convert.
_FORMULA = re.compile("\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)


def spreadsheet_cell(text: str) -> str:
    """A text as a cell of a CSV or TSV file: one that a spreadsheet would run as a formula begins with an apostrophe.

    Numbers stay as they are. See OWASP, "CSV Injection".

    Example:
        >>> spreadsheet_cell("=cmd|' /C calc'!A0"), spreadsheet_cell("-3.5"), spreadsheet_cell("tea")
        ("'=cmd|' /C calc'!A0", '-3.5', 'tea')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
