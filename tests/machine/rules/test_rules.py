"""Rules on new topics, as tables. `test_judging` has the other changes."""

import pytest

from controller.machine.rules.judging import ALLOWED, Judgement, judge
from controller.machine.rules.reading import read_rules
from controller.machine.rules.rule import Change, TopicFacts
from tests.policy.requests import request, rows

# The keys of rule r (`;` for a new line), a request (see tests.policy.requests), and the verdict.
ONE_RULE = r"""
# the topic's name: a regular expression, searched for
name_pattern = '^pay\.'                             | pay.orders                  | allowed
name_pattern = '^pay\.'                             | orders                      | topic name 'orders' does not match '^pay\.'
name_pattern = '^pay\.'                             | re.pay.orders               | topic name 're.pay.orders' does not match '^pay\.'
name_pattern = 'pay'                                | re.pay.orders               | allowed
name_pattern = '^[a-z]+$'                           | abc.d                       | topic name 'abc.d' does not match '^[a-z]+$'

# partitions
partitions = { min = 3, max = 24 }                  | x partitions=2              | partitions is 2, allowed is 3 to 24
partitions = { min = 3, max = 24 }                  | x partitions=3              | allowed
partitions = { min = 3, max = 24 }                  | x partitions=24             | allowed
partitions = { min = 3, max = 24 }                  | x partitions=25             | partitions is 25, allowed is 3 to 24
partitions = { min = 3 }                            | x partitions=2              | partitions is 2, allowed is at least 3
partitions = { max = 3 }                            | x partitions=4              | partitions is 4, allowed is at most 3
partitions = 4                                      | x partitions=5              | partitions is 5, allowed is 4
partitions = { max = 2 }                            | x replicas=1,2/2,3          | allowed
partitions = { max = 2 }                            | x replicas=1/2/3            | partitions is 3, allowed is at most 2

# replication factor
replication_factor = 3                              | x factor=1                  | replication_factor is 1, allowed is 3
replication_factor = { min = 2 }                    | x factor=1                  | replication_factor is 1, allowed is at least 2
replication_factor = { min = 2 }                    | x replicas=1,2/2,3          | allowed
replication_factor = { min = 2 }                    | x replicas=1/2              | replication_factor is 1, allowed is at least 2

# values of configs, where the request sets them
configs = { "retention.ms" = { max = 800 } }        | x                           | allowed
configs = { "retention.ms" = { max = 800 } }        | x retention.ms=801          | retention.ms is '801', allowed is at most 800
configs = { "retention.ms" = { max = 800 } }        | x retention.ms=_+801_       | retention.ms is '+801', allowed is at most 800
configs = { "retention.ms" = { min = 5, max = 9 } } | x retention.ms=4            | retention.ms is '4', allowed is 5 to 9
configs = { "min.insync.replicas" = 2 }             | x min.insync.replicas=2     | allowed
configs = { "min.insync.replicas" = 2 }             | x min.insync.replicas=1     | min.insync.replicas is '1', allowed is '2'
configs = { "min.insync.replicas" = [2, 3] }        | x min.insync.replicas=1     | min.insync.replicas is '1', allowed is '2' or '3'
configs = { "min.cleanable.dirty.ratio" = { max = 0.5 } } | x min.cleanable.dirty.ratio=0.50 | allowed
configs = { "min.cleanable.dirty.ratio" = { max = 0.5 } } | x min.cleanable.dirty.ratio=.6 | min.cleanable.dirty.ratio is '.6', allowed is at most 0.5
configs = { preallocate = false }                   | x preallocate=FALSE         | allowed
configs = { "compression.type" = ["zstd", "lz4"] }  | x compression.type=zstd     | allowed
configs = { "compression.type" = ["zstd", "lz4"] }  | x compression.type=gzip     | compression.type is 'gzip', allowed is 'zstd' or 'lz4'
configs = { "cleanup.policy" = "delete" }           | x cleanup.policy=compact    | cleanup.policy is 'compact', allowed is 'delete'
configs = { "cleanup.policy" = "delete" }           | x cleanup.policy=delete,compact | cleanup.policy is 'delete,compact', allowed is 'delete'
configs = { "cleanup.policy" = "compact,delete" }   | x cleanup.policy=delete,_compact | allowed
configs = { "retention.ms" = { max = 800 } }        | x retention.ms=soon         | Invalid value soon for configuration retention.ms: Not a number of type LONG; allowed: a 64-bit integer in [-1,...]

# -1 of a retention is without limit, so more than any number
configs = { "retention.ms" = { max = 800 } }        | x retention.ms=-1           | retention.ms is '-1', allowed is at most 800
configs = { "retention.bytes" = { max = 800 } }     | x retention.bytes=-1        | retention.bytes is '-1', allowed is at most 800
configs = { "retention.ms" = { min = 800 } }        | x retention.ms=-1           | allowed
configs = { "retention.ms" = -1 }                   | x retention.ms=-1           | allowed
configs = { "retention.ms" = [-1, 5] }              | x retention.ms=6            | retention.ms is '6', allowed is '-1' or '5'
configs = { "compression.gzip.level" = { max = 3 } } | x compression.gzip.level=-1 | allowed

# configs that must, may and must not be set
required_configs = ["retention.ms"]                 | x retention.ms=5            | allowed
required_configs = ["retention.ms"]                 | x                           | retention.ms must be set
required_configs = ["retention.ms"]                 | x replicas=1 segment.ms=5   | retention.ms must be set
required_configs = ["retention.ms"]; configs = { "retention.ms" = { max = 8 } } | x | retention.ms must be set to at most 8
required_configs = ["retention.ms"]; configs = { "retention.ms" = [7, 8] } | x    | retention.ms must be set to '7' or '8'
required_configs = ["retention.ms", "segment.ms"]   | x                           | retention.ms must be set, segment.ms must be set
forbidden_configs = ["preallocate"]                 | x preallocate=false         | preallocate may not be set
allowed_configs = ["segment.ms"]                    | x                           | allowed
allowed_configs = ["segment.ms"]                    | x segment.ms=5              | allowed
allowed_configs = ["segment.ms"]                    | x flush.ms=5                | flush.ms may not be set, allowed are segment.ms
allowed_configs = []                                | x flush.ms=5                | flush.ms may not be set, allowed are no configs
allowed_configs = []; configs = { "flush.ms" = 5 }  | x flush.ms=5                | allowed
allowed_configs = []; configs = { "flush.ms" = 5 }  | x flush.ms=6                | flush.ms is '6', allowed is '5'
allowed_configs = []; required_configs = ["flush.ms"] | x flush.ms=6              | allowed
allowed_configs = ["segment.ms"]; required_configs = ["flush.ms"] | x flush.ms=6 preallocate=true | preallocate may not be set, allowed are segment.ms, flush.ms

# no at all, and where to ask
refuse = 'no topics on Fridays'                     | x                           | no topics on Fridays
partitions = 4; hint = 'ask #kafka'                 | x partitions=5              | partitions is 5, allowed is 4 (ask #kafka)

# several things wrong are all reported
name_pattern = '^pay'; partitions = 4; replication_factor = 2 | x                 | topic name 'x' does not match '^pay', partitions is 3, allowed is 4, replication_factor is 3, allowed is 2

# to whom a rule applies
refuse = 'no'; principals = 'User:pay-*'            | x by=User:pay-app           | no
refuse = 'no'; principals = 'User:pay-*'            | x by=user:pay-app           | allowed
refuse = 'no'; principals = ['User:ann', 'User:b?b'] | x by=User:bob              | no
refuse = 'no'; principals = ['User:ann', 'User:b?b'] | x by=User:annie            | allowed
refuse = 'no'; except_principals = 'User:admin'     | x by=User:admin             | allowed
refuse = 'no'; except_principals = 'User:admin'     | x by=User:ann               | no
refuse = 'no'; principals = 'User:*'; except_principals = 'User:admin' | x by=User:admin | allowed
refuse = 'no'; principals = 'User:CN=ann,O=[a-c]*'  | x by=User:CN=ann,O=acme     | no

# to which topics
refuse = 'no'; topics = 'tmp.*'                     | tmp.x                       | no
refuse = 'no'; topics = 'tmp.*'                     | my.tmp.x                    | allowed
refuse = 'no'; except_topics = ['*-changelog', '*-repartition'] | a-changelog     | allowed
refuse = 'no'; topics = 'pay.*'; except_topics = 'pay.tmp.*' | pay.tmp.x          | allowed
refuse = 'no'; topics = 'a*'; principals = 'User:b' | abc by=User:ann             | allowed
"""  # noqa: E501 - a row is a line

