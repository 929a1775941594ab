"""Expressions of rules: functions, names, and the limits that keep each evaluation short."""

import pytest

from controller.machine.rules import expression
from controller.machine.rules.expression import Expression, ExpressionError, ExpressionFailed, Message, Variables
from controller.patterns import Pattern


def variables() -> Variables[None]:
    return Variables(
        {
            "name": lambda _: "pay.orders",
            "client_id": lambda _: "(",
            "partitions": lambda _: 3,
            "configs": lambda _: {"a.b": "1"},
            "config": lambda _: {"a.b": 1},
        },
        None,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name.matches('^pay')", True),
        ("name . matches ('^orders')", False),
        ("matches(name, '^pay')", True),
        (r"name.matches(r'^\w+\.\w{1,400}$')", True),
        ("name . startsWith ('pay') && name != 'contains(' && int('3') == size('abc')", True),
        ("configs.all(key, key == 'a.b')", True),
        ("name == 'pay.orders' && configs.all(name, name == 'a.b')", True),
        ("configs != config && 'a.b' in config && size(configs) == 1 && configs['a.b'] == '1' // 'config', its", True),
    ],
)
def test_value_of_an_expression(text: str, expected: object) -> None:
    assert Expression(text).value(variables()) is expected


def test_matches_compiles_a_pattern_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    class Counted(Pattern):
        def __init__(self, text: str, options: object) -> None:
            compiled.append(text)
            super().__init__(text, options)

    monkeypatch.setattr(expression, "Pattern", Counted)
    check = Expression(r"name.matches(r'^\w{399}$')")
    assert [check.value(variables()) for _ in range(3)] == [False] * 3
    assert compiled == [r"^\w{399}$"]


@pytest.mark.parametrize("text", ["name.matches(client_id)", "name.matches(partitions)", "name.matches()"])
def test_matches_fails_on_an_invalid_pattern(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExpressionFailed):
        Expression(text).value(variables())
    assert capfd.readouterr().err == "", "the CEL library writes nothing to standard error"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"[{', '.join('0' * 60)}].map(x, config) == []", "has a macro and 60 commas, allowed are 10"),
        ("[1].all(a, [1].existsOne(b, true))", "has 2 macros"),
        ("[1].//\nall(a, [1].//\nall(b, true))", "has // and several lines"),
        ("[after.config] == []", "copies all of after.config"),
        ("config.map(key, config) == []", "copies all of config; allowed: one of its values"),
        ("'''a'b''' == name || [after] == []", "copies all of after"),
        (r"r'\' == name || [configs] == [] || name == ''", "copies all of configs"),
        ("configs.all(x, x.matches('a'))", "has a macro and matches, allowed is one of them"),
        ("startsWith(name, 'pay')", r"invalid call of startsWith; allowed: text.startsWith\(part\)"),
        ("name.int() > 1", r"invalid call of int; allowed: int\(value\)"),
    ],
)
def test_slow_macros_and_invalid_calls_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        Expression(text)


def test_a_message_with_a_field_that_fails() -> None:
    message = Message("{name}: {partitions / 0} {partitions + 1} {name + 1} {{name}}")
    assert message.text(variables()) == "pay.orders: {partitions / 0} 4 {name + 1} {pay.orders}"
