"""Kafka's messages as plain values: one class for all versions of an entity, one module for a family of APIs.

The modules are written by `controller.kafka.generate`. To add an API: a row of `ApiKey` in `controller.kafka.api_keys`,
and names in `RENAMED` if its entities' names are taken.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

import msgspec

from controller.kafka.api_keys import FAMILIES, GENERATED, ApiKey
from controller.kafka.messages.message import OPERATIONS_OMITTED, Encoded, Message
from controller.kafka.schema import ZERO_UUID

__all__ = ["APIS", "CLASSES", "OPERATIONS_OMITTED", "ZERO_UUID", "Api", "ApiKey", "Encoded", "Message"]

if not all(path.exists() for path in GENERATED):  # in a checkout that was not built
    import_module("controller.kafka.generate").generate()
_FAMILIES: Final = {family: vars(import_module(f"{__name__}.{family}")) for family in FAMILIES}

CLASSES: Final[Mapping[str, type[Message]]] = {
    name: value
    for family in _FAMILIES.values()
    for name, value in family.items()
    if isinstance(value, type) and issubclass(value, Message)
}
"""Every message class by its name."""


class Api(msgspec.Struct, frozen=True):
    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int


APIS: Final[Mapping[int, Api]] = {
    key: Api(key, name, CLASSES[f"{name}Request"], CLASSES[f"{name}Response"], key.min_version, key.max_version)
    for key in ApiKey
    for name in (key.api_name,)
}
"""Every supported API, by key."""
