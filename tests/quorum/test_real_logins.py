"""A voter with Kafka controllers that use TLS and authenticate to each other, set up as in docs/kraft-brokers.md."""

from pathlib import Path

from controller.access import users
from tests.security.certificates import Authority
from tests.support.kafka_quorum import kafka_quorum
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.real_brokers import until
from tests.support.topicwright import COMMAND, command
from tests.support.voter import VOTER

PASSWORD = "controller-PLANTED"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_voter_authenticates_over_sasl_ssl_in_both_directions(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    theirs, mine = (authority.issue(each).keystore for each in ("kafka", "voter"))
    listener = "listener.name.controller."
    kafkas = {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{listener}plain.sasl.jaas.config": (
            f'{PLAIN} required username="controller" password="{PASSWORD}" user_controller="{PASSWORD}";'
        ),
        f"{listener}ssl.keystore.type": "PEM",
        f"{listener}ssl.keystore.location": str(theirs),
        f"{listener}ssl.truststore.type": "PEM",
        f"{listener}ssl.truststore.location": str(authority.file),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:controller",
    }
    (port,) = free_ports(1)
    users.set_password(tmp_path / "users", "controller", PASSWORD)
    ours = {
        "node.id": str(VOTER),
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL",
        "ssl.keystore.location": str(mine),
        "sasl.enabled.mechanisms": "PLAIN",
        "users.file": str(tmp_path / "users"),
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:controller",
    }
    login = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.file),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "controller",
        "sasl.password": PASSWORD,
    }
    for name, settings in (("voter.properties", ours), ("others.properties", login)):
        (tmp_path / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    config = ("--command-config", tmp_path / "others.properties")

    def leads(controllers: str) -> int:
        shown = command("quorum", "--bootstrap-controller", controllers, *config)
        return int(shown.stdout.split()[1].rstrip(",")) if shown.returncode == 0 else -1

    with kafka_quorum(tmp_path, settings=kafkas) as quorum:
        argv: list[str | Path] = [COMMAND, "join", "--bootstrap-controller", quorum.bootstrap, *config]
        argv += ["--data", tmp_path / "voter"]
        argv += ["--config", tmp_path / "voter.properties", "--http", "127.0.0.1:0"]
        with Process(argv, cwd=tmp_path) as process:
            process.wait_for_line(rf"^ready voter={VOTER} ", within_s=120)
            leader = leads(quorum.bootstrap)
            gone, left = sorted(quorum.controllers, key=lambda each: each.node_id != leader)
            gone.kill()  # the other controller requests a vote at the Topicwright listener
            until(lambda: leads(left.address) in (left.node_id, VOTER), 120, "one of the two that are left leads")
            stranger = command("quorum", "--bootstrap-controller", f"127.0.0.1:{port}")
            assert stranger.returncode == 1, "an unauthenticated client must be rejected"
            assert PASSWORD not in process.output
