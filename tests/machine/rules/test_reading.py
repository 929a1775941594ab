"""Errors in a rules file name the line, the problem and the allowed values."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from controller.machine.rules.place import Place
from controller.machine.rules.reading import new_rules, read_rules
from controller.machine.rules.rule import RulesError
from controller.policy.loading import checked_file, rules_text
from tests.policy.requests import rows

# The keys of a rule named r (`;` for a new line), and the error after the file's name.
MISTAKES = r"""
# keys and shapes
foo = 1                                   | rule 'r': foo = 1: unknown key; allowed: name, mode, on, hint, message, fail, exception, approve_by, approval_expires, principals, except_principals, topics, except_topics, refuse, name_pattern, partitions, replication_factor, configs, required_configs, allowed_configs, forbidden_configs, check, limit
topics = 'a*'                             | rule 'r': has no requirement; allowed: at least one of refuse, name_pattern, partitions, replication_factor, configs, required_configs, allowed_configs, forbidden_configs, check, limit
refuse = 'no'; mode = 'audit'             | rule 'r': mode = 'audit': is not a mode; allowed: enforce, warn, observe
refuse = 'no'; mode = ['observe']         | rule 'r': mode = ['observe']: is not a mode; allowed: enforce, warn, observe
refuse = ' '                              | rule 'r': refuse = ' ': is not a text; allowed: a text, such as the reason or a contact
refuse = true                             | rule 'r': refuse = true: is not a text; allowed: a text, such as the reason or a contact
partitions = 1; hint = ''                 | rule 'r': hint = '': is not a text; allowed: a text, such as the reason or a contact

