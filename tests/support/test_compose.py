"""docker-compose.yml against the schema of the Compose Specification, and against this project's own command line.

`tests/golden/compose-spec.json` is that specification's `schema/compose-spec.json` (Apache License 2.0, of 2026-06-23).
"""

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from controller.cli import main
from controller.settings.load import load_settings
from tests.support.cluster import COMPOSE, write_spark_secret
from tests.support.tools import ROOT

SCHEMA = ROOT / "tests/golden/compose-spec.json"


@pytest.fixture(scope="module")
def validate() -> Callable[[object], object]:
    """Validates a Compose file. Raises JsonSchemaValueException."""
    compiled: Callable[[object], object] = fastjsonschema.compile(json.loads(SCHEMA.read_text(encoding="utf-8")))
    return compiled


def compose_file() -> dict[str, Any]:
    """The parsed docker-compose.yml, with anchors resolved."""
    file: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return file


def test_compose_file_is_valid_against_the_specification(validate: Callable[[object], object]) -> None:
    validate(compose_file())


def test_compose_services_reference_existing_services_and_volumes() -> None:
    file = compose_file()
    assert {"worker-2", "gateway-2", "kafka-3", "spark-worker", "single"} < set(file["services"])
    for name, service in file["services"].items():
        for needed in service.get("depends_on", ()):
            assert needed in file["services"], f"{name} depends on {needed}"
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in file["volumes"], f"{name} mounts {volume}"
        ports = [port.rpartition(":")[0] for port in service.get("ports", ())]
        assert all(port.startswith("127.0.0.1:") for port in ports), f"{name} must publish ports only on 127.0.0.1"


def test_compose_spark_services_share_a_secret(tmp_path: Path) -> None:
    """Run the secret's script twice; `make cluster` and its test run Spark with the written file."""
    services = compose_file()["services"]
    for name in ("spark-master", "spark-worker"):
        assert services[name]["environment"] == services["spark-secret"]["environment"] == {"SPARK_CONF_DIR": "/spark"}
        assert services[name]["volumes"] == ["spark:/spark:ro"]
        assert list(services[name]["depends_on"]) == ["spark-secret"]
    written = [write_spark_secret(tmp_path).read_text() for _ in range(2)]
    assert written[0] == written[1], "another start must not change the secret"
    assert re.fullmatch(
        r"spark.authenticate true\nspark.authenticate.secret [0-9a-f]{64}\nspark.network.crypto.enabled true\n"
        r"spark.ui.killEnabled false\n",
        written[0],
    )
    assert stat.S_IMODE((tmp_path / "spark-defaults.conf").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [name for name, one in compose_file()["services"].items() if "command" in one])
def test_compose_commands_are_valid(name: str) -> None:
    words = compose_file()["services"][name]["command"]
    parsed = main.parser(words[0]).parse_args(words)
    settings = load_settings(None, parsed.set)
    if parsed.command in {"gateway", "serve"}:  # only this address is reachable in a container
        assert (parsed.http.host, settings.http_authentication) == ("0.0.0.0", "none")
        assert parsed.command == "serve" or settings.http_allowed_hosts == (name,), "the name must be an allowed host"
    if parsed.command == "gateway":
        (advertised,) = settings.advertised_listeners
        assert advertised.port == parsed.kafka.port, "the advertised port must be the published one"
    if parsed.command in {"gateway", "worker"}:
        for address in parsed.bootstrap.split(","):
            host, _, port = address.partition(":")
            assert host in compose_file()["services"], f"{name}: no service {host} for Kafka"
            assert port == "9092"
