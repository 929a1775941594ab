"""A follower of a quorum refuses rules and names the leader; it shows those that the leader has recorded."""

import json
from contextlib import ExitStack
from pathlib import Path

from tests.quorum.test_real_linearizability import Quorum, Voter
from tests.support.ports import free_ports
from tests.support.real_brokers import until
from tests.support.topicwright import command


def test_a_follower_refuses_rules_and_names_the_leader(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]]\nname = 'small'\npartitions = { max = 3 }\n")
    ports = free_ports(4)
    with ExitStack() as ending:
        first = Voter(1, tmp_path, ports[0], ports[1], None)
        voters = [first, Voter(2, tmp_path, ports[2], ports[3], first.kafka)]
        for each in voters:
            each.start(ending)
        leader = Quorum(voters).wait_for_leader()
        (follower,) = (each for each in voters if each is not leader)

        def version(voter: Voter) -> int:
            shown = command("rules", "show", "--http", voter.http, "-o", "json")
            assert shown.returncode == 0, shown.stderr
            version = json.loads(shown.stdout)["version"]
            return 0 if version is None else int(version["number"])

        for words in (("apply", rules), ("remove",)):
            refused = command("rules", *words, "--http", follower.http)
            assert refused.returncode == 2
            assert (
                f"Another controller is the leader: node {voters.index(leader) + 1} at {leader.kafka}."
                in refused.stderr
            )
        assert version(leader) == 0
        assert command("rules", "apply", rules, "--http", leader.http).returncode == 0
        until(lambda: version(follower) == version(leader) == 1, 60, "the follower shows the rules")
