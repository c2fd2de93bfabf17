"""Files that tests write, and what is read of them."""

from termweave.corpora import open_source


def make(folder, contents):
    """Write files of texts or bytes, by their names; returns the folder."""
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(spec, **options):
    """(id, title, text, metadata) of every document."""
    return [(each.id, each.title, each.text, dict(each.metadata)) for each in open_source(spec, **options).documents()]
