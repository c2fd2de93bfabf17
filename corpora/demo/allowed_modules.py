"""Which modules of the standard library the demo corpus documents: an allow list, because importing runs code.

Left out are: modules that act when imported (antigravity opens a browser, this prints, readline and rlcompleter change the
terminal), graphical ones (tkinter, turtle, idlelib: missing in many installations), tests, deprecated modules (lib2to3, distutils,
those that PEP 594 removed in 3.13), and internal modules (posix, sre_compile, encodings.*). Modules that an installation lacks are
skipped.
"""

from __future__ import annotations

#: Imported before their submodules, because an object is listed under the first name at which it is found.
TOP_LEVEL = tuple(
    """
    builtins abc argparse array ast asyncio atexit base64 bdb binascii bisect bz2 calendar cmath cmd code codecs
    codeop collections colorsys compileall concurrent configparser contextlib contextvars copy copyreg cProfile csv
    ctypes curses dataclasses datetime dbm decimal difflib dis doctest email ensurepip enum errno faulthandler fcntl
    filecmp fileinput fnmatch fractions ftplib functools gc getopt getpass gettext glob graphlib grp gzip hashlib
    heapq hmac html http imaplib importlib inspect io ipaddress itertools json keyword linecache locale logging lzma
    mailbox marshal math mimetypes mmap modulefinder msvcrt multiprocessing netrc numbers operator optparse os pathlib
    pdb pickle pickletools pkgutil platform plistlib poplib pprint profile pstats pty pwd py_compile pyclbr pydoc
    queue quopri random re reprlib resource runpy sched secrets select selectors shelve shlex shutil signal site
    smtplib socket socketserver sqlite3 ssl stat statistics string stringprep struct subprocess symtable sys sysconfig
    syslog tabnanny tarfile tempfile termios textwrap threading time timeit token tokenize tomllib trace traceback
    tracemalloc tty types typing unicodedata unittest urllib uuid venv warnings wave weakref webbrowser winreg
    winsound wsgiref xml xmlrpc zipapp zipfile zipimport zlib zoneinfo
    """.split()  # noqa: SIM905 - two hundred quoted strings read worse
)

SUBMODULES = tuple(
    """
    collections.abc concurrent.futures ctypes.util curses.ascii curses.panel curses.textpad dbm.dumb dbm.gnu dbm.ndbm
    email.charset email.encoders email.errors email.generator email.header email.headerregistry email.iterators
    email.message email.contentmanager email.mime.application email.mime.audio email.mime.base email.mime.image
    email.mime.message email.mime.multipart email.mime.nonmultipart email.mime.text email.parser email.policy
    email.utils html.entities html.parser http.client http.cookiejar http.cookies http.server importlib.abc
    importlib.machinery importlib.metadata importlib.resources importlib.resources.abc importlib.util logging.config
    logging.handlers multiprocessing.connection multiprocessing.managers multiprocessing.pool
    multiprocessing.shared_memory multiprocessing.sharedctypes os.path unittest.mock urllib.error urllib.parse
    urllib.request urllib.response urllib.robotparser wsgiref.handlers wsgiref.headers wsgiref.simple_server
    wsgiref.util wsgiref.validate xml.dom xml.dom.minidom xml.dom.pulldom xml.etree.ElementTree xml.parsers.expat
    xml.sax xml.sax.handler xml.sax.saxutils xml.sax.xmlreader xmlrpc.client xmlrpc.server
    """.split()  # noqa: SIM905 - two hundred quoted strings read worse
)

#: Documented names that are not in the ``__all__`` of their modules.
UNLISTED = frozenset(
    """
    asyncio.TaskGroup asyncio.Timeout asyncio.timeout asyncio.timeout_at email.message.MIMEPart hashlib.scrypt
    importlib.metadata.EntryPoint importlib.metadata.EntryPoints linecache.getlines os._exit
    multiprocessing.connection.Connection pkgutil.resolve_name subprocess.list2cmdline timeit.default_timer
    """.split()  # noqa: SIM905 - two hundred quoted strings read worse
)

#: Aliases that are better known than the object's own name. Some are another object on another platform; the last two are classes
#: that newer versions also offer in a module that is imported earlier (3.14: types.UnionType is typing.Union).
PREFERRED = (
    "getpass.getpass",
    "selectors.DefaultSelector",
    "weakref.ref",
    "xml.etree.ElementTree.fromstring",
    "typing.Union",
    "xml.sax.handler.ContentHandler",
)

#: Private base classes with a public name: their methods are listed under the class that everybody uses.
HIDDEN = frozenset({"socket.SocketType"})

#: Module that defines the objects of an extension module, if it is not the same name with an underscore.
HOMES = {"xml.parsers.expat": "pyexpat"}
