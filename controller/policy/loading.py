"""Loads what the operator configures about policies: policy classes as a chain, and files of rules.

`create.topic.policy.class.name` and `alter.config.policy.class.name` name the classes. A name is `module.Class`;
several are separated by commas and called in this order. Modules are imported from Python's path (including
PYTHONPATH), then from the working folder, so that a file there cannot replace a module of the standard library. Classes
are checked at the start, not when the first client creates a topic. Errors name what is allowed.

Files of rules for topic changes (docs/policies.md) are read for the server and for replays with other rules.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from controller.machine.rules.reading import BYTES_MAX, new_rules
from controller.machine.rules.rule import RulesError
from controller.machine.state import POLICY_HASH_PREFIX
from controller.policy.chain import LoadedPolicy, PolicyChain, close_all, error_text
from events.errors import UserError
from events.logs.log import read_text

SETTING = "create.topic.policy.class.name"
ALTER_SETTING = "alter.config.policy.class.name"


class PolicyLoadError(UserError):
    """A policy cannot be used, or is missing; the message has its name, the problem and what is allowed."""

    def __init__(self, class_name: str, problem: str, allowed: str = "") -> None:
        super().__init__(f"policy '{class_name}': {problem}" + (f"; {allowed}" if allowed else ""))


_CALLS: Mapping[str, str] = {"configure": "configure(settings)", "validate": "validate(request)", "close": "close()"}
"""The calls of a policy's methods; only `validate` is required."""
_METHODS = "a policy has validate(request), and may have configure(settings) and close()"


def load_policies(class_names: str, settings: Mapping[str, str], of_configs: str = "") -> PolicyChain:
    """Imports, instantiates and configures the policies for new topics and those `of_configs`, each a comma-separated
    list. Empty lists make an empty chain.

    `configure` of each policy receives all `settings`, read-only. If a policy cannot be used, those already configured
    are closed. Raises PolicyLoadError.
    """
    loaded: dict[str, list[LoadedPolicy]] = {SETTING: [], ALTER_SETTING: []}
    for setting, names in ((SETTING, class_names), (ALTER_SETTING, of_configs)):
        try:
            with _working_folder_importable():
                classes = [(name, _find(name)) for name in _split(names)]
                own = MappingProxyType(dict(settings))
                loaded[setting].extend(_configured(name, found, own) for name, found in classes)
        except BaseException as error:
            close_all([*loaded[SETTING], *loaded[ALTER_SETTING]])
            if isinstance(error, PolicyLoadError):
                error.args = (f"{setting}: {error}",)
            raise
    return PolicyChain(loaded[SETTING], loaded[ALTER_SETTING])


def source_hashes(class_names: str) -> dict[str, str]:
    """Returns the SHA-256 of the source of the module of each class in a comma-separated list, as hex digits under
    POLICY_HASH_PREFIX and the name; "" if there is no source. Imports only the packages of the modules."""
    importlib.invalidate_caches()
    with _working_folder_importable():
        return {
            f"{POLICY_HASH_PREFIX}{name}": _source_hash(name.rpartition(".")[0])
            for each in class_names.split(",")
            if (name := each.strip())
        }


def _source_hash(module_name: str) -> str:
    try:
        spec = importlib.util.find_spec(module_name)
        source = spec.loader.get_source(module_name)  # type: ignore[union-attr]  # caught below
        return hashlib.sha256(source.encode()).hexdigest() if source else ""
    except KeyboardInterrupt:
        raise
    except BaseException:  # also of the operator's packages; loading the policies reports it
        return ""


def _split(class_names: str) -> tuple[str, ...]:
    if not class_names.strip():
        return ()
    names = tuple(name.strip() for name in class_names.split(","))
    for index, name in enumerate(names):
        parts = name.split(".")
        if len(parts) < 2 or not all(part.isidentifier() for part in parts):
            raise PolicyLoadError(name, f"is not a class name in '{class_names}'", _where())
        if name in names[:index]:
            raise PolicyLoadError(name, f"is named twice in '{class_names}'", "each policy is allowed once")
    return names


def _find(name: str) -> Any:
    module_name, _, attribute = name.rpartition(".")
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            raise PolicyLoadError(name, f"there is no module '{missing}'", _where()) from error
        allowed = "a policy's module may import what is installed with the controller"
        raise PolicyLoadError(name, f"importing '{module_name}' raised {error_text(error)}", allowed) from error
    if not hasattr(module, attribute):
        origin = getattr(module, "__file__", None) or "built in"
        raise PolicyLoadError(name, f"module '{module_name}' ({origin}) has no '{attribute}'", _where())
    return getattr(module, attribute)


def _configured(name: str, found: Callable[[], object], settings: Mapping[str, str]) -> LoadedPolicy:
    policy = _called(name, "its constructor", found, "the constructor takes no arguments")
    configure, validate, close = (_method(name, policy, method) for method in _CALLS)
    assert validate is not None, "a required method is there or an error was raised"
    if configure is not None:
        _called(name, "configure", lambda: configure(settings))
    return LoadedPolicy(name=name, validate=validate, close=close)


def _called(name: str, what: str, call: Callable[[], object], allowed: str = "") -> object:
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PolicyLoadError(name, f"{what} raised {error_text(error)}", allowed) from error


def _method(name: str, policy: object, method: str) -> Callable[..., object] | None:
    """Returns the bound method after checking its signature; None for a missing optional method."""
    bound = getattr(policy, method, None)
    if bound is None and method != "validate":
        return None
    if not callable(bound):
        raise PolicyLoadError(name, f"its '{method}' is of type {type(bound).__name__}, not a method", _METHODS)
    if inspect.iscoroutinefunction(bound) or inspect.isgeneratorfunction(bound) or inspect.isasyncgenfunction(bound):
        raise PolicyLoadError(
            name, f"its '{method}' is async or a generator", f"{_CALLS[method]} must be a plain method"
        )
    with suppress(ValueError):  # written in C without a signature, so it cannot be checked before a call
        signature = inspect.signature(bound)
        try:
            signature.bind(*(() if method == "close" else (method,)))
        except TypeError:
            problem = f"its '{method}{signature}' cannot be called as {_CALLS[method]}"
            raise PolicyLoadError(name, problem, _METHODS) from None
    return cast("Callable[..., object]", bound)


@contextmanager
def _working_folder_importable() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        yield
    finally:
        # Search from the end, because a policy's module may have added its own entries to the path; they stay.
        for index in range(len(sys.path) - 1, -1, -1):
            if sys.path[index] == folder:
                del sys.path[index]
                break


def _where() -> str:
    return (
        "allowed: module.Class, a Python class on PYTHONPATH or in the working folder "
        f"{os.getcwd()}, several separated by commas"
    )


def rules_text(path: Path) -> str:
    """Returns the text of a file without a byte order mark; the rules are not checked. Raises RulesError."""
    try:
        return read_text(path, BYTES_MAX).removeprefix("\ufeff")
    except OSError as error:
        problem = RulesError(f"cannot be read: {error.strerror}", "a TOML file of rules")
    except UnicodeDecodeError as error:
        problem = RulesError(f"is not UTF-8 at byte {error.start}", "TOML in UTF-8")
    raise problem.in_file(path)


def checked_file(path: Path) -> str:
    """Returns the text of a file after checking its rules. Raises RulesError, which names the file."""
    text = rules_text(path)
    try:
        new_rules(text)
    except RulesError as error:
        raise error.in_file(path) from None
    return text
