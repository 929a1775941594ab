"""Texts of the command line and the pages."""

import pytest

from projections.views.lines import value


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("retention.ms", "604800000", "604800000 (7 d)"),
        ("retention.ms", "-1", "-1 (unlimited)"),
        ("retention.ms", "1", "1"),
        ("retention.bytes", "1073741824", "1073741824 (1 GiB)"),
        ("max.message.bytes", "1048588", "1048588 (1 MiB)"),
        ("segment.bytes", "1000", "1000"),
        ("retention.ms", "9" * 400, "9" * 400),
        ("min.insync.replicas", "1000", "1000"),
        ("flush.ms", None, None),
    ],
)
def test_a_config_value_has_its_size_in_a_readable_unit(name: str, given: str | None, text: str | None) -> None:
    assert value(name, given) == text
