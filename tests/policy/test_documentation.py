"""docs/policies.md is correct: its policy refuses, its rules file loads and judges, its table has every key."""

import re
from pathlib import Path

import pytest

from controller.machine.rules.judging import judge, wrong_examples
from controller.machine.rules.reading import read_rules
from controller.machine.rules.reading_values import RULE_READERS
from controller.machine.rules.rule import Change, TopicFacts
from controller.policy import CreateTopicPolicy, PolicyViolation
from tests.machine.rules.test_rules import created
from tests.policy.requests import request, rows

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")

# A request to the example's rules, and the rules that refuse it; after `+`, the rules that only observe.
EXAMPLE = r"""
orders                                                          | allowed
orders partitions=60                                            | sane
orders by=User:platform-ann partitions=60                       | allowed
orders factor=2                                                 | sane
app-store-changelog partitions=60 factor=1                      | allowed
orders retention.ms=604800001                                   | sane
orders retention.ms=-1                                          | sane
orders min.insync.replicas=1                                    | sane
orders cleanup.policy=compact                                   | allowed
orders cleanup.policy=compact,delete                            | allowed
pay.orders by=User:payments-app retention.ms=5                  | allowed
pay.orders by=User:payments-app                                 | payments
orders by=User:payments-app retention.ms=5                      | payments
orders by=User:payments-app partitions=60 retention.ms=-1       | sane payments
orders segment.ms=5                                             | allowed + no-tuning
orders segment.ms=5 factor=1                                    | sane + no-tuning
orders retention.ms=5 cleanup.policy=compact                    | allowed
"""


def _block(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert isinstance(block, str)
    return block


@pytest.mark.parametrize(("topic", "factor", "refused"), [("pay.a", 3, False), ("a", 3, True), ("pay.a", 2, True)])
def test_the_documented_policy_refuses_as_described(topic: str, factor: int, refused: bool) -> None:
    names: dict[str, type[CreateTopicPolicy]] = {}
    exec(_block("python"), names)
    policy = names["Owned"]()
    if not refused:
        assert policy.validate(request(f"{topic} factor={factor}")) is None
        return
    with pytest.raises(PolicyViolation, match=r"has no owner|at least 3"):
        policy.validate(request(f"{topic} factor={factor}"))


def test_the_documented_policy_is_short() -> None:
    assert len([line for line in _block("python").splitlines() if line]) <= 10


@pytest.mark.parametrize(("requested", "result"), rows(EXAMPLE))
def test_the_documented_rules_judge_as_described(requested: str, result: str) -> None:
    judgement = judge(read_rules(_block("toml")), created(requested))
    names = [
        [one.rule.removeprefix("policy:rules/") for one in some] for some in (judgement.refused, judgement.observed)
    ]
    assert (" ".join(names[0]) or "allowed") + "".join(f" + {name}" for name in names[1]) == result


def test_examples_of_the_documented_rules_pass() -> None:
    rules = read_rules(_block("toml"))
    assert len(rules.examples) == 2
    assert list(wrong_examples(rules, 0)) == []


@pytest.mark.parametrize("name", ["pack.toml", "labels.toml"])
def test_examples_of_the_rules_packs_pass(name: str) -> None:
    rules = read_rules((ROOT / "examples/rules" / name).read_text())
    assert list(wrong_examples(rules, 0)) == []
    assert {name for one in rules.examples for name in one.violates} == {one.name for one in rules.rules}


def test_the_min_isr_rule_of_the_pack_asks_for_no_impossible_value() -> None:
    rules = read_rules((ROOT / "examples/rules/pack.toml").read_text())
    after = TopicFacts(6, (1,), {"min.insync.replicas": "1", "retention.ms": "86400000", "retention.bytes": "1"})
    found = judge(rules, Change(kind="create", topic="web.a", before=None, after=after, principal="User:w", at_ms=0))
    assert (
        "min.insync.replicas must be one less than the replication factor, which must be 2 or more; they are 1 and 1"
        in str(found.all)
    )


def test_the_documented_table_has_every_rule_key_in_order() -> None:
    section = DOCUMENT.partition("## Every key of a rule")[2].partition("\n- ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(RULE_READERS)
