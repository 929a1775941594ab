"""Decides every recorded request again, and checks that the result equals the log bit for bit (`replay redecide`).

This release's `decide` gets each request with the inputs in the log (counts, ids, times, the authorizer's answer, the
policies' verdict), on the state before it, with the brokers and settings of that time. The new events are compared
with the recorded ones as canonical bytes. A log of an older release is decided with the settings recorded in it; if the
rules themselves have changed since, the difference names the release that decided.

The policies' verdicts are those in the log. With `--policies`, the recorded policies judge creations and changes of
topic configs again, if the source of each class is the recorded one. Others are named, with both hashes, and their
verdicts are used as recorded.

Shards are decided concurrently, because no topic's decision depends on another's.

Non-goal: deciding observations again (of brokers, and of time that passes). The log has their results, but not
everything that was observed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from controller.machine.commands.commands import AlterTopicConfigs, CreateTopic
from controller.machine.decide import decide
from controller.machine.state import POLICY_HASH_PREFIX
from controller.policy.chain import request_of
from controller.policy.loading import ALTER_SETTING, PolicyLoadError, source_hashes
from controller.policy.loading import SETTING as POLICY_SETTING
from controller.release import RELEASE
from events.catalog import ApprovalDecided, ApprovalRequested, Cause, Event, PartitionsAdded, Recorded, TopicCreated
from events.codec import HIDDEN, encode_event
from events.errors import shortened
from projections.replay.log.columns import arrow_schema
from projections.replay.log.log_ref import Ends, Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome
from projections.replay.redecide.recorded import RecordedRequest, fold_requests, timelines_of
from projections.replay.redecide.whatif import Pairs, Policies, policy_modules
from projections.replay.runner import Runner
from projections.replay.shards import AT_FIRST, Beginning, Row, cluster_events
from projections.text.wording import event_text, many

SHOWN_CHARS_MAX = 400  # of each side of a difference
NOTHING = "nothing"
OTHER_VERDICT = "its policies, whose source is the recorded one, return another verdict: they depend on something else"
DIFFERENCES_PER_BUCKET_MAX, CAUSES_PER_BUCKET_MAX = 1000, 100
"""The number of differences returned from one bucket of the shards, and of causes counted separately."""


class Difference(msgspec.Struct, frozen=True, gc=False):
    """A request that is now decided differently: the first recorded and new events that differ, as the fields that
    differ, and the most likely cause."""

    shard: str
    offset: int
    topic: str
    request_id: str
    recorded: str
    now: str
    why: str
    log_partition: int = 0


def run_redecide(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay redecide`: decide every request up to `options.at` again; `found` is true if one
    differs. The rows are the first differences in log order; not all, if there are very many. Raises ReplayError."""
    ends = ends_of(ref, options.at)
    trusted, reports = _recorded_policies(ref, ends) if options.recorded_policies else ({}, [])
    runner.ship(policy_modules(",".join(trusted.values())))
    count, causes, found = decided_again(runner, ref, ends, frozenset(trusted))
    otherwise = causes.total()
    return Outcome(
        rows=found,
        found=otherwise > 0,
        lines=[
            f"{many(count, 'request')} up to {as_of(ends)} decided again by release {RELEASE}: "
            f"{otherwise} decided otherwise",
            *reports,
            *_lines(causes, found, options.limit),
        ],
        about={**offsets_row(ends), "requests": count, "otherwise": otherwise, "release": RELEASE, "policies": reports},
    )


def decided_again(
    runner: Runner, ref: Ref, ends: Ends, trusted: Collection[Pairs] = (), start: int = 0, begin: Beginning = AT_FIRST
) -> tuple[int, Counter[str], list[dict[str, Any]]]:
    """Decide the requests from offset `start` until before `ends` again; `begin` as in `fold_requests`.
    `trusted` are the settings whose recorded policies judge again.

    Returns the number of requests, the causes of the differences with their counts, and the first differences as rows
    in log order. Raises ReplayError.
    """
    job = partial(_of_bucket, release=RELEASE, trusted=trusted)
    requests, causes, found = 0, Counter[str](), list[dict[str, Any]]()
    for row in fold_requests(runner, ref, ends, job, _SCHEMA, start=start, begin=begin).to_pylist():
        requests += row["requests"]
        causes.update({one["why"]: one["times"] for one in row["causes"]})
        found += row["found"]
    return requests, causes, sorted(found, key=itemgetter("log_partition", "offset", "shard"))


