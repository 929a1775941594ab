"""The ACLs of the target cluster (`authorizer.class.name=ClusterAcls`), polled with DescribeAcls.

While they cannot be read, the last ones apply for `STALE_S`; then everything is denied, except for super users. ACLs
are decoded in a thread, and only if the response differs from the last one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

import structlog

from controller.brokers.cluster.link import ClusterLink
from controller.kafka.codec.codec import encode_request
from controller.kafka.connections import CLIENT_ID, CORRELATION_ID, RESPONSE_S, ClusterUnreachable, NotAuthenticated
from controller.kafka.connections import decode_message as decode
from controller.kafka.messages import ApiKey
from controller.kafka.messages.access import DescribeAclsRequest, DescribeAclsResponse
from controller.machine.access.acls import ALL, ANY, CLUSTER, DENY, GROUP, LITERAL, TOPIC, WILDCARD, Acls
from events.access import Acl

VERSION: Final = 3
STALE_S: Final = 60.0
BYTES_MAX: Final = 64 << 20
"""The largest accepted response, about half a million ACLs."""
_ALL: Final = DescribeAclsRequest(resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
_NOTHING: Final = Acls().with_all(
    Acl(kind, LITERAL, WILDCARD, "User:*", WILDCARD, ALL, DENY) for kind in (TOPIC, GROUP, CLUSTER)
)
"""ACLs that deny everything to everybody."""


class ClusterAcls:
    """Follows the ACLs of the cluster at `link`, once it is known. `clock_s` is monotonic."""

    link: ClusterLink

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._acls, self._payload, self._read_s = _NOTHING, b"", -math.inf
        self._error: str | None = None

    def current(self) -> Acls:
        """The cluster's ACLs, or those that deny everything if they were read too long ago."""
        return self._acls if self.age_s() <= STALE_S else _NOTHING

    def age_s(self) -> float:
        """The seconds since the cluster had these ACLs."""
        return self._clock_s() - self._read_s

    async def read(self) -> None:
        """Raises ClusterUnreachable, also if the cluster does not let us read them, and NotAuthenticated."""
        began_s = self._clock_s()
        frame = encode_request(ApiKey.DESCRIBE_ACLS, VERSION, CORRELATION_ID, CLIENT_ID, _ALL)[4:]
        payload = await self.link.forward(frame, RESPONSE_S)
        if payload != self._payload:
            self._acls, self._payload = await asyncio.to_thread(_decoded, payload), payload
        self._read_s = began_s

    async def follow(self, every_s: float) -> None:
        """Read the ACLs until cancelled."""
        log = structlog.get_logger("topicwright")
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.read()
                error = None
            except (ClusterUnreachable, NotAuthenticated) as failed:
                error = str(failed)
            if (error is None) != (self._error is None):
                log.warning("the cluster's ACLs can be read again" if error is None else "no ACLs", why=error)
            self._error = error

    def gauges(self) -> list[tuple[str, str, float]]:
        return [("cluster_acls_age_seconds", "Since the target cluster's ACLs were read.", self.age_s())]


def _decoded(payload: bytes) -> Acls:
    """Raises ClusterUnreachable."""
    if len(payload) > BYTES_MAX:
        raise ClusterUnreachable(f"the cluster's ACLs have {len(payload)} bytes; the limit is {BYTES_MAX}")
    answer = decode(ApiKey.DESCRIBE_ACLS, VERSION, payload, DescribeAclsResponse, ("the cluster", 0))
    if answer.error_code:
        why = answer.error_message or f"error {answer.error_code}"
        raise ClusterUnreachable(f"the cluster's ACLs cannot be read: {why}")
    return Acls().with_all(
        Acl(
            on.resource_type,
            on.pattern_type,
            on.resource_name,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for on in answer.resources
        for acl in on.acls
    )