# Several rules in one file (` / ` between them; the names are a, b, c), the mode of the file, a request, and
# a refusal with its rule and message, or `allowed`; then each observation after `+`.
SEVERAL_RULES = r"""
partitions = 4 / replication_factor = 2                      |         | x partitions=4 factor=2 | allowed
partitions = 4 / replication_factor = 2                      |         | x factor=2 | refused a: rule 'a': partitions is 3, allowed is 4
partitions = 4 / replication_factor = 2                      |         | x partitions=4 | refused b: rule 'b': replication_factor is 3, allowed is 2
partitions = 4 / replication_factor = 2                      | enforce | x          | refused a: rule 'a': partitions is 3, allowed is 4; rule 'b': replication_factor is 3, allowed is 2
partitions = 4 / replication_factor = 2                      | observe | x          | allowed + a: rule 'a': partitions is 3, allowed is 4 + b: rule 'b': replication_factor is 3, allowed is 2
partitions = 4; mode = 'observe' / replication_factor = 2    |         | x factor=2 | allowed + a: rule 'a': partitions is 3, allowed is 4
partitions = 4; mode = 'observe' / replication_factor = 2    |         | x          | refused b: rule 'b': replication_factor is 3, allowed is 2 + a: rule 'a': partitions is 3, allowed is 4
partitions = 4 / replication_factor = 2; mode = 'observe'    |         | x          | refused a: rule 'a': partitions is 3, allowed is 4 + b: rule 'b': replication_factor is 3, allowed is 2
partitions = 4; mode = 'enforce'                             | observe | x          | allowed + a: rule 'a': partitions is 3, allowed is 4
partitions = 4; mode = 'enforce'                             |         | x          | refused a: rule 'a': partitions is 3, allowed is 4
refuse = 'A'; topics = 'a*' / refuse = 'B'; topics = '*b'    |         | ab         | refused a: rule 'a': A; rule 'b': B
refuse = 'A'; topics = 'a*' / refuse = 'B'; topics = '*b'    |         | b          | refused b: rule 'b': B
"""  # noqa: E501 - a row is a line


