"""The list of commands: what it shows, and what it costs to show it."""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from prbench.cli import COMMANDS, load_command

NAMES = [name for commands in COMMANDS.values() for name in commands]
# Runs the command line given, then prints as JSON which modules are loaded.
LOADED = """
import atexit, json, sys
sys.argv[0] = "prbench"
atexit.register(lambda: print("\\n" + json.dumps(sorted(sys.modules))))
from prbench.cli import main
main()
"""
SLOW = {"torch", "transformers", "datasets", "peft", "trl", "openai", "httpx", "xllamacpp", "ray", "pandas", "fastapi"}
CORE = {"pydantic", "yaml", "numpy", "scipy", "sklearn", "statsmodels", "pyarrow", "jinja2", "bm25s", "sqlite3"}


def loaded_by(*args: str) -> set[str]:
    """The modules that a call of the command line has loaded when it ends."""
    done = subprocess.run([sys.executable, "-c", LOADED, *args], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "prbench"}


def test_the_version_loads_next_to_nothing() -> None:
    modules = loaded_by("--version")
    assert len(ours(modules)) < 20
    assert not modules & (SLOW | CORE | {"rich"})


def test_help_loads_no_command() -> None:
    modules = loaded_by("--help")
    assert len(ours(modules)) < 20
    assert not modules & (SLOW | CORE)
    assert not {name for name in modules if name.startswith("prbench.cli.")}


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_a_command_loads_no_backend_and_no_other_command(name: str) -> None:
    modules = loaded_by(name, "--help")
    assert not modules & SLOW
    assert len(ours(modules)) <= 160
    commands = {module for module in modules if module.startswith("prbench.cli.")} - {"prbench.cli.options"}
    assert len(commands) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_list_shows_the_first_line_of_each_command(name: str) -> None:
    (line,) = [commands[name] for commands in COMMANDS.values() if name in commands]
    command = load_command(name)
    assert command.name == name
    assert inspect.cleandoc(command.help).splitlines()[0] == line


def test_help_lists_every_command_in_its_panel(prbench: Callable[..., Any]) -> None:
    out = prbench("--help").out
    places = [out.index(f" {title} ") for title in COMMANDS]
    assert places == sorted(places)
    for name in NAMES:
        assert f"\n│ {name} " in out


def test_without_arguments_it_shows_the_help_and_no_empty_error(prbench: Callable[..., Any]) -> None:
    ended = prbench()
    assert ended.code == 2
    assert "Usage" in ended.out
    assert ended.err == ""


def test_a_mistyped_command_names_the_nearest(prbench: Callable[..., Any]) -> None:
    ended = prbench("evall", "--model", "control:longest")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "prbench: No such command 'evall'. Did you mean 'eval'?\n"
    assert "'create'" in prbench("annotate", "creat").err


def test_both_spellings_of_an_option_are_one(prbench: Callable[..., Any]) -> None:
    for option in ("--skip_bad_rows", "--skip-bad-rows"):
        for command in (["eval", "--model", "control:longest"], ["annotate", "create", "project.db"]):
            assert "'--skip-bad-rows'" in prbench(*command, option, "-1").err
