"""The views of requests that wait for approval, and of a decision on one."""

from __future__ import annotations

import msgspec

from events.catalog import ApprovalRequested
from projections.text.wording import change_text
from projections.views.view import times


class ApprovalRuleView(msgspec.Struct, frozen=True):
    """A rule that holds a request, with the principals (as patterns) and roles that may approve."""

    name: str
    approve_by: tuple[str, ...]


class HeldRequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request for one topic that waits for approval. An approver must be listed by each of the rules."""

    request_id: str
    topic: str
    change: str
    """The requested change as a sentence."""
    principal: str
    client_id: str | None
    host: str
    rules: tuple[ApprovalRuleView, ...]
    expires_at: str
    expires_at_ms: int
    may_approve: bool
    """True if the caller may approve it."""

    @classmethod
    def of(cls, held: ApprovalRequested, may_approve: bool) -> HeldRequestView:
        return cls(
            request_id=held.request_id,
            topic=held.name,
            change=change_text(held.request.change),
            principal=held.principal,
            client_id=held.client_id,
            host=held.request.host,
            rules=tuple(ApprovalRuleView(rule.name, rule.approve_by) for rule in held.rules),
            may_approve=may_approve,
            **times(expires=held.expires_at_ms),
        )


class HeldRequestsView(msgspec.Struct, frozen=True):
    """The requests that wait for approval, the first to expire first."""

    requests: tuple[HeldRequestView, ...]


class ApprovedTopicView(msgspec.Struct, frozen=True):
    """What became of an approved change of a topic; `error` and `code` are Kafka's."""

    topic: str
    error: str
    code: int
    message: str


class ApprovalView(msgspec.Struct, frozen=True):
    """A decision on the held request `held`. `request_id` is the request that decided; after an approval it did the
    changes of `topics`. A change that was refused waits on."""

    request_id: str
    held: str
    topics: tuple[ApprovedTopicView, ...] = ()
