"""nginx in front of a server, with the configuration that a test gives it."""

from __future__ import annotations

import os
import socket
import subprocess
import time

import psutil
import pytest

from termweave.engine.embedded import startup
from tests.programs import program

_CONFIGURATION = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_max_body_size 100m;
  server {{
    listen 127.0.0.1:{port} {ssl};
    {server}
    location {prefix} {{ proxy_pass {upstream}/; }}
  }}
}}
"""


class Nginx:
    """A running nginx.

    Args:
        folder: For its files.
        upstream: Address of the server behind it.
        certificate: ``(certificate, key)``; None: plain HTTP.
        server: Directives of the server block.
        prefix: Path under which the server is found, with slashes on both ends.

    Attributes:
        url: Address.
    """

    def __init__(self, folder, upstream, *, certificate=None, server="", prefix="/"):
        self._program = program("nginx")
        self._folder = folder
        folder.mkdir()
        self._port = next(startup.free_ports())
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._port}{prefix.rstrip('/')}"
        if certificate:
            server += f"\nssl_certificate {certificate[0]};\nssl_certificate_key {certificate[1]};"
        self._values = {
            "user": "user root;" if os.geteuid() == 0 else "",  # its own user may not read the tests' folders
            "folder": folder,
            "port": self._port,
            "ssl": "ssl" if certificate else "",
            "server": server,
            "prefix": prefix,
        }
        self._write(upstream)
        self._process = subprocess.Popen(self._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(20)

    def forward_to(self, upstream):
        """Forward to another address from now on; returns when the old workers have ended."""
        self._write(upstream)
        old = psutil.Process(self._process.pid).children()
        subprocess.run([*self._command(), "-s", "reload"], check=True, capture_output=True)
        psutil.wait_procs(old, timeout=20)

    def log(self):
        """Method, path and status of all requests."""
        return (self._folder / "access.log").read_text()

    def _command(self):
        return [self._program, "-p", self._folder, "-c", self._folder / "nginx.conf", "-e", self._folder / "error.log"]

    def _write(self, upstream):
        (self._folder / "nginx.conf").write_text(_CONFIGURATION.format(upstream=upstream, **self._values))

    def _wait(self):
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    pytest.fail("nginx did not start: " + (self._folder / "error.log").read_text())
                time.sleep(0.05)
            else:
                return


def password_file(folder, user, password):
    """Directives for basic authentication, with the file that they need."""
    done = subprocess.run(["openssl", "passwd", "-apr1", password], capture_output=True, text=True, check=True)
    file = folder / f"{user}.htpasswd"
    file.write_text(f"{user}:{done.stdout}")
    return f'auth_basic "search"; auth_basic_user_file {file};'
