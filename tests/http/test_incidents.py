"""Each planted incident gets its cause and the brokers that it waits for, in `/v1/health`, on the page and in
`topicwright status` alike."""

import json
import re
from collections.abc import Callable
from typing import Any, get_args

import pytest

from controller.engine.group_commit import Controller
from controller.machine.commands import commands
from events.names import BrokerId
from projections.queries import health as module
from projections.views.overviews import QuorumView, VoterView
from projections.views.view import IssueKind
from tests.http.pages.story import page, text_of
from tests.http.pages.test_same_answers import Command
from tests.http.service import Service, service

NO_LEADER = QuorumView(
    node_id=3000,
    role="candidate",
    epoch=1,
    leader=None,
    leads_since=None,
    leads_since_ms=None,
    high_watermark=0,
    applied=0,
    voters=(VoterView(node_id=3001, host="h", port=9093, priority=1, log_end=None, lag=None),),
)


def _storage_error(one: Service, error: str | None) -> None:
    controller: Any = one.controller
    controller.storage_error = error


def _failure(one: Service) -> None:
    one.controller.failure = ZeroDivisionError("a bug")


def _without_majority(one: Service) -> None:
    one.api.quorum, one.api.brokers_error = lambda: NO_LEADER, lambda: "no leader of the controllers is known"


def _unreachable(one: Service) -> None:
    one.api.brokers_error = lambda: "the cluster cannot be reached: timed out"


def _archive_lost(one: Service) -> None:
    one.api.archive_error = lambda: "archiving is paused: the bucket is gone"


def _stale(one: Service) -> None:
    one.api.decides_here = False
    _storage_error(one, "Kafka has not returned a heartbeat for 31 s")


FAULTS: dict[str, Callable[[Service], None]] = {
    "disk-full": lambda one: _storage_error(one, "no space left on device"),
    "failure": _failure,
    "no-majority": _without_majority,
    "unreachable": _unreachable,
    "no-bucket": _archive_lost,
    "no-heartbeat": _stale,
}
"""Faults of the process."""
_CREATE = re.compile(r"(\w+)(\[.*\]|\*\d)(?:,(\S+)=(\S+))?")


async def _play(one: Service, step: str) -> None:
    """Play a step: `-1` stops broker 1, `+1` starts it, `~1` delays it by a minute, `drain1` begins its controlled
    shutdown, and by `lag1` leaders report that it fell behind; `t[[1,2]]` creates a topic with these replicas, `t*4`
    with this factor; or a fault of the process."""
    if step in FAULTS:
        FAULTS[step](one)
        return
    if found := _CREATE.fullmatch(step):
        name, where, config, value = found.groups()
        body: dict[str, Any] = {"configs": {config: value}} if config else {}
        body |= {"replication_factor": int(where[1:])} if where[0] == "*" else {"assignments": json.loads(where)}
        is_slow = any(each.delay_ms for each in one.brokers.by_id.values())
        await one.create(name, 202 if is_slow else 201, timeout_ms=1 if is_slow else 30_000, **body)
        return
    action, broker_id = step.rstrip("0123456789"), BrokerId(int(step[-1]))
    if action in ("-", "+"):
        live = sorted({*one.api.cluster.live} ^ {broker_id})
        await one.request("POST", f"/v1/simulated/brokers/{broker_id}/{'start' if action == '+' else 'stop'}")
        await one.live(*live)
    elif action == "~":
        await one.request("PUT", f"/v1/simulated/brokers/{broker_id}/delay", json={"delay_ms": 60_000})
    elif action == "drain":
        one.submit_internal(commands.BeginShutdown, broker_id=broker_id)
        await one.until(lambda: broker_id in one.api.cluster.brokers and one.api.cluster.brokers[broker_id].leaving)
    else:
        assert action == "lag", step
        one.brokers._report_isr = lambda *_: None  # type: ignore[method-assign]
        topic = one.controller.store.durable_named("t")
        assert topic is not None
        for index, partition in enumerate(topic.partitions):
            isr = tuple(replica for replica in partition.replicas if replica != broker_id)
            report = commands.IsrReport(index, isr, partition.leader_epoch, partition.partition_epoch)
            leader = partition.leader
            one.submit_internal(commands.AlterPartition, topic=topic.name, broker_id=leader, reports=(report,))
        await one.until(lambda: bool(one.controller.store.durable_tallies.situations))
    await one.until(one.controller.is_reconciled)


