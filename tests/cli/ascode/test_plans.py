"""`topicwright plan`, `apply`, `import` and `drift` with a running service."""

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.ascode.test_formats import ONE_TOPIC
from tests.cli.commands import Run
from tests.support.topicwright import Topicwright, command, fetch, topicwright

RULES = '[[rule]]\nname = "small"\npartitions = { max = 20 }\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    with topicwright(tmp_path_factory.mktemp("ascode"), brokers="simulated:4") as served:
        yield served


@pytest.fixture(autouse=True)
def no_topics(server: Topicwright, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICWRIGHT_HTTP", server.http)
    _delete_all(server)


def _delete_all(server: Topicwright) -> None:
    names = [one["name"] for one in json.loads(fetch(server.http, "/v1/topics?limit=1000")[1])["topics"]]
    for start in range(0, len(names), 100):
        changes = [{"type": "delete", "name": name} for name in names[start : start + 100]]
        assert fetch(server.http, "/v1/changes", {"changes": changes})[0] == 200


def write(folder: Path, topics: dict[str, Any], name: str | None = None) -> Path:
    file = folder / "topics.yaml"
    file.write_text(json.dumps({**({"set": name} if name else {}), "topics": topics}, indent=1))  # JSON is YAML
    return file


def test_a_plan_shows_each_change_with_its_replicas_and_apply_makes_it(
    run: Run, server: Topicwright, tmp_path: Path
) -> None:
    one = run("plan", write(tmp_path, {"a": {"partitions": 1}}))
    assert one.out.startswith("+ a: 1 partition, factor ")
    file = write(tmp_path, {"a": {"partitions": 2, "factor": 2, "configs": {"retention.ms": 5}}})
    planned = run("plan", file)
    assert planned.code == 0
    assert planned.out.splitlines()[0] == f"+ a: 2 partitions, factor 2, retention.ms=5  ({file}:3)"
    assert planned.out.splitlines()[2] == "Plan: 1 to create, 0 to change, 0 to delete."
    assert fetch(server.http, "/v1/topics/a")[0] == 404
    applied = run("apply", file)
    assert applied.out.splitlines()[:2] == planned.out.splitlines()[:2], "the same replicas"
    assert applied.out.splitlines()[2:] == ["Applied: 1 created, 0 changed, 0 deleted."]
    partitions = json.loads(fetch(server.http, "/v1/topics/a")[1])["partitions"]
    shown = "; ".join(f"{one['partition']}:{','.join(map(str, one['replicas']))}" for one in partitions)
    assert applied.out.splitlines()[1].strip() == shown
    assert run("apply", file).out == run("plan", file).out == "No changes: the cluster is as the files describe it.\n"

    write(tmp_path, {"a": {"partitions": 3, "configs": {"cleanup.policy": "compact"}}})
    planned = run("plan", file)
    assert planned.out.splitlines()[0] == f"~ a: retention.ms 5 → default, cleanup.policy default → compact  ({file}:3)"
    assert planned.out.splitlines()[1] == f"~ a: partitions 2 → 3  ({file}:3)"
    assert planned.out.splitlines()[2].startswith("    2:")
    assert run("apply", file).code == 0
    topic = json.loads(fetch(server.http, "/v1/topics/a")[1])
    assert (topic["num_partitions"], topic["configs"]) == (3, {"cleanup.policy": "compact"})


def test_a_plan_shows_the_rule_that_refuses_and_apply_then_changes_nothing(
    run: Run, server: Topicwright, tmp_path: Path
) -> None:
    assert fetch(server.http, "/v1/rules", {"text": RULES})[0] == 200
    try:
        file = write(tmp_path, {"a": {}, "b": {"partitions": 30}})
        planned = run("plan", file)
        assert planned.code == 1
        assert "Plan: 1 to create, 0 to change, 0 to delete; 1 rejected." in planned.out
        assert "(POLICY_VIOLATION, by policy:rules/small)" in planned.out
        applied = run("apply", file)
        assert applied.code == 1
        assert applied.out.endswith("Nothing is applied: 1 to create, 0 to change, 0 to delete; 1 rejected.\n")
        assert fetch(server.http, "/v1/topics/a")[0] == 404
    finally:
        fetch(server.http, "/v1/rules", {"text": ""})


def test_changes_that_kafka_cannot_make_are_told_before_anything_is_done(
    run: Run, server: Topicwright, tmp_path: Path
) -> None:
    assert run("apply", write(tmp_path, {"a": {"partitions": 3, "factor": 2}, "b": {"replicas": [[1, 2]]}})).code == 0
    file = write(tmp_path, {"c": {}, "a": {"partitions": 2}, "b": {"replicas": [[2, 1]]}})
    for verb, ending in (("plan", "Plan"), ("apply", "Nothing is applied")):
        refused = run(verb, file)
        assert refused.code == 1
        assert f"~ a: partitions 3 → 2  ({file}:4)\n    rejected: " in refused.out
        assert (
            f"~ b: other replicas  ({file}:7)\n    rejected: partition 0 is on [1, 2], and in the file on"
            in refused.out
        )
        assert refused.out.endswith(f"{ending}: 1 to create, 0 to change, 0 to delete; 2 rejected.\n")
    assert fetch(server.http, "/v1/topics/c")[0] == 404
    other = run("plan", write(tmp_path, {"a": {"factor": 3}})).out
    assert f"~ a: factor 2 → 3  ({file}:3)\n    rejected: kafka-reassign-partitions does this" in other
    saved = tmp_path / "plan.json"
    assert run("plan", file, "--save", saved).code == 1
    assert run("apply", "--plan", saved).out.endswith(
        "Nothing is applied: 0 to create, 0 to change, 0 to delete; 1 rejected.\n"
    )


@pytest.mark.parametrize(
    "topic",
    [{"replicas": [[1]] * 10_001}, {"configs": {f"c{one}": 1 for one in range(1001)}},
     {"configs": {"follower.replication.throttled.replicas": "1" * 500_000}}],
    ids=["replicas", "configs", "bytes"],
)  # fmt: skip
def test_a_topic_that_is_too_large_for_a_request_is_an_error(
    run: Run, server: Topicwright, tmp_path: Path, topic: dict[str, Any]
) -> None:
    refused = run("plan", write(tmp_path, {"a": topic}))
    assert refused.code == 1
    assert "    rejected: too large: allowed are replicas of 10000 partitions, 1000 configs, and" in refused.out


def test_a_saved_plan_is_applied_exactly_or_says_what_changed_since(
    run: Run, server: Topicwright, tmp_path: Path
) -> None:
    file, saved = write(tmp_path, {"a": {}, "b": {"partitions": 2}}), tmp_path / "plan.json"
    assert run("plan", file, "--save", saved).code == 0
    file.unlink()
    assert run("topic", "create", "b").code == 0
    late = run("apply", "--plan", saved)
    assert (late.code, late.out) == (1, "")
    assert f"nothing is applied: 1 change of {saved} would have another result; make a new plan" in late.err
    assert "planned, and now:\n+ b: 2 partitions" in late.err
    assert "rejected: Topic 'b' already exists." in late.err
    assert run("topic", "delete", "b").code == 0
    assert run("apply", "--plan", saved).out.endswith("Applied: 2 created, 0 changed, 0 deleted.\n")
    again = run("apply", "--plan", saved)
    assert again.code == 1, "it is applied already"

    assert run("plan", write(tmp_path, {"a": {"partitions": 3}}), "--save", saved).code == 0
    assert run("topic", "delete", "a").code == run("topic", "create", "a").code == 0
    assert "would have another result" in run("apply", "--plan", saved).err, "another topic with the same name"
    change = {"request": {"type": "move", "name": "a"}, "where": "", "before": None}
    for content in ("", "{}", "[" * 100_000, json.dumps({"changes": [change]})):
        saved.write_text(content)
        assert "is not a plan that `topicwright plan --save` wrote" in run("apply", "--plan", saved).err


def test_prune_deletes_only_what_the_same_set_created(run: Run, server: Topicwright, tmp_path: Path) -> None:
    assert run("topic", "create", "by-hand").code == 0
    assert run("apply", write(tmp_path, {"theirs": {}}, "their-set")).code == 0
    assert run("apply", write(tmp_path, {"a": {}, "b": {}}, "mine")).code == 0
    file = write(tmp_path, {"a": {}}, "mine")
    assert run("plan", file).out.startswith("No changes")
    assert run("plan", file, "--prune").out.splitlines()[0] == "- b: deleted  (no file of set mine has it)"
    assert run("apply", file, "--prune").code == 0
    assert run("topics", "-o", "name").out.split() == ["a", "by-hand", "theirs"]
    unnamed = run("apply", write(tmp_path, {}), "--prune")
    assert unnamed.code == 2
    assert "--prune deletes only what the same set of files created: name it with `set: NAME` in a file" in unnamed.err


def test_drift_says_what_differs_and_since_when(run: Run, server: Topicwright, tmp_path: Path) -> None:
    file = write(tmp_path, {"a": {"partitions": 1}, "b": {}, "c": {"configs": {"retention.ms": 5}}}, "mine")
    assert run("apply", file).code == 0
    assert run("drift", file) == (0, "No changes: the cluster is as the files describe it.\n", "")
    run("topic", "grow", "a", "--partitions", "2")
    run("topic", "delete", "b")
    run("topic", "alter", "c", "--config", "retention.ms=6")
    drift = run("drift", file)
    assert drift.code == 1
    lines = [line for line in drift.out.splitlines() if not line.startswith("    0:")]
    assert lines[0] == f"~ a: partitions 2 → 1  ({file}:4)"
    assert lines[1].startswith("    since 20")
    assert " raises a from 1 to 2 partitions" in lines[1]
    assert "rejected: " in lines[2]
    assert lines[3].startswith("+ b: ")
    assert " deletes b" in lines[4]
    assert lines[5].startswith("~ c: retention.ms 6 → 5")
    assert " changes the configs of c" in lines[6]
    assert lines[7:] == ["Drift: 1 to create, 1 to change, 0 to delete; 1 rejected."]
    never = run("drift", write(tmp_path, {"a": {"partitions": 2}, "never": {}}))
    assert (never.code, [line[:8] for line in never.out.splitlines()[::2]]) == (1, ["+ never:", "Drift: 1"])
    moved = run("drift", write(tmp_path, {"a": {"factor": 4}}, "moved"))
    assert moved.out.splitlines()[1].startswith("    rejected: kafka-reassign-partitions"), "no event is the cause"
    assert run("drift", tmp_path / "none.yaml").code == 2


def test_import_writes_a_file_whose_plan_is_empty(run: Run, server: Topicwright, tmp_path: Path) -> None:
    configs = {"retention.ms": "05", "cleanup.policy": "compact", "preallocate": "true"}
    assert run("apply", write(tmp_path, {"a.b": {"configs": configs, "factor": 2}, "yes": {}, "1": {}})).code == 0
    printed = run("import").out
    assert printed.startswith("topics:\n  '1':\n    partitions: ")
    (tmp_path / "imported.yaml").write_text(printed)
    assert run("plan", tmp_path / "imported.yaml").out.startswith("No changes")
    assert run("import", "a.*").out.count("partitions") == 1


@pytest.mark.parametrize("text", ONE_TOPIC.values(), ids=ONE_TOPIC)
def test_files_of_each_format_are_applied_and_applied_again_without_a_change(
    run: Run, server: Topicwright, tmp_path: Path, text: str
) -> None:
    (tmp_path / "topics.yaml").write_text(dedent(text))
    assert run("apply", tmp_path).out.endswith("Applied: 1 created, 0 changed, 0 deleted.\n")
    assert run("apply", tmp_path).out.startswith("No changes")


def test_a_plan_of_a_thousand_topics_needs_few_requests(run: Run, server: Topicwright, tmp_path: Path) -> None:
    file = write(tmp_path, {f"t{number}": {"partitions": 6, "factor": 3} for number in range(1000)})
    before = _requests(server)
    planned = run("plan", file)
    assert planned.out.endswith("Plan: 1000 to create, 0 to change, 0 to delete.\n")
    assert _requests(server) - before == 11, "one list, and 10 dry runs of 100 topics"
    assert run("apply", file).out.endswith("Applied: 1000 created, 0 changed, 0 deleted.\n")
    assert run("plan", file).out.startswith("No changes")


def test_large_changes_are_split_over_requests(run: Run, server: Topicwright, tmp_path: Path) -> None:
    many = ",".join(f"{number}:1" for number in range(4_000))  # 27 kB: 40 topics are more than a request may have
    topics: dict[str, Any] = {f"p{number}": {"factor": 1, "partitions": 1500} for number in range(8)}
    configs = {"configs": {"leader.replication.throttled.replicas": many}}
    file = write(tmp_path, {**topics, **dict.fromkeys((f"t{number}" for number in range(40)), configs)})
    before = _requests(server)
    assert run("apply", file).out.endswith("Applied: 48 created, 0 changed, 0 deleted.\n")
    assert _requests(server) - before == 9, "a list, and 4 times 6 to 18 topics, twice"
    assert run("plan", file).out.startswith("No changes")


def _requests(server: Topicwright) -> int:
    lines = fetch(server.http, "/metrics")[1].splitlines()
    counts = [line for line in lines if "_http_" in line and "_count{" in line and "/v1/" in line]
    return sum(int(float(line.split()[-1])) for line in counts)


CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.integers(-1, 2**40),
        "cleanup.policy": st.sampled_from(["delete", "compact", ["compact", "delete"], "delete,compact", "delete"]),
        "min.insync.replicas": st.integers(1, 3),
        "preallocate": st.booleans(),
        "min.cleanable.dirty.ratio": st.sampled_from([0.5, "0.50", 1, 0]),
        "segment.bytes": st.none() | st.integers(2**20, 2**30),
        "follower.replication.throttled.replicas": st.sampled_from(["*", "", ["0:1", "1:2"]]),
    },
)
NAMES = st.sampled_from(["a", "a.b", "b", "Z-1", "c"])
STATES = st.lists(st.dictionaries(NAMES, st.tuples(st.integers(0, 3), CONFIGS)), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STATES, st.booleans())
def test_after_apply_of_any_desired_state_the_plan_is_empty(
    server: Topicwright, tmp_path: Path, states: list[dict[str, tuple[int, dict[str, Any]]]], with_templates: bool
) -> None:
    _delete_all(server)
    counts: dict[str, int] = {}
    for state in states:
        counts = {name: counts.get(name, 1) + more for name, (more, _) in state.items()}
        shape = {"factor": 3, **({} if with_templates else {"partitions": 1})}
        topics = {
            name: {**shape, "partitions": counts[name], "configs": configs} for name, (_, configs) in state.items()
        }
        content = {"set": "s", "topics": topics}
        if with_templates:
            content["templates"] = {"a*": {"partitions": 9, "configs": {"retention.ms": 7, "preallocate": None}}}
        (tmp_path / "t.yaml").write_text(json.dumps(content))
        applied = command("apply", "--prune", tmp_path / "t.yaml")
        assert applied.returncode == 0, applied
        planned = command("plan", "--prune", tmp_path / "t.yaml")
        assert planned.stdout == "No changes: the cluster is as the files describe it.\n", planned
        listed = json.loads(fetch(server.http, "/v1/topics")[1])["topics"]
        assert {one["name"]: one["num_partitions"] for one in listed} == counts
