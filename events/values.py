"""The values that events are made of: frozen, compared by value, encoded as arrays.

What holds of an event's fields holds of theirs: a field is only ever added at the end, with a default.
"""

from __future__ import annotations

from typing import Literal

from events.fact import Fact
from events.names import BrokerId

Configs = tuple[tuple[str, str], ...]
"""Explicit topic configs, sorted by name."""


class Partition(Fact, frozen=True):
    """One partition as it stands.

    `replicas` begins with the preferred leader; a negative id is a placeholder (KIP-409). `leader` is -1 when there
    is none. `partition_epoch` rises with every change, `leader_epoch` with every change of leader (KIP-101, KIP-497).
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0


class Assignment(Fact, frozen=True):
    """A manual assignment of one partition, as asked for."""

    partition: int
    replicas: tuple[BrokerId, ...]


class ConfigOp(Fact, frozen=True):
    """One change of a topic config; `op` is SET 0, DELETE 1, APPEND 2 or SUBTRACT 3 (KIP-339)."""

    name: str
    op: int
    value: str | None


class Endpoint(Fact, frozen=True):
    """Where a broker listens: listener name, host, port."""

    name: str
    host: str
    port: int


Outcome = Literal["allowed", "refused", "failed"]


class Observation(Fact, frozen=True):
    """A rule that a topic breaks and that was recorded instead of enforced.

    `rule` names the rule (`policy:rules/naming`), `message` says what is broken and what is allowed.
    """

    rule: str
    message: str


class Verdict(Fact, frozen=True):
    """The answer of the whole chain of create-topic policies for one topic (KIP-108).

    `outcome`: `allowed` when no policy objects or there is none; `refused` when one raised PolicyViolation, which the
    client sees as POLICY_VIOLATION (44) with `message`; `failed` when one raised anything else, which costs that topic
    UNKNOWN_SERVER_ERROR (-1). `policy` is the class that decided and `rule` its rule, both empty when allowed.
    `observed` holds what was recorded and not enforced, whatever the outcome.
    """

    outcome: Outcome
    policy: str = ""
    rule: str = ""
    message: str = ""
    observed: tuple[Observation, ...] = ()