INCIDENTS = """
t[[1]] -1
    offline 1 1: it waits for broker 1, the last in-sync replica, fenced (stopped)
t[[1],[1]] -1
    offline 1 2: all wait for broker 1, the last in-sync replica, fenced (stopped)
t[[1,2,3]] -1 -2 -3
    offline 3 1: it waits for broker 3, the last in-sync replica, fenced (stopped)
    no-live-broker 1,2,3 0: broker 1 is fenced (stopped); broker 2 is fenced (stopped); broker 3 is fenced (stopped)
t[[1,2,3]] -3 -1 -2
    offline 2 1: it waits for broker 2, the last in-sync replica, fenced (stopped)
    no-live-broker 1,2,3 0: broker 1 is fenced (stopped); broker 2 is fenced (stopped); broker 3 is fenced (stopped)
t[[3,2]] -2 -3
    offline 3 1: it waits for broker 3, the last in-sync replica, fenced (stopped)
    broker-away 2 0: broker 2 is fenced (stopped)
t[[1,2]] -1 -2 +1
    offline 2 1: it waits for broker 2, the last in-sync replica, fenced (stopped)
t[[1],[2]] -1 -2
    offline 1 1: it waits for broker 1, the last in-sync replica, fenced (stopped)
    offline 2 1: it waits for broker 2, the last in-sync replica, fenced (stopped)
a[[1]] b[[1]] c[[1]] d[[1]] -1
    offline 1 4: all wait for broker 1, the last in-sync replica, fenced (stopped)
t[[1,2],[2,3]] -2
    at-min-isr 2 2: all wait for broker 2, fenced (stopped)
t[[1,2,3]] -2 -3
    at-min-isr 2,3 1: it waits for broker 2, fenced (stopped); broker 3, fenced (stopped)
t[[1,2,3]] -2
    under-replicated 2 1: it waits for broker 2, fenced (stopped)
t[[1,2,3]],min.insync.replicas=3 -1
    under-min-isr 1 1: it waits for broker 1, fenced (stopped)
t[[1,2,3]],min.insync.replicas=2 -1
    at-min-isr 1 1: it waits for broker 1, fenced (stopped)
t[[1,2,3]],min.insync.replicas=2 -1 -2
    under-min-isr 1,2 1: it waits for broker 1, fenced (stopped); broker 2, fenced (stopped)
t[[1,2,3]],min.insync.replicas=2 -1 -2 +1
    at-min-isr 2 1: it waits for broker 2, fenced (stopped)
t[[1,2]],min.insync.replicas=2 -2
    under-min-isr 2 1: it waits for broker 2, fenced (stopped)
t[[1,2]],unclean.leader.election.enable=true -2
    unclean-risk 2 1: it waits for broker 2, fenced (stopped)
t[[1,2,3]],unclean.leader.election.enable=true -2 -3
    unclean-risk 2,3 1: it waits for broker 2, fenced (stopped); broker 3, fenced (stopped)
t[[1,2,3]],unclean.leader.election.enable=true -1 -2 -3
    offline 3 1: it waits for broker 3, the last in-sync replica, fenced (stopped)
    no-live-broker 1,2,3 0: broker 1 is fenced (stopped); broker 2 is fenced (stopped); broker 3 is fenced (stopped)
t[[1,2],[3,2]] -1 -3
    at-min-isr 1 1: it waits for broker 1, fenced (stopped)
    at-min-isr 3 1: it waits for broker 3, fenced (stopped)
a[[1]] b[[1,2],[1,2]],min.insync.replicas=2 -1
    offline 1 1: it waits for broker 1, the last in-sync replica, fenced (stopped)
    under-min-isr 1 2: all wait for broker 1, fenced (stopped)
t[[1,2,3]] lag2
    under-replicated 2 1: it waits for broker 2, live but out of sync
t[[1,2,3]],min.insync.replicas=3 lag2
    under-min-isr 2 1: it waits for broker 2, live but out of sync
t[[1,2,3]] drain2
    under-replicated 2 1: it waits for broker 2, in controlled shutdown
t[[1]] drain1
    offline 1 1: it waits for broker 1, the last in-sync replica, in controlled shutdown
t*4
    placeholders - 2: all wait for a new broker, because fewer brokers are usable than the replication factor
t*4 -2
    under-replicated 2 2: all wait for broker 2, fenced (stopped), and for a new broker, because …
~2 t[[1,2,3]]
    slow-propagation 2 0: it waits for the metadata to be applied by broker 2
~2 ~3 t[[1,2,3]]
    slow-propagation 2,3 0: it waits for the metadata to be applied by brokers 2, 3
~2 t[[2]] -2
    offline 2 1: it waits for broker 2, the last in-sync replica, fenced (stopped)
    waiting-creates 2 0: it waits for a leader on broker 2
~2 ~3 t[[2],[3]] -2 -3
    offline 2 1: it waits for broker 2, the last in-sync replica, fenced (stopped)
    offline 3 1: it waits for broker 3, the last in-sync replica, fenced (stopped)
    waiting-creates 2,3 0: it waits for a leader on brokers 2, 3
-2
    broker-away 2 0: broker 2 is fenced (stopped)
-2 -3
    broker-away 2,3 0: broker 2 is fenced (stopped); broker 3 is fenced (stopped)
-1 -2 -3
    no-live-broker 1,2,3 0: broker 1 is fenced (stopped); broker 2 is fenced (stopped); broker 3 is fenced (stopped)
disk-full
    log-not-writable - 0: no space left on device
failure
    controller-failed - 0: a bug
no-majority
    quorum-without-majority - 0: no leader of the controllers is known
unreachable
    cluster-unreachable - 0: the cluster cannot be reached: timed out
no-bucket
    archive-lost - 0: archiving is paused: the bucket is gone
no-heartbeat
    stale-gateway - 0: Kafka has not returned a heartbeat for 31 s
t[[1]] -1 no-bucket
    offline 1 1: it waits for broker 1, the last in-sync replica, fenced (stopped)
    archive-lost - 0: archiving is paused: the bucket is gone
"""
"""Incidents, each with its steps and the problems: the kind, the brokers that it waits for, the number of partitions,
and the cause without its time."""