# patterns
refuse = 'no'; topics = []                | rule 'r': topics = []: is not a pattern; allowed: a pattern or a list of them, with * for any text, ? for one character
refuse = 'no'; topics = ''                | rule 'r': topics = '': is not a pattern; allowed: a pattern or a list of them, with * for any text, ? for one character
refuse = 'no'; principals = ['a', 5]      | rule 'r': principals = ['a', 5]: is not a pattern; allowed: a pattern or a list of them, with * for any text, ? for one character
name_pattern = '^(pay'                    | rule 'r': name_pattern = '^(pay': is not a regular expression: missing ): ^(pay; allowed: a regular expression in RE2's syntax (https://github.com/google/re2/wiki/Syntax), so no lookaround and no backreference; it is found anywhere in the name unless ^ and $ anchor it
name_pattern = '^(?!pay)'                 | rule 'r': name_pattern = '^(?!pay)': is not a regular expression: invalid perl operator: (?!; allowed: a regular expression in RE2's syntax (https://github.com/google/re2/wiki/Syntax), so no lookaround and no backreference; it is found anywhere in the name unless ^ and $ anchor it
name_pattern = '(a)\1'                    | rule 'r': name_pattern = '(a)\1': is not a regular expression: invalid escape sequence: \1; allowed: a regular expression in RE2's syntax (https://github.com/google/re2/wiki/Syntax), so no lookaround and no backreference; it is found anywhere in the name unless ^ and $ anchor it
name_pattern = ''                         | rule 'r': name_pattern = '': is not a regular expression; allowed: a regular expression in RE2's syntax (https://github.com/google/re2/wiki/Syntax), so no lookaround and no backreference; it is found anywhere in the name unless ^ and $ anchor it
name_pattern = ['a']                      | rule 'r': name_pattern = ['a']: is not a regular expression; allowed: a regular expression in RE2's syntax (https://github.com/google/re2/wiki/Syntax), so no lookaround and no backreference; it is found anywhere in the name unless ^ and $ anchor it

# counts
partitions = 0                            | rule 'r': partitions = 0: 0 is not a whole number from 1; allowed: a whole number from 1, or { min = …, max = … } of such
partitions = -1                           | rule 'r': partitions = -1: -1 is not a whole number from 1; allowed: a whole number from 1, or { min = …, max = … } of such
partitions = '3'                          | rule 'r': partitions = '3': '3' is not a whole number from 1; allowed: a whole number from 1, or { min = …, max = … } of such
partitions = true                         | rule 'r': partitions = true: true is not a whole number from 1; allowed: a whole number from 1, or { min = …, max = … } of such
partitions = { min = 1.5 }                | rule 'r': partitions = { min = 1.5 }: 1.5 is not a whole number from 1; allowed: a whole number from 1, or { min = …, max = … } of such
partitions = { min = 5, max = 3 }         | rule 'r': partitions = { min = 5, max = 3 }: min is over max; allowed: a whole number from 1, or { min = …, max = … } of such
partitions = { least = 3 }                | rule 'r': partitions = { least = 3 }: unknown key 'least'; allowed: a whole number from 1, or { min = …, max = … } of such
replication_factor = {}                   | rule 'r': replication_factor = {}: has neither min nor max; allowed: a whole number from 1, or { min = …, max = … } of such
replication_factor = [1, 3]               | rule 'r': replication_factor = [1, 3]: [1, 3] is not a whole number from 1; allowed: a whole number from 1, or { min = …, max = … } of such

# values of configs
configs = {}                              | rule 'r': configs = {}: is not a table of topic configs; allowed: a table as in { "retention.ms" = { max = 604800000 } }
configs = ['retention.ms']                | rule 'r': configs = ['retention.ms']: is not a table of topic configs; allowed: a table as in { "retention.ms" = { max = 604800000 } }
configs = { retention.ms = 5 }            | rule 'r': configs.retention = { ms = 5 }: 'retention' is not a topic config; allowed: names as written; quote names with dots, as in "retention.ms"
configs = { "retention.m" = 5 }           | rule 'r': configs."retention.m" = 5: 'retention.m' is not a topic config; allowed: perhaps retention.ms; any of cleanup.policy, …
configs = { zzz = 5 }                     | rule 'r': configs.zzz = 5: 'zzz' is not a topic config; allowed: any of cleanup.policy, …
configs = { "retention.ms" = 'week' }     | rule 'r': configs."retention.ms" = 'week': Invalid value week for configuration retention.ms: Not a number of type LONG; allowed: a 64-bit integer in [-1,...]
configs = { "retention.ms" = -7 }         | rule 'r': configs."retention.ms" = -7: Invalid value -7 for configuration retention.ms: Value must be at least -1; allowed: a 64-bit integer in [-1,...]
configs = { "retention.ms" = 1.5 }        | rule 'r': configs."retention.ms" = 1.5: Invalid value 1.5 for configuration retention.ms: Not a number of type LONG; allowed: a 64-bit integer in [-1,...]
configs = { "retention.ms" = [] }         | rule 'r': configs."retention.ms" = []: is empty; allowed: values, each a 64-bit integer in [-1,...]
configs = { "retention.ms" = [[1]] }      | rule 'r': configs."retention.ms" = [1]: is not a value; allowed: a 64-bit integer in [-1,...]
configs = { "retention.ms" = {} }         | rule 'r': configs."retention.ms" = {}: has neither min nor max; allowed: { min = …, max = … }, each a 64-bit integer in [-1,...]
configs = { "retention.ms" = { max = -1 } } | rule 'r': configs."retention.ms" = { max = -1 }: -1 means no limit here; allowed: omit it
configs = { "retention.ms" = { max = '5' } } | rule 'r': configs."retention.ms" = { max = '5' }: '5' is not a number; allowed: { min = …, max = … }, each a 64-bit integer in [-1,...]
configs = { "retention.ms" = { max = true } } | rule 'r': configs."retention.ms" = { max = true }: true is not a number; allowed: { min = …, max = … }, each a 64-bit integer in [-1,...]
configs = { "retention.ms" = { min = 9, max = 5 } } | rule 'r': configs."retention.ms" = { min = 9, max = 5 }: min is over max; allowed: { min = …, max = … }, each a 64-bit integer in [-1,...]
configs = { "retention.ms" = { below = 5 } } | rule 'r': configs."retention.ms" = { below = 5 }: unknown key 'below'; allowed: { min = …, max = … }, each a 64-bit integer in [-1,...]
configs = { "min.cleanable.dirty.ratio" = { max = nan } } | rule 'r': configs."min.cleanable.dirty.ratio" = { max = nan }: nan is not a number; allowed: { min = …, max = … }, each a decimal number in [0,...,1]
configs = { "min.cleanable.dirty.ratio" = { max = 2 } } | rule 'r': configs."min.cleanable.dirty.ratio".max = 2: Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1; allowed: a decimal number in [0,...,1]
configs = { preallocate = { max = 1 } }   | rule 'r': configs.preallocate = { max = 1 }: has no ranges; allowed: a value or a list of them, each true or false
configs = { "compression.type" = 'zip' }  | rule 'r': configs."compression.type" = 'zip': Invalid value zip for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer; allowed: one of [uncompressed, zstd, lz4, snappy, gzip, producer]
configs = { "cleanup.policy" = 'delet' }  | rule 'r': configs."cleanup.policy" = 'delet': Invalid value delet for configuration cleanup.policy: String must be one of: compact, delete; allowed: a comma-separated list of [compact, delete]

# changes, expressions, exceptions
refuse = 'no'; on = []                    | rule 'r': on = []: is not a list of changes; allowed: any of create, grow, alter, delete, reassign, elect, defaults, discovered
refuse = 'no'; on = ['drop']              | rule 'r': on = ['drop']: is not a list of changes; allowed: any of create, grow, …
refuse = 'no'; on = [['create']]          | rule 'r': on = [['create']]: is not a list of changes; allowed: any of create, …
refuse = 'no'; fail = 'never'             | rule 'r': fail = 'never': is not a way to fail; allowed: closed (refuse the change), or open
check = 'partitions <'                    | rule 'r': check = 'partitions <': Failed to parse expression 'partitions <': ERROR: <input>:1:13: Syntax error: …
check = 'partition < 5'                   | rule 'r': check = 'partition < 5': unknown variable 'partition'; allowed: name, change, principal, client_id, host, before, after, partitions, …
check = 'now() > 5'                       | rule 'r': check = 'now() > 5': unknown function 'now'; allowed: size, contains, startsWith, …
check = '[1].all(x, [2].all(y, x < y))'   | rule 'r': check = '[1].all(x, [2].all(y, x < y))': has 2 macros (all, exists, map, filter), allowed is one; allowed: an expression in CEL, as in 'partitions <= 48'
check = ''                                | rule 'r': check = '': is not a text; allowed: a text, such as the reason or a contact
refuse = 'no'; message = '{partitons}'    | rule 'r': message = '{partitons}': unknown variable 'partitons'; allowed: name, …
refuse = 'no'; exception = { topics = 'a' } | rule 'r': exception = { topics = 'a' }: is not a list of exceptions; allowed: [[rule.exception]] tables
refuse = 'no'; exception = [{ topics = 'a' }] | rule 'r': exception = { topics = 'a' }: is incomplete; allowed: topics or principals, a reason, and until with a date
refuse = 'no'; exception = [{ reason = 'x', until = 2027-01-01 }] | rule 'r': exception = { reason = 'x', until = 2027-01-01 }: is incomplete; allowed: topics or principals, a reason, and until with a date
refuse = 'no'; exception = [{ topics = 'a', reason = 'x', until = '2027' }] | rule 'r': exception.until = '2027': is not a date; allowed: a date as in 2027-03-31, its day included, in UTC
refuse = 'no'; exception = [{ topics = 'a', reason = 'x', until = 9999-12-31 }] | rule 'r': exception.until = 9999-12-31: is not a date; allowed: a date …

# names of configs
required_configs = []                     | rule 'r': required_configs = []: is empty; allowed: a list as in ["retention.ms", "cleanup.policy"], or no such key
forbidden_configs = []                    | rule 'r': forbidden_configs = []: is empty; allowed: a list as in ["retention.ms", "cleanup.policy"], or no such key
required_configs = 'retention.ms'         | rule 'r': required_configs = 'retention.ms': is not a list of topic configs; allowed: a list as in ["retention.ms", "cleanup.policy"]
allowed_configs = [5]                     | rule 'r': allowed_configs = [5]: is not a list of topic configs; allowed: a list as in ["retention.ms", "cleanup.policy"]
allowed_configs = ['segment.m']           | rule 'r': allowed_configs = ['segment.m']: 'segment.m' is not a topic config; allowed: perhaps segment.ms; any of cleanup.policy, …
forbidden_configs = ['flush.ms']; allowed_configs = ['flush.ms'] | rule 'r': forbidden_configs = 'flush.ms': is both forbidden and required; allowed: a config that no other key of the rule names
forbidden_configs = ['flush.ms']; required_configs = ['flush.ms'] | rule 'r': forbidden_configs = 'flush.ms': is both forbidden and required; allowed: a config that no other key of the rule names
forbidden_configs = ['flush.ms']; configs = { "flush.ms" = 5 } | rule 'r': forbidden_configs = 'flush.ms': is both forbidden and required; allowed: a config that no other key of the rule names
"""  # noqa: E501 - a row is a line

# A whole file (`;` for a new line), and the error after its name.
FILES = r"""
# the file as a whole
x = 1                                     | x = 1: unknown key; allowed: mode, and tables [[rule]], [[default]], [[example]]
rule = 5                                  | rule: is not a table; allowed: [[rule]]
mode = 'warn'                             | there are no rules; allowed: one [[rule]] table for each rule, at least one
rule = []                                 | there are no rules; allowed: one [[rule]] table for each rule, at least one
rule = [1]                                | rule: is not a table; allowed: [[rule]]
[rule]; refuse = 'no'                     | rule: is not a table; allowed: [[rule]]
mode = 'audit'; [[rule]]; refuse = 'no'   | mode = 'audit': is not a mode; allowed: enforce, warn, observe
[[rules]]; name = 'a'                     | rules = [{ name = 'a' }]: unknown key; allowed: mode, and tables [[rule]], [[default]], [[example]]
[[rule]]; refuse = 'no'                   | rule 1: name: a rule has no name; allowed: 1 to 100 letters, digits, '.', '_' and '-'
[[rule]]; name = 'a b'; refuse = 'no'     | rule 1: name = 'a b': is not a name; allowed: 1 to 100 letters, digits, '.', '_' and '-'
[[rule]]; name = 5; refuse = 'no'         | rule 1: name = 5: is not a name; allowed: 1 to 100 letters, digits, '.', '_' and '-'
[[rule]]; name = 'a'; refuse = 'no'; [[rule]]; name = 'a'; refuse = 'no' | rule 2: name = 'a': is taken; allowed: a name of its own
[[default]]; name = 'd'; topics = 'a*'    | default 'd': has no default; allowed: at least one of partitions, replication_factor, configs
[[default]]; name = 'd'; partitions = 0   | default 'd': partitions = 0: is not a count; allowed: a whole number from 1
[[default]]; name = 'd'; configs = { "flush.m" = 5 } | default 'd': configs = 5: 'flush.m' is not a topic config; allowed: perhaps flush.ms; …
[[rule]]; name = 'a'; refuse = 'no'; [[example]]; topic = 'x' | example 1: has no violates; allowed: topic, and violates with the names of rules, [] if it is allowed
[[rule]]; name = 'a'; refuse = 'no'; [[example]]; topic = 'x'; violates = ['b'] | example 1: violates = 'b': is no rule; allowed: a
[[rule]]; name = 'a'; refuse = 'no'; [[example]]; topic = 'x'; violates = ['a']; change = 'grow' | example 1: before is the topic as it was; allowed: before for every change except create
[[rule]]; name = 'a'; refuse = 'no'; [[example]]; topic = 'x'; violates = []; change = ['create', 'delete'] | example 1: change = ['create', 'delete']: is not a change; allowed: one of create, grow, …
[[rule]]; name = 'a'; name = 'b'; hint = 'c' | is not TOML: Cannot overwrite a value (at line 3, column 11); allowed: TOML; put regular expressions in 'single quotes'
[[rule]]; name = "\d"                     | is not TOML: Unescaped '\' in a string (at line 2, column 11); allowed: TOML; put regular expressions in 'single quotes'
"""  # noqa: E501 - a row is a line


def _error(file: Path, text: str) -> str:
    """Returns the error without the file's name and the line."""
    file.write_text(text)
    with pytest.raises(RulesError) as raised:
        checked_file(file)
    assert str(raised.value).startswith(f"file {file}: ")
    return re.sub(r"^line \d+: ", "", str(raised.value).removeprefix(f"file {file}: "))


@pytest.mark.parametrize(
    ("text", "expected"),
    [*((f"[[rule]]; name = 'r'; {keys}", expected) for keys, expected in rows(MISTAKES)), *rows(FILES)],
)
def test_rules_file_errors_name_line_and_problem(tmp_path: Path, text: str, expected: str) -> None:
    error = _error(tmp_path / "rules.toml", text.replace("; ", "\n"))
    assert error.startswith(expected[:-1]) if expected.endswith("…") else error == expected, error


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("[" * 5000 + "]" * 5000, "is nested too deep"),
        (f"{{ {'a.' * 5000}b = 1 }}", "a key has too many parts; allowed: at most 30 parts, separated by dots"),
        (f"1\n{'a . ' * 50_000}b = 1", "a key has too many parts"),
        ("1\n[" + '"a".' * 50_000 + "b]", "a key has too many parts"),
        (f"1\nconfigs = {{ 'flush.ms' = {{ max = {'9' * 400} }} }}", "rule 'r': configs.\"flush.ms\".max = 9"),
        ("9" * 10_000, "has a number that is too long"),
        ("0x" + "f" * 10_000, "has a number that is too long"),
    ],
    ids=["lists", "dotted keys", "keys with blanks", "quoted keys", "range", "digits", "hexadecimal digits"],
)
def test_deeply_nested_values_are_rejected(tmp_path: Path, value: str, problem: str) -> None:
    assert _error(tmp_path / "rules.toml", f"[[rule]]\nname = 'r'\npartitions = {value}\n").startswith(problem)


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("none.toml", "cannot be read: No such file or directory; allowed: a TOML file of rules"),
        (".", "cannot be read: Is a directory"),
        ("/dev/zero", "cannot be read: is larger than 262144 bytes"),
        ("latin-1.toml", "is not UTF-8 at byte 3; allowed: TOML in UTF-8"),
    ],
)
def test_an_unreadable_rules_file_is_an_error(tmp_path: Path, place: str, problem: str) -> None:
    (tmp_path / "latin-1.toml").write_bytes("# für alle".encode("latin-1"))
    with pytest.raises(RulesError) as raised:
        checked_file(tmp_path / place)
    assert str(raised.value).startswith(f"file {tmp_path / place}: {problem}")


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("# from Windows", encoding="utf-8-sig")
    assert rules_text(tmp_path / "rules.toml") == "# from Windows"


