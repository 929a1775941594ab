"""Rules that limit the partitions of a topic, and a check of every verdict in a log against them.

The name of the rule has the limit, so the check needs none of the controller's code for rules.
"""

import json
import re
import urllib.request
from collections.abc import Iterable

from events import catalog

_APPLIED = re.compile(r"^name = 'at-most-(\d+)'$", re.MULTILINE)
_RULES = "policy:rules/"
HELD = "held"
"""The name of a rule that holds requests for approval, and that no limit concerns."""


def limit_of(partitions: int) -> str:
    """The text of rules that allow at most so many partitions, and observe as many topics; with 0, of no rules."""
    if not partitions:
        return ""
    observed = f"[[rule]]\nname = 'topics'\nmode = 'observe'\nlimit = {{ topics = {partitions}, partitions = 20 }}\n"
    return f"[[rule]]\nname = 'at-most-{partitions}'\npartitions = {{ max = {partitions} }}\n{observed}"


def apply_limit(http: str, partitions: int) -> int:
    """Apply `limit_of` over HTTP; returns the version. Raises OSError, also without an answer."""
    body = json.dumps({"text": limit_of(partitions)}).encode()
    request = urllib.request.Request(f"http://{http}/v1/rules", body, method="POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        return int(json.load(answer)["number"])


def wrong_verdicts(records: Iterable[catalog.Recorded]) -> list[str]:
    """Returns the decisions in a log, or in a partition of it, that differ from the version of the rules before them.
    Expects that all versions are texts of `limit_of`."""
    wrong: list[str] = []
    version, limit, default = 0, 0, 1
    requested: dict[tuple[str, str], int] = {}
    for record in records:
        refused_by, count = "", 0
        match record.event:
            case catalog.SettingsChanged() as event:
                default = int(dict(event.settings).get("num.partitions", default))
            case catalog.RulesApplied() as event:
                if event.number <= version:
                    wrong.append(f"{record.offset}: version {event.number} after {version}")
                found = _APPLIED.search(event.text)
                version, limit = event.number, 0 if found is None else int(found[1])
            case catalog.CreateRequested() as event:
                count_or_default = event.num_partitions if event.num_partitions > 0 else default
                requested[event.request_id, event.topic] = len(event.assignments) or count_or_default
            case catalog.TopicCreated() as event:
                count = len(event.partitions)
            case catalog.PartitionsAdded() as event:
                count = event.first + len(event.partitions)
            case catalog.CreateRejected(rule=rule) as event if rule.startswith(_RULES):
                refused_by, count = rule, requested[event.request_id, event.topic]
            case catalog.ChangeRejected(rule=rule) as event if rule.startswith(_RULES):
                change = event.request.change
                refused_by, count = rule, change.count if isinstance(change, catalog.RequestedPartitions) else 0
        expected = f"{_RULES}at-most-{limit}" if 0 < limit < count else ""
        if refused_by not in (expected, f"{_RULES}{HELD}"):
            verdict = f"refused by {refused_by}" if refused_by else "allowed"
            wrong.append(f"{record.offset}: {count} partitions are {verdict} by version {version}, at most {limit}")
    return wrong
