"""A quorum of controllers as one of its voters shows it."""

from __future__ import annotations

from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.node import QuorumNode
from projections.text.moments import iso
from projections.views.overviews import QuorumView, VoterView


def quorum_shown(node: QuorumNode, files: QuorumFiles, applied: int) -> QuorumView:
    """As of now."""
    core = node.quorum
    beginning = files.beginning(core.epoch)
    since_ms = None if beginning is None else beginning.timestamp_ms
    priorities = {place: peer.priority for place, peer in core.peers.items()}
    priorities[core.place_of(core.me)] = core.options.priority
    voters = []
    for voter in core.voters:
        place, end = core.place_of(voter), None
        if core.leading is not None:
            end = core.log.end if voter.id == core.me.id else max(0, core.leading.progress.of(voter).end)
        voters.append(
            VoterView(
                node_id=voter.id,
                host=place[0],
                port=place[1],
                priority=priorities.get(place),
                log_end=end,
                lag=None if end is None else core.log.end - end,
            )
        )
    return QuorumView(
        node_id=core.me.id,
        role=core.role.value,
        epoch=core.epoch,
        leader=core.leader_id if core.leader_id >= 0 else None,
        leads_since=None if since_ms is None else iso(since_ms),
        leads_since_ms=since_ms,
        high_watermark=core.high_watermark,
        applied=applied,
        voters=tuple(voters),
    )
