"""Properties files, read as Java reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.settings.properties import PropertiesError, Property, read_properties

# Each text as it stands in a file (with \n as a line end), then key and value as java.util.Properties has them.
ROWS = [
    ("a=b", [("a", "b")]),
    ("a:b", [("a", "b")]),
    ("a b", [("a", "b")]),
    ("a = b ", [("a", "b ")]),
    ("  a  :  b", [("a", "b")]),
    ("a==b", [("a", "=b")]),
    ("a = = b", [("a", "= b")]),
    ("a\tb", [("a", "b")]),
    ("a", [("a", "")]),
    ("=b", [("", "b")]),
    ("a\\=b=c", [("a=b", "c")]),
    ("a\\ b = c", [("a b", "c")]),
    ("# a=b\n! c=d\n  # e=f", []),
    ("a=# b", [("a", "# b")]),
    ("a=b\n\n\nc=d", [("a", "b"), ("c", "d")]),
    ("a=b\r\nc=d\re=f", [("a", "b"), ("c", "d"), ("e", "f")]),
    ("a=b,\\\n    c", [("a", "b,c")]),
    ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
    ("a=b\\\\\\\nc=d", [("a", "b\\c=d")]),
    ("a=b\\\n# c", [("a", "b# c")]),
    ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
    ("a=b\\", [("a", "b")]),
    ("a\\\nb=c", [("ab", "c")]),
    ("a=\\t\\n\\r\\f\\q\\:", [("a", "\t\n\r\fq:")]),
    ("a=\\u00e9\\u4E2D", [("a", "é中")]),
    ("a=é", [("a", "é")]),
    ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), ROWS)
def test_a_file_is_read_as_java_reads_it(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(each.key, each.value) for each in read_properties(text)] == expected


def test_a_property_knows_the_line_that_it_begins_on() -> None:
    assert read_properties("# one\na=b\\\n c\n\nd=e") == [Property("a", "bc", 2), Property("d", "e", 5)]


@pytest.mark.parametrize("text", ["a=b\nc=\\u12", "a=b\nc=\\uxyzw"])
def test_a_broken_escape_is_named_by_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match=r"line 2: \\u must be followed by four hexadecimal digits"):
        read_properties(text)


_ESCAPES = {"\\": "\\\\", " ": "\\ ", "=": "\\=", ":": "\\:", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def _written(text: str) -> str:
    """As Properties.store writes a key or value: everything special escaped."""
    return "".join(_ESCAPES.get(each, f"\\{each}" if each in "#!" else each) for each in text)


@given(st.lists(st.tuples(st.text(max_size=10), st.text(max_size=10)), max_size=5))
def test_stored_properties_are_read_back(pairs: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{_written(key)}={_written(value)}" for key, value in pairs)
    read = [(each.key, each.value) for each in read_properties(text)]
    assert read == pairs, f"{text!r} was read as {read}"
