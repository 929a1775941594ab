"""Style as tests: the machine is pure, deterministic and documented; product files and folders are small."""

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from controller.kafka.api_keys import GENERATED

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "controller" / "machine").rglob("*.py")) + [
    ROOT / "events" / f"{name}.py" for name in ("access", "catalog", "catalog_cluster", "codec", "names", "values")
]
PURE = {
    "__future__", "bisect", "collections", "datetime", "decimal", "difflib", "enum", "fnmatch", "functools",
    "hashlib", "ipaddress", "itertools", "math", "operator", "pathlib", "re", "tomllib", "types", "typing", "zlib",
}  # fmt: skip
"""Standard library modules that the machine may import: none reads a clock, draws random values or does I/O."""
ALSO = {
    "controller/machine/configs/topic_configs.py": {"importlib.resources"},  # reads constant tables of the package
    "controller/machine/configs/groups.py": {"importlib.resources"},
    "controller/machine/rules/expression.py": {"logging"},  # silences the CEL library
}
OURS = {
    "cel", "controller.machine", "controller.patterns", "events.access", "events.catalog", "events.catalog_cluster",
    "events.codec", "events.errors", "events.names", "events.values",
}  # fmt: skip
PRODUCT = sorted(
    {path for top in ("controller", "events", "projections") for path in (ROOT / top).rglob("*.py")} - {*GENERATED}
)
FILE_LINES_MAX, FUNCTION_LINES_MAX, FOLDER_FILES_MAX = 400, 70, 16
DRAWS = {
    "now", "utcnow", "today", "time", "monotonic", "random", "uuid4", "uuid1", "urandom", "id", "hash", "open", "print",
}  # fmt: skip
"""Calls whose results are not deterministic, or that do I/O."""

modules = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _imports_of(tree: ast.Module) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module, "a relative import"
            names |= {f"events.{each.name}" for each in node.names} if node.module == "events" else {node.module}
    return names


@modules
def test_machine_imports_only_pure_modules(path: Path) -> None:
    for name in _imports_of(_tree(path)) - ALSO.get(str(path.relative_to(ROOT)), set()):
        top = name.split(".")[0]
        ours = any(name == one or name.startswith(f"{one}.") for one in OURS)
        assert ours or top == "msgspec" or (top in PURE and top in sys.stdlib_module_names), f"imports {name}"


@modules
def test_machine_calls_no_clock_or_randomness(path: Path) -> None:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            assert called not in DRAWS, f"line {node.lineno}: {called}()"


@modules
def test_machine_does_not_iterate_over_sets(path: Path) -> None:
    """The order of a set differs between processes. Sets are for lookups, or are sorted first."""
    for node in ast.walk(_tree(path)):
        loops = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {
            "tuple",
            "list",
            "next",
            "iter",
            "enumerate",
        }:
            loops += node.args[:1]
        for iterated in loops:
            assert not _is_set(iterated), f"line {iterated.lineno}: iterates over a set"


def _is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", "") in {"set", "frozenset"}
    return isinstance(node, ast.Set | ast.SetComp)


@modules
def test_modules_have_docstrings(path: Path) -> None:
    assert ast.get_docstring(_tree(path)), "the module has no docstring"


@modules
def test_values_are_frozen(path: Path) -> None:
    """State, commands and events are immutable, so every struct is declared frozen."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ClassDef):
            struct = any(
                "Struct" in ast.unparse(base) or ast.unparse(base) in {"Fact", "Command", "TopicCommand"}
                for base in node.bases
            )
            frozen = any(key.arg == "frozen" and ast.unparse(key.value) == "True" for key in node.keywords)
            assert not struct or frozen, f"{node.name} is not frozen"


def test_files_and_functions_are_small() -> None:
    long = []
    for path in PRODUCT:
        tree, name = _tree(path), path.relative_to(ROOT)
        lines = path.read_text().count("\n")
        long += [f"{name} has {lines} lines"] if lines > FILE_LINES_MAX else []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                long += [f"{name}: {node.name} has {lines} lines"] if lines > FUNCTION_LINES_MAX else []
    assert not long, long


def test_folders_are_small() -> None:
    sizes = Counter(str(path.parent.relative_to(ROOT)) for path in PRODUCT if path.name != "__init__.py")
    large = {folder: count for folder, count in sizes.items() if count > FOLDER_FILES_MAX}
    assert not large
