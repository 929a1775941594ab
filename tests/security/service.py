"""Topicwright as a process, with listeners of every protocol, users and certificates; and its clients."""

import base64
import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.access.users import add_token, set_password
from controller.cli.work.users import alter_offline, credential
from controller.settings.load import load_settings
from tests.security.certificates import Authority, Files
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND
from tests.support.wire import Wire

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORDS = {"alice": "alice-PLANTED-1", "bob": "bob, =PLANTED-2 ü"}
"""SCRAM users. bob's password has the characters that SCRAM and properties files must escape."""
PLAIN_PASSWORDS = {"carol": "carol-PLANTED-3"}


def users(*arguments: str | Path, password: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `topicwright users`, with a password on standard input."""
    return subprocess.run(
        [COMMAND, "users", *map(str, arguments)],
        input="" if password is None else password + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@dataclass(slots=True)
class Secured:
    """A running service, with its `addresses` by security protocol."""

    process: Process
    folder: Path
    data: Path
    http: str
    addresses: Mapping[str, str]
    authority: Authority
    server: Files
    client: Files
    users_file: Path
    token: str
    secrets: list[str] = field(default_factory=list)

    def client_properties(self, protocol: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
        """The settings with which librdkafka connects by a protocol."""
        properties: dict[str, Any] = {"bootstrap.servers": self.addresses[protocol], "security.protocol": protocol}
        properties["api.version.request.timeout.ms"] = 60_000
        if protocol.endswith("SSL"):
            properties["ssl.ca.location"] = str(self.authority.file)
        if protocol == "SSL":
            properties["ssl.certificate.location"] = str(self.client.certificate)
            properties["ssl.key.location"] = str(self.client.key)
        if protocol.startswith("SASL"):
            properties |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return properties

    def get(self, path: str, authorization: str | None = None) -> Any:
        return json.loads(self.read(path, authorization))

    def read(self, path: str, authorization: str | None = None) -> bytes:
        """Returns the body of a path over HTTPS. Raises HTTPError."""
        headers = {} if authorization is None else {"Authorization": authorization}
        request = urllib.request.Request(f"https://{self.http}{path}", headers=headers)
        context = ssl.create_default_context(cafile=self.authority.file)
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            body: bytes = answer.read()
            return body

    @property
    def bearer(self) -> str:
        return f"Bearer {self.token}"

    def creator_of(self, topic: str) -> str:
        """The principal that created a topic, from the log."""
        events = self.get(f"/v1/events?topic={topic}", self.bearer)["events"]
        return next(str(each["fields"]["principal"]) for each in events if each["type"] == "CreateRequested")


@contextmanager
def secured(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Secured]:
    """Serve on free ports during the block, then send SIGTERM and check the exit code."""
    data, users_file = folder / "data", folder / "users"
    authority = Authority(folder)
    server = authority.issue("server", password="key-PLANTED-4")
    client = authority.issue("client")
    for name, password in PASSWORDS.items():
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            assert alter_offline(data, load_settings(), credential(name, mechanism, password, 4096)).error_code == 0
    for name, password in PLAIN_PASSWORDS.items():
        set_password(users_file, name, password)
    token = add_token(users_file, "carol")
    said = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "ssl.keystore.location": str(server.keystore),
        "ssl.key.password": "key-PLANTED-4",
        "ssl.truststore.location": str(authority.file),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Example$/$1/U,DEFAULT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "users.file": str(users_file),
        "http.security.protocol": "SSL",
        "log.level": "debug",
        **(settings or {}),
    }
    config = folder / "server.properties"
    config.write_text("".join(f"{key}={text}\n" for key, text in said.items()))
    argv: list[str | Path] = [COMMAND, "serve", "--http", "127.0.0.1:0", "--data", data, "--config", config]
    with Process(argv, cwd=folder, env={"PYTHONPATH": str(ROOT)}) as process:
        ready = process.wait_for_line(r"^ready kafka=\S+ http=(\S+) listeners=(\S+)$", within_s=240)
        addresses = dict(each.split("://", 1) for each in ready[2].split(","))
        secrets = [*PASSWORDS.values(), *PLAIN_PASSWORDS.values(), token, "key-PLANTED-4"]
        yield Secured(process, folder, data, ready[1], addresses, authority, server, client, users_file, token, secrets)
        code = process.stop(within_s=120)
        assert code == 0, f"SIGTERM: ended with {code}\n{process.output[-4000:]}"


def shown_by_scram(address: str, mechanism: str, user: str) -> tuple[int, bytes]:
    """The iterations and the salt that the server sends for a user before authentication."""
    with Wire(address) as wire:
        assert wire.call("SaslHandshake", 1, mechanism=mechanism)["error_code"] == 0
        answer = wire.call("SaslAuthenticate", 1, auth_bytes=f"n,,n={user},r=client".encode())
        said = dict(part.split("=", 1) for part in str(answer["auth_bytes"]).split(","))
        return int(said["i"]), base64.b64decode(said["s"])