def _judge_create(bodies: dict[str, str], requested: str, mode: str = "") -> Judgement:
    tables = [f"[[rule]]\nname = '{name}'\n" + body.replace("; ", "\n") for name, body in bodies.items()]
    head = f"mode = '{mode}'\n" if mode else ""
    return judge(read_rules(head + "\n".join(tables)), created(requested))


def created(requested: str) -> Change:
    """The change that creates a topic, parsed from a line."""
    given = request(requested)
    assigned = given.replicas_assignments
    factors = {len(one) for one in assigned.values()} if assigned else {given.replication_factor or 0}
    after = TopicFacts(
        len(assigned) if assigned else given.num_partitions or 0, tuple(sorted(factors)), dict(given.configs)
    )
    who = {"principal": given.principal, "client_id": None, "host": ""}
    return Change(kind="create", topic=given.topic, before=None, after=after, at_ms=0, **who)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rule", "requested", "result"), rows(ONE_RULE))
def test_one_rule_judges_a_create(rule: str, requested: str, result: str) -> None:
    judgement = _judge_create({"r": rule}, requested)
    if result == "allowed":
        assert judgement == ALLOWED
    else:
        rejection = judgement.rejection()
        assert rejection is not None
        assert (rejection.rule, rejection.message) == ("policy:rules/r", f"rule 'r': {result}")


@pytest.mark.parametrize(("rules", "mode", "requested", "result"), rows(SEVERAL_RULES))
def test_several_rules_judge_a_create(rules: str, mode: str, requested: str, result: str) -> None:
    judgement = _judge_create(dict(zip("abc", rules.split(" / "), strict=False)), requested, mode)
    rejection = judgement.rejection()
    decided = "allowed" if rejection is None else f"refused {rejection.rule[-1]}: {rejection.message}"
    seen = [f"{one.rule.removeprefix('policy:rules/')}: {one.message}" for one in judgement.observed]
    assert " + ".join([decided, *seen]) == result