_DIFFERENCE = arrow_schema(Difference.__struct_fields__, recorded=pa.string(), now=pa.string(), why=pa.string())
_CAUSE = pa.struct([("why", pa.string()), ("times", pa.int64())])
_SCHEMA = pa.schema(
    [("requests", pa.int64()), ("causes", pa.list_(_CAUSE)), ("found", pa.list_(pa.struct(list(_DIFFERENCE))))]
)
"""The result of a bucket of the shards: the number of requests, the causes of differences, and the differences."""


def _recorded_policies(ref: Ref, ends: Ends) -> tuple[dict[Pairs, str], list[str]]:
    """The recorded settings whose policies can judge again, with the names of the classes, and a line for each class.
    If one cannot judge again, the recorded verdicts are used under these settings."""
    trusted, reports = dict[Pairs, str](), list[str]()
    timelines = timelines_of(cluster_events(ref, ends)).values()
    offsets = {change.settings: offset for each in timelines for offset, change in reversed(each.settings_changes)}
    for pairs, offset in reversed(offsets.items()):
        recorded, of = dict(pairs), f" (settings of offset {offset})"
        present = source_hashes(f"{recorded.get(POLICY_SETTING, '')},{recorded.get(ALTER_SETTING, '')}")
        names = [key.removeprefix(POLICY_HASH_PREFIX) for key in present]
        problems = [
            f"policy {name}: the sha256 of its source is {now or 'unknown'}, recorded is {recorded.get(key) or 'none'}"
            for name, (key, now) in zip(names, present.items(), strict=True)
            if not now or now != recorded.get(key)
        ]
        hidden = [key for key, text in pairs if text == HIDDEN.decode()]
        problems += [f"policy {name}: the log hides {', '.join(hidden)}" for name in names if hidden]
        with closing(Policies()) as policies:
            try:
                if not problems:
                    policies.chain(pairs)
            except PolicyLoadError as error:
                problems.append(str(error))
        if names and not problems:
            trusted[pairs] = ",".join(names)
        reports += [f"{problem}; the recorded verdicts are used{of}" for problem in problems] or [
            f"policy {name}: judges again; its source is the recorded one{of}" for name in names
        ]
    return trusted, reports


def _judged(request: RecordedRequest, policies: Policies) -> RecordedRequest:
    """The request with the present verdict of the recorded policies. Changes of broker configs keep theirs, because the
    log holds only their results."""
    command = request.command
    if not isinstance(command, CreateTopic | AlterTopicConfigs) or command.verdict is None:
        return request
    chain = policies.chain(request.cluster.settings_pairs)
    return replace(request, command=replace(command, verdict=chain.validate(request_of(command, request.state()))))


def _of_bucket(decided: Iterable[RecordedRequest], release: str, trusted: Collection[Pairs]) -> Iterator[Row]:
    """A row of _SCHEMA. `trusted` are the settings whose recorded policies judge again."""
    requests, causes, differences = 0, Counter[str](), list[Row]()
    with closing(Policies()) as policies:
        for recorded in decided:
            requests += 1
            request = _judged(recorded, policies) if recorded.cluster.settings_pairs in trusted else recorded
            found = difference(request, release)
            if found is None:
                continue
            if request.command != recorded.command:
                found = replace(found, why=OTHER_VERDICT)
            if causes.total() < DIFFERENCES_PER_BUCKET_MAX:
                differences.append(msgspec.structs.astuple(found))
            why = found.why if found.why in causes or len(causes) < CAUSES_PER_BUCKET_MAX else "other causes"
            causes[why] += 1
    yield requests, list(causes.items()), differences


def _lines(causes: Counter[str], found: Sequence[Mapping[str, Any]], limit: int) -> Iterator[str]:
    for why, count in sorted(causes.items(), key=lambda cause: (-cause[1], cause[0])):
        yield f"  {count} x {why}"
    for one in found[:limit]:
        of_log = f" of partition {one['log_partition']}" if one["log_partition"] else ""
        yield f"offset {one['offset']}{of_log}, topic {one['topic']}, request {one['request_id']}"
        yield f"  recorded  {one['recorded']}"
        yield f"  now       {one['now']}"
        yield f"  because   {one['why']}"
    if causes.total() > limit:
        yield f"… and {causes.total() - len(found[:limit])} more"


