"""Properties files, read as Java reads them."""

from pathlib import Path

import pytest

from controller.settings.properties import Property, read_properties

FILE = Path("a.properties")

# The text in a file, then its key and value as in java.util.Properties, except for blanks after a value.
ROWS = [
    ("  a  :  b ", [("a", "b")]),
    ("# a=b\n! c=d\n  # e=f\na=# b", [("a", "# b")]),
    ("a=b\r\nc=d\re=f", [("a", "b"), ("c", "d"), ("e", "f")]),
    ("a=b,\\\n    c", [("a", "b,c")]),
    ("a=\\tb\\q\\:\\u00e9é", [("a", "bq:éé")]),
    ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_properties_are_parsed_as_by_java(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(each.key, each.value) for each in read_properties(text, FILE)] == expected


def test_properties_have_their_line_number() -> None:
    found = [*read_properties("# one\na=b\\\n c\r\n\rd=e", FILE)]
    assert found == [Property("a", "bc", "a.properties, line 2"), Property("d", "e", "a.properties, line 5")]


@pytest.mark.parametrize("text", ["a=b\nc=\\u12", "a=b\nc=\\uxyzw"])
def test_a_malformed_escape_is_reported_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: \\u must be followed by four hexadecimal digits"):
        list(read_properties(text, FILE))
