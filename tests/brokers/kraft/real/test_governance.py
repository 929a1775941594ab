"""With a Kafka broker: a held creation that is approved, and labels, which Kafka clients neither see nor set."""

import base64
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from controller.access.users import set_password
from tests.support.churn import QUIET
from tests.support.kafka_tools import run_tools
from tests.support.real_brokers import RealCluster, real_cluster, until
from tests.support.topicwright import command

RULES = """
[[rule]]
name = "big"
partitions = { max = 2 }
approve_by = ["User:carol"]
"""
OF_TOPIC = ("--entity-type", "topics", "--entity-name", "big")


def test_an_approved_topic_is_hosted_and_labels_are_not_for_kafka_clients(tmp_path: Path) -> None:
    set_password(tmp_path / "users", "carol", "carol-secret")
    (tmp_path / "login").write_text("username=carol\npassword=carol-secret\n")
    (tmp_path / "rules.toml").write_text(RULES)
    settings = {"users.file": str(tmp_path / "users")}
    with real_cluster(tmp_path / "cluster", brokers=1, settings=settings, prepare=_log_in) as cluster:

        def carol(*arguments: str | Path, code: int = 0) -> str:
            done = command(*arguments, "--http", cluster.http, "--command-config", tmp_path / "login")
            assert done.returncode == code, done
            return done.stdout + done.stderr

        def kafka(*arguments: str) -> tuple[int, str]:
            ((code, output),) = run_tools(cluster.bootstrap, arguments)
            return code, " ".join(output.split())

        carol("rules", "apply", tmp_path / "rules.toml")
        create = ("topics", "--create", "--topic", "big", "--partitions", "3", "--replication-factor", "1")
        code, refused = kafka(*create)
        assert code == 1
        assert "ask User:carol to run `topicwright approve" in refused
        (held,) = carol("requests", "--pending", "-o", "name").split()
        assert carol("approve", held).endswith("\nbig: done\n")
        assert "Topic 'big' already exists" in kafka(*create)[1], "the client that sends it again finds it done"
        assert _round_trip(cluster) == b"hosted"

        carol("topic", "label", "big", "owner=pay")
        code, refused = kafka("configs", "--alter", *OF_TOPIC, "--add-config", "label.owner=me")
        assert code == 1
        assert "topicwright topic label big owner=" in refused
        assert kafka("configs", "--alter", *OF_TOPIC, "--add-config", "retention.ms=3600000")[0] == 0
        until(lambda: "retention.ms=3600000" in kafka("configs", "--describe", *OF_TOPIC)[1], 60, "the broker has it")
        assert "label" not in kafka("configs", "--describe", *OF_TOPIC)[1]
        assert "  owner       pay\n" in carol("topics", "big")
        assert carol("topics", "--label", "owner=pay", "-o", "name") == "big\n"
        assert carol("rules", "redecide").endswith(": 0 otherwise\n")


def _log_in(cluster: RealCluster) -> None:
    cluster.authorization = f"Basic {base64.b64encode(b'carol:carol-secret').decode()}"


def _round_trip(cluster: RealCluster) -> bytes | None:
    """The value of a record of the last partition, produced to the broker and consumed from it."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    producer.produce("big", b"hosted", partition=2)
    assert producer.flush(120) == 0
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "one", **QUIET})) as consumer:
        consumer.assign([TopicPartition("big", 2, 0)])
        (message,) = consumer.consume(1, 120)
        return message.value()