def difference(request: RecordedRequest, release: str) -> Difference | None:
    """The difference of one request; None if it is decided bit for bit as recorded. `release` is the running
    release."""
    recorded, first = _bytes(request.records), _words(request.first.event)
    if request.broken:
        why = f"{request.broken}; what follows in this shard was not decided again"
        return _difference(request, first, NOTHING, why)
    if request.command is None:
        return _difference(request, first, NOTHING, "the log holds no request that led to these events")
    try:
        now = _decided(request)
    except Exception as error:
        why = f"this release ({release}) fails on this request"
        return _difference(request, first, f"{type(error).__name__}: {error}", why)
    if _bytes(now) == recorded:
        return None
    before, after = _first_difference(request.records, now)
    return _difference(request, before, after, _why(request, release))


def _difference(request: RecordedRequest, recorded: str, now: str, why: str) -> Difference:
    first = request.first
    topic = getattr(first.event, "topic", "")
    request_id = first.cause.request_id
    return Difference(request.shard, first.offset, topic, request_id, recorded, now, why, request.log_partition)


# Deciding again, and describing the difference.


def _decided(request: RecordedRequest) -> tuple[Recorded, ...]:
    """The records that this release would write for a request, numbered like the recorded ones."""
    command = request.command
    assert command is not None, "whoever decides again knows the command"
    cause = Cause(type(command).__name__, command.request_id)
    events = decide(request.state(), command).events
    of_request = (event for event in events if not isinstance(event, ApprovalRequested | ApprovalDecided))
    return tuple(Recorded(request.first.offset, command.at_ms, cause, event) for event in of_request)


def _bytes(records: Iterable[Recorded]) -> list[bytes]:
    return [encode_event(record.at_ms, record.cause, record.event) for record in records]


def _first_difference(recorded: tuple[Recorded, ...], now: tuple[Recorded, ...]) -> tuple[str, str]:
    for one, other in zip(recorded, now, strict=False):
        if _bytes([one]) != _bytes([other]):
            return _what_differs(one, other)
    longer, at = (recorded, len(now)) if len(recorded) > len(now) else (now, len(recorded))
    words = _words(longer[at].event)
    return (words, NOTHING) if longer is recorded else (NOTHING, words)


def _what_differs(recorded: Recorded, now: Recorded) -> tuple[str, str]:
    if type(recorded.event) is not type(now.event):
        return _words(recorded.event), _words(now.event)
    names = now.event.__struct_fields__
    fields = [name for name in names if getattr(recorded.event, name) != getattr(now.event, name)]
    if not fields:
        return _envelope(recorded), _envelope(now)
    return _fields(recorded, fields), _fields(now, fields)


def _fields(record: Recorded, names: list[str]) -> str:
    kind, values = type(record.event).__name__, {name: getattr(record.event, name) for name in names}
    texts = (f"{kind}.{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items())
    return shortened("; ".join(texts), SHOWN_CHARS_MAX)


def _envelope(record: Recorded) -> str:
    return f"at {record.at_ms} ms, caused by {record.cause.command} {record.cause.request_id}"


def _words(event: Event) -> str:
    return shortened(f"{type(event).__name__}: {event_text(event)}", SHOWN_CHARS_MAX)


# The cause of a difference.


def _why(request: RecordedRequest, release: str) -> str:
    before = [one for one in request.timeline.settings_changes if one[0] < request.first.offset]
    if not before:
        return "no settings are recorded before it"
    offset, settings = before[-1]
    for event in (record.event for record in request.records):
        if isinstance(event, TopicCreated | PartitionsAdded) and event.live_brokers != request.cluster.live:
            return (
                f"it was placed on the live brokers {list(event.live_brokers)}, but by the broker events before it "
                f"{list(request.cluster.live)} were live"
            )
    decided_by, since = settings.release, f"effective since offset {offset}"
    if decided_by != release:
        return f"release {decided_by} ({since}) decided it; the rules of this release, {release}, are others"
    return f"release {release} ({since}), which is this one, has recorded it: its rules or the log were changed"
