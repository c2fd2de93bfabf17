"""Which modules of the standard library the demo corpus documents: an allow list, because importing runs code.

Left out on purpose: modules that do something when imported (antigravity opens a browser, this prints, readline and
rlcompleter change the terminal), windows (tkinter, turtle, idlelib: absent from many installations), tests, what is
deprecated (lib2to3, distutils, the modules that PEP 594 removed in 3.13), and what is an implementation's own (posix,
sre_compile, encodings.*). A module that an installation lacks is passed over.
"""

from __future__ import annotations

#: Before their submodules: an object goes by the first name that it is met under.
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

#: Documented, and yet not in their modules' ``__all__``.
UNLISTED = frozenset(
    """
    asyncio.TaskGroup asyncio.Timeout asyncio.timeout asyncio.timeout_at email.message.MIMEPart hashlib.scrypt
    importlib.metadata.EntryPoint importlib.metadata.EntryPoints linecache.getlines os._exit
    multiprocessing.connection.Connection pkgutil.resolve_name subprocess.list2cmdline timeit.default_timer
    """.split()  # noqa: SIM905 - two hundred quoted strings read worse
)

#: Aliases that are the name everybody knows a thing by. Behind some stands another thing on another platform; the last two are
#: classes that newer versions offer in an earlier module, too (3.14: types.UnionType is typing.Union).
PREFERRED = (
    "getpass.getpass",
    "selectors.DefaultSelector",
    "weakref.ref",
    "xml.etree.ElementTree.fromstring",
    "typing.Union",
    "xml.sax.handler.ContentHandler",
)

#: Private bases that have a public name: their methods belong to the class that everybody uses.
HIDDEN = frozenset({"socket.SocketType"})

#: Where an extension module defines things, where that is not its own name with an underscore.
HOMES = {"xml.parsers.expat": "pyexpat"}
