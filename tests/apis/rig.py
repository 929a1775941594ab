"""An in-memory controller with simulated brokers, called through the handlers of its listeners."""

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from controller.access.authorizer import StandardAuthorizer
from controller.apis.tables import HandlerTable, broker_listener, controller_listener
from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.kafka.codec import codec
from controller.kafka.handling import ClientConnection, RequestContext, Session
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from controller.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from controller.machine.configs.changes import OpType
from events.catalog import Endpoint
from events.codec import decode_event
from tests.support.memory_log import InMemoryLog

ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
_clock = itertools.count(1_700_000_000_000)
E = TypeVar("E")


def read_back(key: int, version: int, answer: Message) -> Any:
    """Encodes a response and decodes it again, as a client does."""
    return codec.decode_response(key, version, codec.encode_response(key, version, 1, answer)[4:])[1]


class Unheard:
    """Discards log lines and metrics."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Rig:
    """One controller and its listeners."""

    def __init__(self, log: InMemoryLog, controller: Controller, api: ControllerApi, brokers: SimulatedBrokers) -> None:
        self.log = log
        self.controller = controller
        self.api = api
        self.brokers = brokers
        self.listener: HandlerTable = controller_listener(api)
        self.broker: HandlerTable = broker_listener(api, 1)

    async def call(self, key: int, version: int, request: Message, principal: str = "User:ANONYMOUS") -> Any:
        """Returns the response, or raises the handler's error."""
        return await self._call(self.listener, key, version, request, principal)

    async def create(self, *names: str, principal: str = "User:ANONYMOUS", **more: Any) -> Any:
        """Create topics, by default of one partition and one replica; returns their results."""
        each = {"num_partitions": 1, "replication_factor": 1, **more}
        topics = tuple(CreatableTopic(name=name, **each) for name in names)
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        return (await self.call(ApiKey.CREATE_TOPICS, 7, request, principal)).topics

    async def describe_configs(self, kind: int, name: str, *keys: str, principal: str = "User:ANONYMOUS") -> Any:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
        request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
        (result,) = (await self.call(ApiKey.DESCRIBE_CONFIGS, 4, request, principal)).results
        return result

    async def alter_configs(
        self,
        kind: int,
        name: str,
        *steps: tuple[str, OpType, str | None],
        dry: bool = False,
        principal: str = "User:ANONYMOUS",
    ) -> tuple[int, str | None]:
        """Alter configs of one resource incrementally; returns the error code and message."""
        configs = tuple(AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in steps)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=dry)
        (done,) = (await self.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, principal)).responses
        return done.error_code, done.error_message

    def events(self, kind: type[E]) -> list[E]:
        """The durable events of a type."""
        events = (decode_event(*pair).event for pair in self.log.read())
        return [event for event in events if isinstance(event, kind)]

    async def call_broker(self, key: int, version: int, request: Message, principal: str = "User:ANONYMOUS") -> Any:
        return await self._call(self.broker, key, version, request, principal)

    async def _call(self, table: HandlerTable, key: int, version: int, request: Message, principal: str) -> Any:
        connection = ClientConnection(session=Session(principal=principal))
        answer: Any = table[key].handle(RequestContext(key, version, connection=connection), request)
        return await answer if inspect.isawaitable(answer) else answer


@asynccontextmanager
async def rig(
    settings: Mapping[str, str] | None = None,
    *,
    brokers: int = 3,
    authorizer: StandardAuthorizer | None = None,
    broker_listeners: bool = False,
    endpoint: Endpoint = ENDPOINT,
) -> AsyncIterator[Rig]:
    """Yields a started controller, and stops it at the end."""
    log = InMemoryLog("cluster-of-the-test")

    async def flush() -> None:
        log.flush()
        await asyncio.sleep(0)  # a real flush yields to the loop

    simulated = SimulatedBrokers(brokers)
    simulated.default_endpoints = (endpoint,)
    reports = Reports(Unheard(), lambda lines: None, Unheard())
    controller = Controller(log, simulated, boot_id="boot", clock_ms=lambda: next(_clock), flush=flush, reports=reports)
    api = ControllerApi(
        controller, node_id=0, advertised=endpoint, authorizer=authorizer, broker_listeners=broker_listeners
    )
    await controller.start(tuple(sorted((settings or {}).items())), "1.0")
    await controller.decided()
    try:
        yield Rig(log, controller, api, simulated)
    finally:
        await controller.stop()
        log.close()