def test_rules_are_in_file_order() -> None:
    text = "\n".join(f"[[rule]]\nname = '{name}'\nrefuse = 'no'" for name in "cab")
    assert [rule.name for rule in read_rules(text).rules] == ["c", "a", "b"]


def test_a_duplicate_config_name_in_a_rule_counts_once() -> None:
    (rule,) = read_rules("[[rule]]\nname = 'r'\nrequired_configs = ['flush.ms', 'flush.ms']").rules
    assert rule.required_configs == ("flush.ms",)


def test_rules_errors_name_the_line_of_the_key_or_table() -> None:
    text = "# rules\n[[rule]]\nname = 'a'\nrefuse = 'no'\n\n[[rule]]\nname = 'b'\n\npartitions = 0\n"
    with pytest.raises(RulesError, match=r"^line 9: rule 'b': partitions = 0: "):
        read_rules(text)
    with pytest.raises(RulesError, match=r"^line 6: rule 'b': has no requirement"):
        read_rules(text.replace("partitions = 0", ""))


def test_rules_beyond_the_size_limits_are_rejected() -> None:
    with pytest.raises(RulesError, match="there are too many rules; allowed: at most 1000 tables"):
        read_rules("".join(f"[[rule]]\nname = 'r{n}'\nrefuse = 'no'\n" for n in range(1001)))
    with pytest.raises(RulesError, match="the rules are too long; allowed: at most 262144 bytes"):
        read_rules(f"# {'x' * 262144}")
    with pytest.raises(RulesError, match="101 patterns': are too many; allowed: at most 100"):
        read_rules(f"[[rule]]\nname = 'r'\nrefuse = 'no'\ntopics = {['a'] * 101}")
    with pytest.raises(RulesError, match="the expressions and messages are too long; allowed: 50000 characters"):
        read_rules("".join(f"[[rule]]\nname = 'r{n}'\ncheck = '{'1' * 900}'\n" for n in range(60)))
    with pytest.raises(RulesError, match="has 1001 characters, allowed are 1000"):
        read_rules(f"[[rule]]\nname = 'r'\ncheck = '{'1' * 1001}'")
    with pytest.raises(RulesError, match="has 1001 characters, allowed are 1000"):  # each refusal has it
        read_rules(f"[[rule]]\nname = 'r'\nrefuse = 'no'\nhint = '{'1' * 1001}'")
    with pytest.raises(RulesError, match=r"hint = .*: has control characters; allowed: printable characters, tabs"):
        read_rules("[[rule]]\nname = 'r'\nrefuse = 'no'\nhint = \"\\u001b[31mred\"")
    with pytest.raises(RulesError, match="the patterns have too many"):
        read_rules(f"[[rule]]\nname = 'r'\nrefuse = 'no'\ntopics = '{'*a' * 50_000}'")


