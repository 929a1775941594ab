"""AlterClientQuotas and DescribeClientQuotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from controller.apis.acls import DENIED, details_of
from controller.apis.limits import in_turns, slices
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages import access
from controller.machine.access.quotas import CLIENT_ID, IP, USER, sorted_entity
from controller.machine.commands.access import AlterClientQuotas, QuotaAlteration
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode, Rejection
from events.access import QuotaEntity

ENTITIES_PER_SLICE = 500
"""Entities of a long request or response that are processed at once."""
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""Match types of a filter component."""


async def alter_client_quotas(
    api: ControllerApi, context: RequestContext, request: access.AlterClientQuotasRequest
) -> access.AlterClientQuotasResponse:
    """Change the quotas of each entity; needs AlterConfigs on the cluster."""
    is_granted = api.grants(context, "AlterConfigs")
    details = await _alter_in_slices(api, context, request) if is_granted else [DENIED] * len(request.entries)
    return access.AlterClientQuotasResponse(
        entries=tuple(
            access.AlteredEntryData(error_code=each.code, error_message=each.message or None, entity=entry.entity)
            for each, entry in zip(details, request.entries, strict=True)
        )
    )


async def _alter_in_slices(
    api: ControllerApi, context: RequestContext, request: access.AlterClientQuotasRequest
) -> Sequence[Detail]:
    """Submit one command for each slice. Entries of the same entity stay together, because that is an error."""
    together: dict[QuotaEntity, list[int]] = {}
    for number, entry in enumerate(request.entries):
        together.setdefault(sorted_entity(_entity(entry)), []).append(number)
    details = [Detail()] * len(request.entries)
    for entities in slices(list(together.values()), ENTITIES_PER_SLICE):
        numbers = list(chain.from_iterable(entities))
        in_slice = replace(request, entries=tuple(request.entries[number] for number in numbers))
        for number, detail in zip(numbers, await _alter(api, context, in_slice), strict=True):
            details[number] = detail
    return details


async def _alter(
    api: ControllerApi, context: RequestContext, request: access.AlterClientQuotasRequest
) -> Sequence[Detail]:
    controller = api.controller
    command = AlterClientQuotas(
        request_id=controller.new_request_id(),
        at_ms=controller.now_ms(),
        principal=context.principal,
        client_id=context.client_id,
        host=context.host,
        alterations=tuple(
            QuotaAlteration(
                _entity(entry),
                tuple((op.key, None if op.remove else op.value) for op in entry.ops),
            )
            for entry in request.entries
        ),
        validate_only=request.validate_only,
    )
    return details_of(await api.submit_cluster(command), len(request.entries))


def _entity(entry: access.EntryData) -> QuotaEntity:
    return tuple((part.entity_type, part.entity_name) for part in entry.entity)


async def describe_client_quotas(
    api: ControllerApi, context: RequestContext, request: access.DescribeClientQuotasRequest
) -> access.DescribeClientQuotasResponse:
    """The entities that match all components; with `strict` those without other parts."""
    if not api.grants(context, "DescribeConfigs"):
        return _refused(DENIED.code, DENIED.message)
    wrong = _filter_error(request.components)
    if wrong is not None:
        return _refused(int(wrong.code), wrong.message)
    quotas = api.cluster.quotas
    entities = sorted(quotas, key=lambda one: [(kind, name or "") for kind, name in one])

    def entries(of: Sequence[QuotaEntity]) -> list[access.DescribedEntryData]:
        return [_entry(entity, quotas[entity]) for entity in of if _matches(dict(entity), request)]

    found = await in_turns(api, context, entities, ENTITIES_PER_SLICE, entries)
    return access.DescribeClientQuotasResponse(entries=found)


def _refused(code: int, message: str) -> access.DescribeClientQuotasResponse:
    return access.DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _matches(entity: dict[str, str | None], request: access.DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    return all(
        one.entity_type in entity and (one.match_type == SPECIFIED or entity[one.entity_type] == one.match)
        for one in request.components
    )


def _entry(entity: QuotaEntity, values: tuple[tuple[str, float], ...]) -> access.DescribedEntryData:
    return access.DescribedEntryData(
        entity=tuple(access.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(access.ValueData(key=key, value=value) for key, value in values),
    )


def _filter_error(components: Sequence[access.ComponentData]) -> Rejection | None:
    """Kafka's validation of filters (ClientQuotasImage.describe)."""
    seen: set[str] = set()
    for one in components:
        wrong = _component_error(one, seen)
        if wrong is not None:
            return wrong
        seen.add(one.entity_type)
    if IP in seen and len(seen) > 1:
        return _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return None


def _component_error(one: access.ComponentData, seen: set[str]) -> Rejection | None:
    if not one.entity_type:
        return _invalid("Invalid empty entity type.")
    if one.entity_type in seen:
        return _invalid(f"Entity type {one.entity_type} cannot appear more than once in the filter.")
    if one.entity_type not in (USER, CLIENT_ID, IP):
        message = f"Unsupported entity type {one.entity_type}"
        return Rejection(ErrorCode.UNSUPPORTED_VERSION, message, "validation:quota-filter")
    if one.match_type == EXACT and one.match is None:
        return _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if one.match_type == DEFAULT and one.match is not None:
        return _invalid("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
    if one.match_type == SPECIFIED and one.match is not None:
        return _invalid("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
    if one.match_type not in (EXACT, DEFAULT, SPECIFIED):
        return _invalid(f"Unknown match type {one.match_type}")
    return None


def _invalid(message: str) -> Rejection:
    return Rejection(ErrorCode.INVALID_REQUEST, message, "validation:quota-filter")
