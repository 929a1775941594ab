"""A flood of wrong tokens over sockets: none passes, and right logins from another address do."""

from tests.security.flood import measured


async def test_right_logins_pass_during_a_flood_of_wrong_tokens() -> None:
    found = await measured(seconds=2, width=50, per_ip_max=40)
    assert found["refused"] > 0
    assert found["right"] > 0
