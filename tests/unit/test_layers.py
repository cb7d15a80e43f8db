"""The import graph: no circle, and no arrow from `core/` or a station upwards. docs/architecture.md says what lives where."""

import ast
from pathlib import Path

import pytest

import feedlab

ROOT = Path(feedlab.__file__).parent
STATIONS = "posts follows outbox relay kafka fanout timeline celebrities pull reader repair controller".split()
GROUND = "addresses atomic config db errors".split()  # what the stations stand on


def modules() -> dict[str, Path]:
    """Dotted name below feedlab -> file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def arrows(name: str, path: Path, known) -> set[str]:
    """Modules that one imports, wherever in it the import stands."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package, found = [p for p in package if p], set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
        elif (node.module or "").split(".")[0] == "feedlab":
            base = node.module.split(".")[1:]
        else:
            continue
        for alias in node.names:
            deeper = ".".join([*base, alias.name])
            found.add(deeper if deeper in known else ".".join(base))
    return found - {name}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: arrows(name, path, known) for name, path in known.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle, or nothing."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return way[way.index(name):]
        if name in done:
            return []
        for below in sorted(graph.get(name, ())):
            if found := walk(below, [*way, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := walk(name, []))), [])


def test_no_circle(graph):
    assert len(graph) > 100
    assert circle(graph) == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_core_is_pure(graph):
    """core/ imports itself and the errors, and no engine's client."""
    core = {name for name in graph if name == "core" or name.startswith("core.")}
    assert len(core) > 5
    assert {(name, below) for name in core for below in graph[name] if below not in core | {"errors"}} == set()
    clients = {"psycopg", "psycopg_pool", "redis", "confluent_kafka", "valkey"}
    for name in core:
        for node in ast.walk(ast.parse(modules()[name].read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not clients & {n.split(".")[0] for n in names}, name


def test_stations_import_nothing_above_them(graph):
    """A station knows core, the ground and other stations: no supervisor, no lab, no command."""
    for name in [*STATIONS, *GROUND]:
        above = {below for below in graph[name] if below.split(".")[0] not in {"core", *STATIONS, *GROUND}}
        assert not above, f"{name} imports {sorted(above)}"
