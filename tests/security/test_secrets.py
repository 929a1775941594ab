"""Planted secrets never appear in logs, events, errors, metrics, queries or exports."""

import base64
import urllib.error
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion  # type: ignore[attr-defined]

from events.access import ScramCredentialSet
from events.codec import decode_event
from events.logs.rocksdb_log import RocksDbLog
from projections.replay.log.columns import COLUMNS
from projections.replay.log.kafka_scan import Range
from projections.replay.log.log_ref import parse_ref, read_range
from tests.security.service import PASSWORDS, Secured, secured
from tests.support.topicwright import command

WRONG = "wrong-PLANTED-7"
NEW = "erin-PLANTED-8"
WRONG_TOKEN = "tw_PLANTED-9"


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _try_everything(service: Secured) -> list[str]:
    """Use every secret, and wrong ones; returns the texts that clients got."""
    shown: list[str] = []
    admin = AdminClient(service.client_properties("SASL_SSL", "SCRAM-SHA-512", "alice", PASSWORDS["alice"]))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("erin", info, NEW.encode())
    admin.alter_user_scram_credentials([change])["erin"].result(30)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        properties = service.client_properties("SASL_PLAINTEXT", mechanism, "erin", WRONG)
        quiet: dict[str, Any] = {"error_cb": lambda error: shown.append(error.str()), "reconnect.backoff.ms": 2000}
        refused = AdminClient({**properties, **quiet})
        with pytest.raises(KafkaException) as raised:
            refused.list_topics(timeout=1)
        refused.poll(0)
        shown.append(str(raised.value))
    for authorization in (_basic("carol", WRONG), _basic("erin", NEW), f"Bearer {WRONG_TOKEN}", f"Digest {WRONG}"):
        try:
            shown.append(service.read("/v1/topics", authorization).decode())
        except urllib.error.HTTPError as error:
            shown.append(error.read().decode())
    return shown


def _output_of_running_service(service: Secured) -> list[str]:
    config = service.folder / "http.properties"
    config.write_text(f"token={service.token}\nssl.truststore.location={service.authority.file}\n")
    where = ["--http", f"https://{service.http}", "--command-config", str(config)]
    paths = ("/v1/events?limit=1000", "/metrics", "/v1/brokers")
    shown = [service.read(path, service.bearer).decode() for path in paths]
    return [*shown, _run("events", "--json", *where)]


def _run(*arguments: str | Path) -> str:
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _output_of_stopped_service(data: Path) -> list[str]:
    """The output of commands and the export for a stopped service."""
    shown = [_run("events", "--data", data)]
    log = RocksDbLog(data, cluster_id=None, new_cluster_id=lambda: "x")
    end = log.next_offset
    shown.append(repr([decode_event(offset, value).event for offset, value in log.read()]))
    log.close()
    return shown + [
        str(batch.to_pylist()) for batch in read_range(parse_ref(str(data)), Range(0, end), tuple(COLUMNS), None)
    ]


def _stored_values(data: Path) -> tuple[list[bytes], list[bytes]]:
    """All stored events and state; and the keys of the SCRAM credentials among them."""
    log = RocksDbLog(data, cluster_id=None, new_cluster_id=lambda: "x")
    values = [value for _, value in log.read()]
    events = [decode_event(offset, value).event for offset, value in enumerate(values)]
    held = [*values, *(key + value for key, value in log.scan())]
    log.close()
    set_ = [event for event in events if isinstance(event, ScramCredentialSet)]
    return held, [key for event in set_ for key in (event.stored_key, event.server_key)]


def _forms(secret: bytes) -> set[str]:
    """The encodings in which a secret may appear in a text."""
    encoded = base64.b64encode(secret).decode()
    forms = {encoded, encoded.rstrip("="), base64.urlsafe_b64encode(secret).decode().rstrip("="), secret.hex()}
    return forms | {secret.decode("utf-8", "ignore"), repr(secret)[2:-1]} - {""}


def test_planted_secrets_do_not_appear_in_any_output(tmp_path: Path) -> None:
    with secured(tmp_path) as service:
        shown = _try_everything(service)
        shown += _output_of_running_service(service)
        process, data = service.process, service.data
    shown.append(process.output)
    shown += _output_of_stopped_service(data)
    held, keys = _stored_values(data)
    assert '"event":"authentication_failed"' in process.output
    assert any("ScramCredentialSet" in text and "(hidden)" in text for text in shown)
    assert len(keys) == 2 * 5, "four credentials of the start, and erin's"
    assert any(keys[0] in value for value in held), "the log has the keys that verify logins"
    planted = [secret.encode() for secret in (*service.secrets, WRONG, NEW, WRONG_TOKEN)]
    for secret in (*planted, *keys):
        for form in _forms(secret):
            assert not any(form in text for text in shown), f"{secret!r} appears as {form!r}"
    assert not any("PLANTED" in text for text in shown)
    assert not any(b"PLANTED" in value for value in held), "no password is in the log or its state"