@pytest.mark.parametrize("incident", re.split(r"\n(?! )", INCIDENTS.strip()))
async def test_an_incident_gets_its_cause(
    incident: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "SLOW_MS", 0)
    monkeypatch.setattr(Controller, "storage_error", None)
    steps, *problems = (line.strip() for line in incident.splitlines())
    async with service(settings={"enable.under.replicated.topic.creation": "true"}) as one:
        assert (await one.get("/v1/health"))["issues"] == []
        for step in steps.split():
            await _play(one, step)
        issues = (await one.get("/v1/health"))["issues"]
        for issue, expected in zip(issues, problems, strict=True):
            waits_for = ",".join(map(str, issue["waits_for"])) or "-"
            cause = re.sub(r" since 20[-0-9]+T[:0-9]+Z", "", issue["cause"])
            told = f"{issue['kind']} {waits_for} {issue['partitions']}: {cause}"
            assert told == expected or (expected.endswith(" …") and told.startswith(expected[:-2]))
        shown, printed = text_of(await page(one, "/")), await Command(one, capsys)("status")
        for each in issues:
            for words in (each["kind"], each["text"], each["cause"], each["resolution"]):
                assert words, each
                assert words in shown
                assert words in printed
            for broker_id in each["waits_for"]:
                assert str(broker_id) in each["cause"]
                assert str(broker_id) in each["resolution"]
                assert each["text"] in text_of(await page(one, f"/brokers/{broker_id}"))
            for path in each["evidence"]:
                await one.get(f"/v1{path}")
        _storage_error(one, None)
        one.controller.failure = None


def test_every_kind_of_problem_is_planted() -> None:
    told = {line.split()[0] for line in INCIDENTS.splitlines() if line.startswith(" ")}
    assert told == {*get_args(IssueKind)} - {"starting"}, "a service answers only once it has started"
