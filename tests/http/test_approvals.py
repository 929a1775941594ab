"""Requests that wait for approval over HTTP and on the page: who sees, approves, denies and withdraws them."""

from pathlib import Path
from typing import Any

import pytest

from controller.access.authorizer import Caller
from controller.access.users import Users
from controller.http.rules import is_approver
from controller.machine.commands.access import EndApprovals
from controller.machine.commands.commands import CreateTopic
from events.catalog import ApprovalRequested
from events.names import RequestId, TopicName
from tests.http.pages.story import HTML, from_page
from tests.http.service import Half, Judge, Service, owned, service
from tests.http.test_gate import basic, logins

RULES = """
[[rule]]
name = "big"
on = ["create", "grow"]
partitions = { max = 2 }
approve_by = ["User:carol"]

[[rule]]
name = "kept"
on = "delete"
refuse = "ask carol"
approve_by = ["User:c*", "approver"]
approval_expires = "90m"
"""
ALICE = {"Authorization": basic("alice", "alice-PLANTED")}
CAROL = {"Authorization": basic("carol", "carol-PLANTED")}


async def held_create(one: Service, name: str = "big.topic") -> str:
    body = {"name": name, "num_partitions": 5}
    problem = await one.request("POST", "/v1/topics", 403, json=body, headers=ALICE)
    assert (problem["error"], problem["rule"]) == ("POLICY_VIOLATION", "policy:rules/big")
    assert f"ask User:carol to run `topicwright approve {problem['request_id']}`" in problem["message"]
    return str(problem["request_id"])


async def pending(one: Service, headers: dict[str, str]) -> list[Any]:
    found: list[Any] = (await one.request("GET", "/v1/approvals", headers=headers))["requests"]
    return found


async def decide(
    one: Service, held: str, what: str, headers: dict[str, str], expect: int = 200, because: str | None = None
) -> Any:
    body = None if because is None else {"because": because}
    return await one.request("POST", f"/v1/requests/{held}/{what}", expect, headers=headers, json=body)


async def apply(one: Service, rules: str = RULES) -> None:
    await one.request("POST", "/v1/rules", json={"text": rules}, headers=CAROL)


async def test_a_held_create_is_approved_by_another_principal_and_done_once(users: Users) -> None:
    async with service(logins=logins(users, True, [])) as one:
        await apply(one)
        held = await held_create(one)
        (own,), (seen,) = await pending(one, ALICE), await pending(one, CAROL)
        assert (own["may_approve"], seen["may_approve"]) == (False, True)
        assert (seen["topic"], seen["principal"]) == ("big.topic", "User:alice")
        assert seen["change"] == "to be created with 5 partitions, the default factor"
        own_problem = await decide(one, held, "approve", ALICE, 403)
        assert own_problem["message"].startswith("The request is of User:alice, and nobody approves their own")
        done = await decide(one, held, "approve", CAROL)
        assert {name: each["code"] for name, each in done["topics"].items()} == {"big.topic": 0}
        topic = await one.request("GET", "/v1/topics/big.topic", headers=CAROL)
        assert topic["num_partitions"] == 5
        created = await one.request("GET", f"/v1/requests/{done['request_id']}", headers=CAROL)
        assert created["principal"] == "User:alice"
        again = await decide(one, held, "approve", CAROL, 404)
        assert again["error"] == "RESOURCE_NOT_FOUND"
        assert await pending(one, CAROL) == []
        explained = await one.request("GET", f"/v1/explain/{held}", headers=CAROL)
        texts = [step["text"] for step in explained["steps"]]
        assert any("waits for approval, because of big" in text for text in texts), texts
        assert f"User:carol (python-httpx/{texts[-1].partition('httpx/')[2]}" == texts[-1]
        assert texts[-1].endswith(f"approves request {held} for big.topic, done as {done['request_id']}")


async def test_a_request_is_denied_with_a_reason_or_withdrawn(users: Users) -> None:
    async with service(logins=logins(users, True, [])) as one:
        await apply(one)
        held = await held_create(one)
        wrong = ((None, "body: missing"), ("", "because: Expected"), ("x" * 1001, "because: Expected"))
        for body, message in (*wrong, ("a\x1b[2J", "because: has control characters")):
            problem = await decide(one, held, "deny", CAROL, 400, body)
            assert message in problem["message"]
        await decide(one, held, "deny", CAROL, because="too big")
        assert await pending(one, ALICE) == []
        events = await one.request("GET", "/v1/events?type=ApprovalDecided", headers=CAROL)
        assert [each["fields"]["reason"] for each in events["events"]] == ["too big"]
        withdrawn = await held_create(one)
        await decide(one, withdrawn, "deny", ALICE, because="a mistake")
        assert (await decide(one, withdrawn, "approve", CAROL, 404))["message"].startswith("No request")


async def test_an_approval_of_what_was_deleted_meanwhile_is_refused_and_waits_on(users: Users) -> None:
    async with service(logins=logins(users, True, [])) as one:
        await one.request("POST", "/v1/topics", 201, json={"name": "a"}, headers=ALICE)
        await apply(one)
        problem = await one.request("DELETE", "/v1/topics/a", 403, headers=ALICE)
        assert "for 90 minutes: ask User:c* or the role approver" in problem["message"]
        await apply(one, RULES.partition('[[rule]]\nname = "kept"')[0])
        await one.request("DELETE", "/v1/topics/a", headers=ALICE)
        refused = await decide(one, problem["request_id"], "approve", CAROL, 404)
        assert refused["error"] == "UNKNOWN_TOPIC_ID"
        assert len(await pending(one, CAROL)) == 1
        at_ms = (await pending(one, CAROL))[0]["expires_at_ms"]
        command = EndApprovals(request_id=one.controller.new_request_id(), at_ms=at_ms, principal="")
        one.controller.submit_internal(command)
        await one.until(lambda: not one.api.cluster.held)