def test_examples_do_not_search_the_text_for_their_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "_line_of_key", None)  # for a thousand examples it took minutes
    examples = "[[example]]\ntopic = 'a'\nviolates = []\n" * 2
    rules = read_rules(f"[[rule]]\nname = 'r'\npartitions = 1\n\n{examples}")
    assert [example.line for example in rules.examples] == [5, 8]


def test_an_error_truncates_long_parts() -> None:
    for wrong in (f"x = '{'a' * 200_000}'", f"{'a' * 200_000} = 1", f"name_pattern = '{'(' * 200_000}'"):
        with pytest.raises(RulesError) as raised:
            read_rules(f"[[rule]]\nname = 'r'\n{wrong}")
        assert len(str(raised.value)) < 8_500


def test_a_line_ends_where_toml_says() -> None:
    with pytest.raises(RulesError, match=r"^line 4: "):
        read_rules("[[rule]]\nname = 'r'\nhint = 'a\u2028b'\npartitons = 1")


@pytest.mark.parametrize("nested", ["(" * 499 + "1" + ")" * 499, "[" * 999, "-" * 999 + "1", "!" * 996 + "true"])
def test_a_deeply_nested_rule_expression_raises_no_recursion_error(nested: str) -> None:
    with suppress(RulesError):
        assert read_rules(f"[[rule]]\nname = 'r'\ncheck = '{nested}'").rules


