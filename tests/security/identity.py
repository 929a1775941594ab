"""A real identity provider (npm's oidc-provider) as a process, and a service that accepts its tokens."""

import base64
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.security.service import Secured, secured
from tests.support import tools
from tests.support.processes import Process

CLIENT, SECRET = "kafka-client", "client-PLANTED-7"
AUDIENCE = "topicwright"


def bearer_message(token: str, extensions: str = "") -> bytes:
    """The first message of a client (RFC 7628)."""
    return f"n,,\x01auth=Bearer {token}\x01{extensions}\x01".encode()


@dataclass(frozen=True, slots=True)
class Provider:
    process: Process
    issuer: str

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/token"

    def tell(self, line: str) -> None:
        """Rotate the key, or change the lifetime of tokens: see provider.mjs."""
        self.process.write_line(line)
        self.process.wait_for_line(f"^done {line}$", within_s=120)

    def token(self) -> str:
        """A new token of the client, by its client credentials."""
        form = urllib.parse.urlencode({"grant_type": "client_credentials", "scope": "kafka"}).encode()
        request = urllib.request.Request(self.token_url, form)
        credentials = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        request.add_header("Authorization", f"Basic {credentials}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["access_token"])

    def settings(self) -> dict[str, str]:
        return {
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer}/jwks",
            "sasl.oauthbearer.expected.issuer": self.issuer,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }


@contextmanager
def identity_provider(folder: Path) -> Iterator[Provider]:
    modules = tools.cached("provider/node_modules")
    argv: list[str | Path] = [tools.program("node"), tools.ROOT / "tests/security/provider/provider.mjs"]
    with Process(argv, cwd=folder, env={"NODE_MODULES": str(modules)}) as process:
        yield Provider(process, process.wait_for_line(r"^issuer (\S+)$", within_s=240)[1])


@contextmanager
def federated(folder: Path) -> Iterator[tuple[Provider, Secured]]:
    """An identity provider, and a service whose listeners accept its tokens."""
    with identity_provider(folder) as provider:
        mechanisms = {"sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
        with secured(folder, {**provider.settings(), **mechanisms}) as service:
            yield provider, service


PAGE_CLIENT, PAGE_SECRET = "topicwright-page", "page-PLANTED-8"
