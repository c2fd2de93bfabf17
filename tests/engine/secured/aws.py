"""A proxy that verifies AWS signatures as Amazon OpenSearch Service does, before a real OpenSearch.

botocore computes the canonical request and the signature again from what arrived; the two must agree. The errors are those of AWS:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.engine.forwarding import ForwardingProxy

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})"
)
_SKEW = timedelta(minutes=5)
#: Paths that OpenSearch Serverless does not have.
_NOT_SERVERLESS = re.compile(r"/$|/_cluster|/_nodes|/_tasks|/_cat/plugins|/_reindex|.*/_segments|.*/_refresh$")
_JSON = {"content-type": "application/json"}


class VerifyingProxy(ForwardingProxy):
    """Forwards requests whose signature is right.

    Args:
        url: The server.
        region, service: What requests must be signed for. Service "aoss" (Serverless) also demands the hash of the body in a header, and
            lacks some APIs.

    Attributes:
        keys: Access key -> (secret key, session token, or None). Requests that use another key are refused.
        expired: Session tokens that have expired.
        region: See above.
        refused: Messages of the refusals.
        used: Access keys of the requests that were forwarded, in their order.
        skew: Added to the proxy's clock.
    """

    def __init__(self, url, *, region="eu-central-1", service="es"):
        self.keys, self.expired = {}, set()
        self.refused, self.used = [], []
        self.skew = timedelta()
        self.region, self._service = region, service
        super().__init__(url)

    def intercept(self, method, path, headers, body):
        """Refuse what is not signed as it must be, and what Serverless does not have."""
        if error := self.fault(method, path, headers, body):
            self.refused.append(error)
            return 403, json.dumps({"message": error}).encode(), _JSON
        self.used.append(_AUTHORIZATION.fullmatch(headers["authorization"])[1])
        if self._service == "aoss" and _NOT_SERVERLESS.match(path.partition("?")[0]):
            return 404, b"", _JSON
        return None

    def passes_on(self, header):
        """The server behind the service knows nothing of signatures."""
        return header in {"content-type", "accept"}

    def fault(self, method, path, headers, body):
        """What AWS would say against a request; "" if it is signed as it must be."""
        claim = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if claim is None:
            return "Missing Authentication Token"
        key, day, region, service, signed, signature = claim.groups()
        secret, token = self.keys.get(key, (None, None))
        digest = hashlib.sha256(body).hexdigest()
        needed = {"host", "x-amz-date"} | ({"x-amz-security-token"} if token else set())
        if secret is None or headers.get("x-amz-security-token") != token:
            return "The security token included in the request is invalid."
        checks = {
            "The security token included in the request is expired": token not in self.expired,
            f"Credential should be scoped to a valid region, not '{region}'. ": region == self.region,
            f"Credential should be scoped to correct service: '{self._service}'. ": service == self._service,
            (late := self._late(headers["x-amz-date"], day)): not late,
            "x-amz-content-sha256 header is required": self._service == "es" or "x-amz-content-sha256" in headers,
            "The provided 'x-amz-content-sha256' header does not match what was computed.": headers.get(
                "x-amz-content-sha256", digest
            )
            == digest,
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and "
            "signing method. Consult the service documentation for details.": needed <= set(signed.split(";"))
            and signature == self._signature(method, path, headers, body, claim),
        }
        return next((error for error, right in checks.items() if not right), "")

    def _late(self, stamp, day):
        moment, now = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC), datetime.now(UTC) + self.skew
        if moment < now - _SKEW or day != stamp[:8]:
            return f"Signature expired: {stamp} is now earlier than {now - _SKEW:%Y%m%dT%H%M%SZ} ({now:%Y%m%dT%H%M%SZ} - 5 min.)"
        if moment > now + _SKEW:
            return f"Signature not yet current: {stamp} is still later than {now + _SKEW:%Y%m%dT%H%M%SZ} ({now:%Y%m%dT%H%M%SZ} + 5 min.)"
        return ""

    def _signature(self, method, path, headers, body, claim):
        key, _, region, service, signed, _ = claim.groups()
        names = set(signed.split(";"))
        request = AWSRequest(
            method=method,
            url=f"http://{headers['host']}{path}",
            data=body,
            headers={name: value for name, value in headers.items() if name.lower() in names},
        )
        request.context["timestamp"] = headers["x-amz-date"]
        signer = SigV4Auth(Credentials(key, self.keys[key][0]), service, region)
        return signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
