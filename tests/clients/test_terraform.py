"""Terraform with its Kafka provider: topics with labels, applied, changed, and applied again without a difference."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support import tools
from tests.support.topicwright import Topicwright, fetch


def test_topics_with_labels_are_applied_again_without_a_difference(
    topicwright_server: Topicwright, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "terraform-provider-kafka").symlink_to(tools.cached("terraform/scenario"))
    (tmp_path / "rc").write_text(f'provider_installation {{\n  dev_overrides {{ "Mongey/kafka" = "{tmp_path}" }}\n}}\n')

    def terraform(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [tools.program("terraform"), f"-chdir={tmp_path}", *words]
        return tools.run_quietly(argv, TF_CLI_CONFIG_FILE=str(tmp_path / "rc"), CHECKPOINT_DISABLE="1")

    def apply(partitions: int, **configs: str) -> dict[str, Any]:
        """Write the topic, apply it, and plan again; returns what the service has."""
        shape = {"name": topic, "partitions": partitions, "replication_factor": 1, "config": configs}
        content = {
            "terraform": {"required_providers": {"kafka": {"source": "Mongey/kafka"}}},
            "provider": {"kafka": {"bootstrap_servers": [topicwright_server.bootstrap], "tls_enabled": False}},
            "resource": {"kafka_topic": {"one": shape}},
        }
        (tmp_path / "main.tf.json").write_text(json.dumps(content))
        applied = terraform("apply", "-auto-approve", "-no-color")
        assert applied.returncode == 0, applied
        planned = terraform("plan", "-detailed-exitcode", "-no-color")
        assert planned.returncode == 0, planned
        found: dict[str, Any] = json.loads(fetch(topicwright_server.http, f"/v1/topics/{topic}")[1])
        return found

    configs = {"retention.ms": "86400000", "label.owner": "payments"}
    assert apply(2, **configs)["configs"] == configs
    configs = {"cleanup.policy": "compact", "label.owner": "web", "label.tier": "gold"}
    changed = apply(3, **configs)
    assert (changed["configs"], changed["num_partitions"]) == (configs, 3)
    destroyed = terraform("destroy", "-auto-approve", "-no-color")
    assert destroyed.returncode == 0, destroyed
    assert fetch(topicwright_server.http, f"/v1/topics/{topic}")[0] == 404
