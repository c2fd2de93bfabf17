"""Work that takes longer than a page, and runs beside the pages."""
