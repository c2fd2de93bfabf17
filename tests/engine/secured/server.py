"""A genuine OpenSearch with ml-commons and its own security plugin: TLS, users, roles, client certificates.

The newest security plugin on Maven Central is 3.4.0.0, and the server of that version there lacks its modules. So the plugin runs in the
embedded server's version: its descriptor gets that version, and libraries that the server brings itself are left out.
"""

import json
import os
import shutil
import ssl
import time
import urllib.request
import zipfile
from itertools import islice
from urllib.error import HTTPError

import pytest

from termweave.engine.embedded import artifacts, folders, java, node, process
from termweave.engine.embedded.artifacts import MavenArtifact
from termweave.errors import TermweaveError
from tests.engine.certificates import Authority

_SHA = "fc164c084979f7f793d295b6bca56bf8bee76dafb762adef9f14fa872e0a7596"
PLUGIN = MavenArtifact("org.opensearch.plugin", "opensearch-security", "3.4.0.0", _SHA, plugin="opensearch-security")
#: The password of every user whose role a test defines.
PASSWORD = "Vogelflug-8812-Zaun"
_SETTINGS = """
plugins.security.ssl.transport.pemcert_filepath: node.pem
plugins.security.ssl.transport.pemkey_filepath: node.key
plugins.security.ssl.transport.pemtrustedcas_filepath: ca.pem
plugins.security.ssl.transport.enforce_hostname_verification: false
plugins.security.ssl.http.enabled: true
plugins.security.ssl.http.clientauth_mode: OPTIONAL
plugins.security.ssl.http.pemcert_filepath: node.pem
plugins.security.ssl.http.pemkey_filepath: node.key
plugins.security.ssl.http.pemtrustedcas_filepath: ca.pem
plugins.security.authcz.admin_dn: ["CN=admin"]
plugins.security.nodes_dn: ["CN=node"]
plugins.security.allow_default_init_securityindex: true
plugins.security.audit.type: noop
"""
#: Passwords, and client certificates whose common name is the user.
_AUTHENTICATION = """
_meta: {type: config, config_version: 2}
config:
  dynamic:
    http: {anonymous_auth_enabled: false, xff: {enabled: false}}
    authc:
      password:
        {http_enabled: true, order: 1, http_authenticator: {type: basic, challenge: true}, authentication_backend: {type: intern}}
      certificate:
        {http_enabled: true, order: 0, http_authenticator: {type: clientcert, config: {username_attribute: cn}, challenge: false},
         authentication_backend: {type: noop}}
"""
_API = "/_plugins/_security/api"


def start(root):
    """Start the server; where it cannot be had, the test is skipped, or fails if a server was promised."""
    try:
        return SecuredServer(root)
    except TermweaveError as error:
        give_up = pytest.fail if os.environ.get("TERMWEAVE_REQUIRE_ENGINE") else pytest.skip
        give_up(f"no OpenSearch with the security plugin for the tests: {error}")


class SecuredServer:
    """The server of these tests, with everything in a folder that its user may enter. `authority` issues the certificates that it trusts."""

    def __init__(self, root):
        self.authority = Authority(root / "authority", "Ours")
        self._admin = self.authority.issue("admin")
        port, transport = islice(node.free_ports(), 2)
        self.url = f"https://127.0.0.1:{port}"
        distribution, jdk = _distribution(), java.find()
        self._layout = process.Layout(root)
        process.configure(self._layout, distribution, port, transport, [_SETTINGS, *process.ML_SETTINGS])
        self._configure(distribution)
        self._process = process.launch(self._layout, distribution, jdk, 512)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _configure(self, distribution):
        conf = self._layout.conf
        security = conf / "opensearch-security"
        shutil.copytree(distribution / "plugins" / "opensearch-security" / "config", security)
        (security / "config.yml").write_text(_AUTHENTICATION)
        for name in ("internal_users", "roles", "roles_mapping", "action_groups", "tenants"):  # they define nothing here
            (security / f"{name}.yml").write_text(f"_meta: {{type: {name.replace('_', '')}, config_version: 2}}\n")
        certificate, key = self.authority.issue("node")
        for source, name in ((certificate, "node.pem"), (key, "node.key"), (self.authority.certificate, "ca.pem")):
            shutil.copy(source, conf / name)
        folders.make_private(conf)

    def _wait(self):
        until = time.monotonic() + 400
        while True:
            if not self._layout.runs(self._process):
                pytest.fail("The secured server ended: " + " ".join(process.cause_of_death(self._layout)))
            try:
                if self.admin("GET", "/_cluster/health")["status"] != "red" and self.admin("GET", f"{_API}/roles"):
                    return
            except (OSError, ValueError, KeyError):
                if time.monotonic() > until:
                    raise
            time.sleep(0.5)

    def close(self):
        """End the server."""
        process.end(self._layout, self._process)

    def admin(self, method, path, body=None):
        """Send a request with the administrator's certificate, which may do everything."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.load_cert_chain(*self._admin)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as response:
                return json.loads(response.read())
        except HTTPError as error:
            raise OSError(f"{method} {path}: {error} {error.read().decode()[:500]}") from error

    def role(self, name, definition):
        """Define a role, and give it to the user of the same name, whose password is `PASSWORD`."""
        bodies = {"roles": definition, "internalusers": {"password": PASSWORD}, "rolesmapping": {"users": [name]}}
        for kind, body in bodies.items():
            self.admin("PUT", f"{_API}/{kind}/{name}", body)


def _distribution():
    """The unpacked server with the plugin: hard links to the embedded server's files, made once."""
    cache = folders.distribution_cache()
    place = cache / f"{artifacts.VERSION}-security-{PLUGIN.version}-ml"
    if not place.is_dir():
        server, archive = artifacts.distribution(ml=True), artifacts.shelf(cache).archive(PLUGIN)
        staging = cache / f"unpack-security-{os.getpid()}"
        shutil.copytree(server, staging, copy_function=os.link)
        plugin = staging / "plugins" / PLUGIN.plugin
        with zipfile.ZipFile(archive) as content:
            content.extractall(plugin)
        descriptor = plugin / "plugin-descriptor.properties"
        lines = descriptor.read_text().splitlines()
        lines = [f"opensearch.version={artifacts.VERSION}" if line.startswith("opensearch.version=") else line for line in lines]
        descriptor.write_text("\n".join(lines) + "\n")
        for library in plugin.glob("*.jar"):
            if (staging / "lib" / library.name).exists():
                library.unlink()
        for path in (plugin, *plugin.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        staging.chmod(0o755)
        staging.rename(place)
    return place