async def test_only_listed_approvers_decide_and_others_see_nothing(users: Users) -> None:
    async with service(logins=logins(users, False, []), authorizer=Half(("Alter", "Cluster"))) as one:
        await apply(one, RULES.replace("User:carol", "User:dora"))
        body = {"name": "big.topic", "num_partitions": 5}
        problem = await one.request("POST", "/v1/topics", 403, json=body, headers=ALICE)
        held = problem["request_id"]
        assert await pending(one, CAROL) == []
        assert (await decide(one, held, "approve", CAROL, 404))["error"] == "RESOURCE_NOT_FOUND"
        seen = await one.request("POST", "/v1/topics", 403, json={**body, "name": "open.topic"}, headers=ALICE)
        refused = await decide(one, seen["request_id"], "approve", CAROL, 403)
        assert refused["message"] == "User:carol may not approve this request, but User:dora may."
        refused = await decide(one, seen["request_id"], "deny", {}, 403, "no")
        assert refused["message"] == "User:ANONYMOUS may not deny this request, but User:dora may."
        assert len(one.api.cluster.held) == 2


@pytest.mark.parametrize(
    ("principal", "roles", "expected"),
    [("User:carol", [], True), ("User:carl", ["approver"], True), ("User:bob", [], False), ("approver", [], False)],
)
def test_approvers_are_principals_or_roles(principal: str, roles: list[str], expected: bool) -> None:
    rules = (("r", ("User:carol", "approver")), ("s", ("User:c*",)))
    held = ApprovalRequested("q", "t", "User:alice", None, None, rules, 0)  # type: ignore[arg-type]
    assert is_approver(Caller(principal, roles=frozenset(roles)), held) is expected


async def test_policies_judge_an_approved_create_again(users: Users) -> None:
    judge = Judge(owned)
    settings = {"create.topic.policy.class.name": "tests.Owned"}
    async with service(settings=settings, judge=judge, logins=logins(users, True, [])) as one:
        await apply(one)
        held = await held_create(one)
        judge.may_answer.clear()
        judge.may_answer.set()
        done = await decide(one, held, "approve", CAROL)
        assert done["topics"]["big.topic"]["code"] == 0


async def test_held_requests_survive_a_restart(users: Users, tmp_path: Path) -> None:
    async with service(logins=logins(users, True, [])) as one:
        await apply(one)
        held = await held_create(one)
        log = one.log
    async with service(log=log, logins=logins(users, True, [])) as one:
        assert [each["request_id"] for each in await pending(one, CAROL)] == [held]
        await decide(one, held, "approve", CAROL)
    async with service(log=log, logins=logins(users, True, [])) as one:
        assert await pending(one, CAROL) == []


async def test_the_page_lists_approves_and_denies(users: Users) -> None:
    async with service(logins=logins(users, True, [])) as one:
        await apply(one)
        approved, denied = await held_create(one), await held_create(one, "other")
        text = (await one.client.get("/approvals", headers={**CAROL, **HTML})).text
        assert text.count("<button>Approve</button>") == 2
        assert "<button>Approve" not in (await one.client.get("/approvals", headers={**ALICE, **HTML})).text
        form = {"do": "approve"}
        answer = await one.client.post(f"/approvals/{approved}", data=form, headers={**CAROL, **from_page(one)})
        assert answer.status_code == 303
        assert "big.topic" in (await one.client.get(answer.headers["location"], headers={**CAROL, **HTML})).text
        form = {"do": "deny", "because": "no"}
        answer = await one.client.post(f"/approvals/{denied}", data=form, headers={**CAROL, **from_page(one)})
        assert answer.status_code == 303
        assert "denies request" in (await one.client.get(answer.headers["location"], headers={**CAROL, **HTML})).text


async def test_approvers_decide_only_topics_of_a_request_that_list_them(users: Users) -> None:
    rules = RULES.replace("partitions = { max = 2 }", 'topics = "b*"\npartitions = { max = 2 }')
    rules += '[[rule]]\nname = "dora"\non = "create"\ntopics = "d*"\nrefuse = "no"\napprove_by = ["User:dora"]\n'
    async with service(logins=logins(users, True, [])) as one:
        await apply(one, rules)
        stamps: dict[str, Any] = {"request_id": RequestId("both"), "at_ms": one.controller.now_ms()}
        names = [TopicName("b"), TopicName("d")]
        ids = one.api.new_topic_ids(2)
        creates = [
            CreateTopic(topic=name, topic_id=each, num_partitions=5, principal="User:alice", **stamps)
            for name, each in zip(names, ids, strict=True)
        ]
        await one.api.submit(creates)
        assert len(await pending(one, ALICE)) == 2
        await decide(one, "both", "deny", CAROL, because="no")
        assert [each["topic"] for each in await pending(one, ALICE)] == ["d"]
        await decide(one, "both", "deny", ALICE, because="withdrawn")
        assert await pending(one, ALICE) == []


async def test_rules_with_approve_by_are_refused_over_kafka(users: Users) -> None:
    async with service(logins=logins(users, True, [])) as one:
        one.api.decides_here = False
        refused = await one.request("POST", "/v1/rules", 400, json={"text": RULES}, headers=CAROL)
        assert refused["message"] == (
            "rule 'big': approve_by: requests cannot wait for approval over Kafka, with gateways and workers; "
            "allowed: rules without it"
        )
        await apply(one, RULES.replace("approve_by", "#"))
        await apply(one, "")
