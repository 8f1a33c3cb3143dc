"""Every recorded value is compared by a test: one that nobody reads any more would look like a promise."""

import ast
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
from tests.golden.conftest import VALUES, differences

HERE = Path(__file__).parent
Test = Callable[..., None]


def modules() -> Iterator[ModuleType]:
    """All files of the suite but this one."""
    for path in sorted(HERE.rglob("test_*.py")):
        if path != Path(__file__):
            yield import_module(".".join(["tests", "golden", *path.relative_to(HERE).with_suffix("").parts]))


def cases(test: Test) -> Iterator[dict[str, Any]]:
    """The parameters of every case of a test."""
    choices = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names = mark.args[0].replace(" ", "").split(",")
            rows = [row.values if isinstance(row, type(pytest.param())) else row for row in mark.args[1]]
            choices.append([dict(zip(names, row if len(names) > 1 else [row], strict=True)) for row in rows])
    for chosen in product(*choices):
        yield {name: value for part in chosen for name, value in part.items()}


def names(module: ModuleType, test: Test) -> Iterator[str]:
    """The values that a test compares; a name is written out of the parameters of its case."""
    calls = [
        node
        for node in ast.walk(ast.parse(dedent(inspect.getsource(test))))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "golden"
    ]
    for call in calls:
        name = compile(ast.Expression(call.args[0]), inspect.getfile(test), "eval")
        for case in cases(test):
            yield eval(name, {**vars(module), **case})


def test_every_recorded_value_is_compared() -> None:
    compared = {
        name
        for module in modules()
        for label, test in vars(module).items()
        if label.startswith("test_")
        for name in names(module, test)
    }
    assert compared == {path.stem for path in VALUES.iterdir()}


@pytest.mark.parametrize(
    "recorded,found", [(1, True), (False, 0), (1.0, "1.0"), (None, 0), ([1], [1, 2]), (1.0, 1.0001)]
)
def test_what_is_not_the_same_is_told(recorded: Any, found: Any) -> None:
    assert len(list(differences({"a": recorded}, {"a": found}, "value"))) == 1


@pytest.mark.parametrize("recorded,found", [(True, True), (1, 1.0), (0.1 + 0.2, 0.3), (1e-12, 0.0), ("a", "a")])
def test_what_differs_in_the_last_digits_is_the_same(recorded: Any, found: Any) -> None:
    assert not list(differences([recorded], [found], "value"))
