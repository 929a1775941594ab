"""Regular expressions and texts from users: no pattern blocks the interpreter longer when its input is hostile.

Python's own engine would take minutes or longer for each row. The time limit allows for a busy machine.
"""

import fnmatch
import re
from collections.abc import Callable

import pytest

from controller.machine.configs.values import Bad, ConfigType, read_value
from controller.patterns import Pattern, PatternError
from projections.text.points_in_time import InvalidPointInTime, parse_point_in_time

LONG = 200_000


def _is_rejected_as_time(text: str) -> bool:
    with pytest.raises(InvalidPointInTime):
        parse_point_in_time(text)
    return True


NASTY: dict[str, Callable[[], bool]] = {
    "nested repeats": lambda: not Pattern("^(a+)+$").is_found_in("a" * 248 + "!"),
    "alternatives that overlap": lambda: not Pattern("^(a|a|aa)+$").is_found_in("a" * 248 + "!"),
    "nested, as a whole": lambda: Pattern("(.*a){20}b").groups_of("a" * 249) is None,
    "globs": lambda: not re.fullmatch(fnmatch.translate("*a?" * 40 + "b*"), "a" * 4096),
    "a number of digits": lambda: isinstance(read_value("x", ConfigType.DOUBLE, None, "1" * LONG + "x"), Bad),
    "a list of blanks": lambda: read_value("x", ConfigType.LIST, None, "a" + " " * LONG + "b, c") != (),
    "a time of times": lambda: _is_rejected_as_time("T00 1234" * (LONG // 8) + "x"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("nasty", NASTY)
def test_hostile_patterns_and_texts_do_not_block_the_interpreter(nasty: str) -> None:
    assert NASTY[nasty]()


def test_pattern_matches_and_groups() -> None:
    assert Pattern("pay").is_found_in("re.pay.orders")
    assert Pattern("(?<first>a)(b)?(é)").groups_of("aé") == ("aé", "a", "", "é")
    assert Pattern("a").groups_of("ab") is None


@pytest.mark.parametrize(
    "text", ["(?=a)", "(?<!a)", r"(a)\1", "(?>a)", "(", "[", "a{1001}", "(((a{100}){100}){100})", "\ud800"]
)
def test_invalid_patterns_are_rejected(text: str) -> None:
    with pytest.raises(PatternError):
        Pattern(text)
