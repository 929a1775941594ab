"""Files of topics in each format, and the errors with file and line."""

import json
import re
import shlex
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.cli.ascode.desired import FileSet
from controller.cli.ascode.nodes import FileError
from controller.cli.main import parser
from tests.docs.test_typed import examples
from tests.support.tools import ROOT

ONE_TOPIC = {
    "own": """
        topics:
          pay.orders: {partitions: 6, factor: 3, configs: {cleanup.policy: [compact, delete], retention.ms: 720000}}
        """,
    "templates": """
        defaults: {partitions: 6, factor: 1, configs: {retention.ms: 5, preallocate: true}}
        templates:
          "*.orders": {factor: 2, configs: {retention.ms: 720000, preallocate: null}}
          "pay.*": {factor: 3, configs: {cleanup.policy: "compact,delete"}}
          "other.*": {partitions: 9}
        topics:
          pay.orders:
        """,
    "topicctl": """
        meta: {name: pay.orders, cluster: c, environment: e, region: r, description: orders}
        spec:
          partitions: 6
          replicationFactor: 3
          retentionMinutes: 12
          placement: {strategy: balanced-leaders, picker: randomized}
          settings: {cleanup.policy: [compact, delete]}
        """,
    "jikkou": """
        apiVersion: kafka.jikkou.io/v1beta2
        kind: KafkaTopicList
        items:
        - metadata: {name: pay.orders}
          spec: {partitions: 6, replicas: 3, configs: {retention.ms: 720000}, configMapRefs: [policy]}
        ---
        apiVersion: core.jikkou.io/v1beta2
        kind: ConfigMap
        metadata: {name: policy}
        data: {cleanup.policy: "compact,delete", retention.ms: 1}
        """,
    "strimzi": """
        apiVersion: kafka.strimzi.io/v1
        kind: KafkaTopic
        metadata: {name: my-resource, labels: {strimzi.io/cluster: c}}
        spec:
          topicName: pay.orders
          partitions: 6
          replicas: 3
          config: {cleanup.policy: "compact,delete", retention.ms: 720000}
        """,
    "julie": """
        context: pay
        projects:
        - name: orders
          consumers: [{principal: "User:a"}]
        special_topics:
        - name: pay.orders
          config: {num.partitions: "6", replication.factor: 3, cleanup.policy: "compact,delete", retention.ms: 720000}
        """,
}


@pytest.mark.parametrize("text", ONE_TOPIC.values(), ids=ONE_TOPIC)
def test_the_same_topic_in_each_format(tmp_path: Path, text: str) -> None:
    (tmp_path / "topics.yml").write_text(dedent(text))
    ((name, topic),) = FileSet([tmp_path]).topics.items()
    assert (name, topic.partitions, topic.factor, topic.replicas) == ("pay.orders", 6, 3, None)
    assert topic.configs == {"cleanup.policy": "compact,delete", "retention.ms": "720000"}


def test_julie_names_topics_by_context_project_and_data_type(tmp_path: Path) -> None:
    topics = "topics: [{name: foo}, {name: bar, dataType: avro}]"
    (tmp_path / "a.yaml").write_text(f"context: oltp\nsource: web\nprojects:\n- name: p\n  {topics}\n")
    assert list(FileSet([tmp_path / "a.yaml"]).topics) == ["oltp.web.p.foo", "oltp.web.p.bar.avro"]


def test_files_of_other_tools_that_concern_no_topic_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("meta: {name: c, environment: e}\nspec: {bootstrapAddrs: [a:1]}\n")
    (tmp_path / "acl.yaml").write_text("meta: {name: a}\nspec: {acls: []}\n")
    (tmp_path / "julie.yaml").write_text("context: c\nprojects:\n- name: p\n  topics:\n")
    assert FileSet([tmp_path]).topics == {}


def test_static_placement_of_topicctl_and_own_replicas(tmp_path: Path) -> None:
    spec = "{partitions: 2, replicationFactor: 2, placement: {strategy: static, staticAssignments: [[1, 2], [2, 3]]}}"
    (tmp_path / "a.yaml").write_text(f"meta: {{name: a}}\nspec: {spec}\n---\ntopics: {{b: {{replicas: [[3, 1]]}}}}\n")
    topics = FileSet([tmp_path]).topics
    assert topics["a"].replicas == ((1, 2), (2, 3))
    assert (topics["b"].partitions, topics["b"].factor, topics["b"].replicas) == (1, 2, ((3, 1),))


