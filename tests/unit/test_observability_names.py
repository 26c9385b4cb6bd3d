"""Names: those of the conventions are the installed ones, and nobody spells one elsewhere."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv.attributes as stable
import pytest
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from longstride.observability import names

ROOT = Path(__file__).parents[2]
SPELLED_HERE = ROOT / "libs/longstride/observability/names.py"
SOURCES = sorted(
    path for folder in ("libs/longstride", "services") for path in (ROOT / folder).rglob("*.py") if path != SPELLED_HERE
)
CONSTANTS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
CONVENTIONS = ("gen_ai.", "messaging.", "exception.", "error.", "service.")
SPAN_MAKERS = {"span", "finished_span"}


def installed_attributes() -> frozenset[str]:
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in (incubating, stable)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    return frozenset(
        value for module in modules for name, value in vars(module).items() if name.isupper() and isinstance(value, str)
    )


INSTALLED = installed_attributes() | {
    value for name, value in vars(gen_ai_metrics).items() if name.isupper() and isinstance(value, str)
}


@pytest.mark.parametrize("name", sorted(value for value in CONSTANTS.values() if value.startswith(CONVENTIONS)))
def test_a_convention_s_name_is_one(name: str) -> None:
    assert name in INSTALLED


def test_ours_have_our_prefix() -> None:
    dotted = {value for value in CONSTANTS.values() if "." in value}
    assert {value for value in dotted if not value.startswith((*CONVENTIONS, "longstride."))} == set()


def test_no_name_means_two_things() -> None:
    assert len(set(CONSTANTS.values())) == len(CONSTANTS)


def test_content_is_what_the_conventions_warn_about() -> None:
    opt_in = {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"}
    opt_in |= {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.evaluation.explanation"}
    assert opt_in == names.CONTENT


def test_names_are_spelled_in_one_place() -> None:
    found = {str(path.relative_to(ROOT)): list(misspelled(ast.parse(path.read_text(), str(path)))) for path in SOURCES}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def misspelled(tree: ast.Module) -> Iterator[str]:
    """Attribute names as literals, names made elsewhere, and spans whose name does not come from ``names``."""
    dotted = {value for value in CONSTANTS.values() if "." in value}
    known = names_in_scope(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in dotted:
            yield f"line {node.lineno}: {node.value!r} as a literal"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("SpanName", "Attribute", "MetricName"):
                yield f"line {node.lineno}: a name is made here"
            if called in SPAN_MAKERS and "span" in known and not is_name(node.args[0], known):
                yield f"line {node.lineno}: {ast.unparse(node.args[0])} is no name of a span"
            if called in ("set_attribute", "set_attributes") and not all(is_key(key, known) for key in keys_of(node)):
                yield f"line {node.lineno}: {ast.unparse(node)} has a key of its own"
            for given in node.keywords:
                if given.arg == "attributes" and called in SPAN_MAKERS | {"root"} and isinstance(given.value, ast.Dict):
                    yield from (
                        f"line {node.lineno}: key {ast.unparse(k)}" for k in given.value.keys if not is_key(k, known)
                    )


def names_in_scope(tree: ast.Module) -> set[str]:
    """What the module imports from the observability package, constants and functions alike."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("longstride.observability")
        for alias in node.names
    }


def is_name(node: ast.expr, known: set[str]) -> bool:
    """``names.CHAT``, or ``CHAT`` imported from there."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "names" and node.attr in CONSTANTS
    return isinstance(node, ast.Name) and node.id in CONSTANTS and node.id in known


def is_key(node: ast.expr | None, known: set[str]) -> bool:
    """A name, or ``**more``."""
    return node is None or is_name(node, known)


def keys_of(call: ast.Call) -> list[ast.expr | None]:
    """The keys that ``span.set_attribute(key, …)`` or ``set_attributes(span, {key: …})`` sets, where they are written out."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "set_attribute":
        return [call.args[0]]
    return [key for arg in call.args if isinstance(arg, ast.Dict) for key in arg.keys]


@pytest.mark.parametrize(
    "source",
    [
        'from longstride.observability.spans import span\nwith span("chat"): pass',
        "from longstride.observability.spans import span\nwith span(names.NO_SUCH): pass",
        'from longstride.observability.spans import span\nwith span(names.CHAT, attributes={"x": 1}): pass',
        'current.set_attribute("gen_ai.tool.name", "shell")',
        'NAME = Attribute("mine")',
        'TOOL = "gen_ai.tool.name"',
    ],
)
def test_the_scan_sees(source: str) -> None:
    assert list(misspelled(ast.parse(source)))
