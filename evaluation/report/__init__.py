"""Reports of an evaluation: tables, pages, plots."""