ERRORS = r"""
topics: {a: {partitons: 3}}                       | 1: partitons: unknown key of topic 'a'; did you mean partitions?
topics: {a: {partitions: 0}}                      | 1: partitions must be a whole number from 1 to 2147483647, not '0'
topics: {a: {factor: three}}                      | 1: factor must be a whole number from 1 to 32767, not 'three'
topics: {a: {factor: [1]}}                        | 1: factor must be a whole number from 1 to 32767, not a list
topics: {a: 3}                                    | 1: topic 'a' must be a mapping, not '3'
topics:\n  a:\n  b:\n  a:                         | 4: a: given twice, first in line 2
topics: {a.b: , a_b: }                            | 1: topic 'a_b', whose name collides with 'a.b', is
topics: {a: }\n---\ntopics: {a: }                 | 3: topic 'a' is described in FILE:1
topics: [a]                                       | 1: topics must be a mapping, not a list
topics: {a: {configs: {k: {}}}}                   | 1: config k must be a text, a number or a list, not a mapping
topics: {a: {replicas: [[1, 2], [3]]}}            | 1: the replicas of topic 'a' do not match 2 partitions and factor 2
topics: {a: {partitions: 2, replicas: [[1]]}}     | 1: the replicas of topic 'a' do not match 2 partitions and factor 1
topics: {a: {replicas: [[]]}}                     | 1: replicas must have a list of broker ids for each partition
templates: {"*": {replicas: [[1]]}}               | 1: replicas: unknown key of template '*'; allowed:
set: "a b"                                        | 1: set: allowed are 1 to 100 letters, digits, '.', '_' and '-'
set: a\n---\nset: b                               | 3: set: FILE:1 has another
defaults: {factor: 1}\n---\ndefaults: {factor: 2} | 3: defaults: FILE:1 has another
topics: &a {}                                     | 1: anchors and aliases are not allowed: use `templates`
topics: {a: *b}                                   | 1: anchors and aliases are not allowed: use `templates`
topics: {? [a] : b}                               | 1: a key must be a text, not a list
topics: [                                         | 2: did not find expected node content
topics: "\x01"                                    | 1: control characters are not allowed
- 1                                               | 1: a document must be a mapping, not a list
other: 1                                          | 1: the document does not describe topics; known formats: Topicwright
meta: {name: a}                                   | 1: spec is missing
meta: {cluster: a}\nspec: {}                      | 1: name is missing
meta: {name: a}\nspec: {placement: {strategy: in-rack}} | 2: placement strategy 'in-rack' is
apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser  | 2: kind 'KafkaUser' does not describe topics; allowed: KafkaTopic
apiVersion: kafka.strimzi.io/v1\nkind: KafkaTopic | 1: metadata is missing
apiVersion: kafka.jikkou.io/v1\nkind: KafkaTopic\nmetadata: {name: a}\nspec: {configMapRefs: [c]} | 4: no file has
apiVersion: kafka.jikkou.io/v1\nmetadata: {name: a, annotations: {jikkou.io/delete: true}} | 2: annotation
projects: []                                      | 1: context is missing
"""


@pytest.mark.parametrize("line", ERRORS.strip().splitlines(), ids=lambda line: line.split("|")[0].strip())
def test_errors_name_file_and_line(tmp_path: Path, line: str) -> None:
    text, expected = (column.strip() for column in line.split(" | ", 1))
    file = tmp_path / "t.yaml"
    file.write_text(text.replace(r"\n", "\n").replace(r"\x01", "\x01") + "\n")
    with pytest.raises(FileError) as raised:
        FileSet([file])
    assert str(raised.value).startswith(f"{file}:{expected}".replace("FILE", str(file)))


def test_all_errors_of_all_files_are_reported_up_to_a_limit(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"{number:02}.yaml").write_text("topics: {a: {x: 1}}\n---\ntopics: {}\n")
    with pytest.raises(FileError) as raised:
        FileSet([tmp_path])
    lines = str(raised.value).splitlines()
    assert len(lines) == 21
    assert lines[0].startswith(f"{tmp_path / '00.yaml'}:1: x: unknown key")
    assert lines[20] == "and 5 more errors"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"topics: {\xff: }")
    (tmp_path / "deep.yaml").write_text("[" * 21)
    (tmp_path / "deeper.yaml").write_text("[" * 100_000)
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, why in (
        (tmp_path / "latin.yaml", ": is not UTF-8"),
        (tmp_path / "deep.yaml", ":1: lists and mappings are nested more than 20 deep"),
        (tmp_path / "deeper.yaml", ":1: "),  # PyYAML 6.0.4 has a limit too
        (tmp_path / "none.yaml", ": cannot be read: No such file or directory"),
        (empty, ": the folder has no .yaml or .yml files"),
    ):
        with pytest.raises(FileError) as raised:
            FileSet([path])
        assert str(raised.value).startswith(f"{path}{why}")


def test_files_of_the_docs_and_the_example(tmp_path: Path) -> None:
    (text,) = examples(ROOT / "docs" / "topics-as-code.md", "yaml")
    (tmp_path / "t.yaml").write_text(text)
    files = FileSet([tmp_path])
    assert files.name == "payments"
    assert files.topics["pay.balances-changelog"].configs == {"min.insync.replicas": "2", "cleanup.policy": "compact"}
    ledger = {"label.owner": "payments", "retention.ms": "604800000", "cleanup.policy": "compact,delete"}
    assert files.topics["pay.ledger"].configs == ledger
    assert list(FileSet([ROOT / "examples" / "topics-as-code" / "topics"]).topics) == list(files.topics)[:2]
    workflow = (ROOT / "examples" / "topics-as-code" / ".github" / "workflows" / "topics.yaml").read_text()
    typed = [shlex.split(line)[1:] for line in re.findall(r"topicwright (?:plan|apply|drift)[^|\n]*", workflow)]
    assert {parser(words[0]).parse_args(words).command for words in typed} == {"plan", "apply", "drift"}


WORDS = (
    "set defaults templates topics partitions factor replicas configs meta spec name placement strategy apiVersion kind"
)
WORDS += (
    " metadata items data configMapRefs context projects dataType config special_topics settings retentionMinutes *"
)
TEXTS = st.sampled_from(
    [*WORDS.split(), "kafka.jikkou.io/v1", "kafka.strimzi.io/v1", "KafkaTopic", "ConfigMap", "static"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.text(max_size=5)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=5), max_leaves=25
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DOCUMENTS.map(json.dumps), max_size=3).map("\n---\n".join).map(str.encode) | st.binary(max_size=60))
def test_any_content_is_read_or_is_an_error_with_its_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "t.yaml"
    file.write_bytes(content)
    errors = ""
    try:
        FileSet([file])
    except FileError as error:
        errors = str(error)
    assert all(line.startswith((str(file), "and ")) for line in errors.splitlines())