def test_the_cost_of_all_name_patterns_is_bounded() -> None:
    costly = "".join(f"[[rule]]\nname = 'r{number}'\nname_pattern = 'x{{900}}{number}'\n" for number in range(6))
    with pytest.raises(RulesError, match=r"too complex: RE2 makes 5\d\d\d instructions of them; allowed: at most 5000"):
        new_rules(costly)
    usual = "".join(f"[[rule]]\nname = 'r{number}'\nname_pattern = '^team{number}\\.'\n" for number in range(250))
    assert len(new_rules(usual).rules) == 250


def test_the_calls_of_matches_in_all_expressions_are_bounded() -> None:
    check = 'check = \'name.matches("a") || matches(name, "matches(")\''
    one = f"[[rule]]\nname = 'r{{}}'\n{check}\nmessage = '{{{{name.matches(\"a\")}}}}'\n"
    with pytest.raises(RulesError, match="call matches and macros 27 times; allowed: at most 25"):
        new_rules("".join(one.format(number) for number in range(9)))
    assert new_rules("".join(one.format(number) for number in range(8)))


CONTRADICTIONS = """
partitions = { max = 3 } | partitions = 5 | which allow at most 3 for partitions, not 5
configs = { 'retention.ms' = -1 } | configs = { 'retention.ms' = { max = 5 } } | which allow '-1' for retention.ms, not at most 5
configs = { 'cleanup.policy' = ['delete', 'compact'] } | configs = { 'cleanup.policy' = 'compact,delete' } | allow 'delete' or 'compact'
required_configs = ['retention.ms'] | forbidden_configs = ['retention.ms'] | which allow 'true' for 'retention.ms is set', not 'false'
topics = 'pay.*'; replication_factor = 2 | replication_factor = 3 | line 1: rule 'a': contradicts other rules, which allow 3
topics = 'pay.*'; partitions = 2 | topics = 'pay.*'; partitions = 3 | which allow 2 for partitions
topics = 'pay.*'; partitions = 2 | topics = 'web.*'; partitions = 3 |
except_topics = 'pay.*'; partitions = 2 | topics = 'pay.*'; partitions = 3 |
partitions = { min = 1, max = 5 } | partitions = { min = 5 } |
mode = 'warn'; partitions = 1 | partitions = 2 |
on = 'grow'; partitions = 1 | partitions = 2 |
"""  # noqa: E501


@pytest.mark.parametrize("row", CONTRADICTIONS.strip().splitlines())
def test_rules_that_no_topic_can_satisfy_together_are_rejected(row: str) -> None:
    *rules, problem = (part.strip().replace("; ", "\n") for part in row.split("|"))
    text = "".join(f"[[rule]]\nname = '{name}'\n{keys}\n" for name, keys in zip("ab", rules, strict=True))
    if not problem:
        assert len(read_rules(text).rules) == 2
        return
    with pytest.raises(RulesError, match=re.escape(problem)):
        read_rules(text)
    assert len(read_rules(f"mode = 'observe'\n{text}").rules) == 2
    exception = "[[rule.exception]]\ntopics = 'x'\nreason = 'r'\nuntil = 2030-01-01\n"
    assert len(read_rules(text + exception).rules) == 2
