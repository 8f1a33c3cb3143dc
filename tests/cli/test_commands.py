"""The list of commands: what it shows, and what it costs to show it."""

import inspect
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prbench.cli import COMMANDS, load_command

NAMES = [name for commands in COMMANDS.values() for name in commands]
# Flags whose default depends on the command; whatever the default, the flag means the same.
DEFAULTS_DIFFER = {
    *("--data", "--dtype", "--html", "--judge", "--limit", "--max-failed", "--max-new-tokens", "--model", "--out"),
    *("--planner", "--policy", "--port", "--rank", "--seed", "--temperature"),
}
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


def every_command() -> Iterator[tuple[str, Any]]:
    """Every command and subcommand, with what one types for it."""
    for name in NAMES:
        command = load_command(name)
        yield name, command
        yield from ((f"{name} {part}", each) for part, each in getattr(command, "commands", {}).items())


def options_of(command: Any) -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        yield from ((flag, parameter) for flag in parameter.opts if flag.startswith("-"))


def test_a_flag_means_the_same_in_every_command() -> None:
    meanings: dict[str, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
    defaults: dict[str, set[str]] = defaultdict(set)
    for place, command in every_command():
        for flag, option in options_of(command):
            meaning = option.help, option.min, option.max, option.is_flag, option.rich_help_panel
            meanings[flag][meaning].append(place)
            defaults[flag].add(str(option.default))
    assert len(meanings) > 100
    assert not {flag: dict(found) for flag, found in meanings.items() if len(found) > 1}
    assert {flag for flag, found in defaults.items() if len(found) > 1} == DEFAULTS_DIFFER


def test_every_option_says_what_it_is() -> None:
    assert not [(place, flag) for place, each in every_command() for flag, one in options_of(each) if not one.help]


@pytest.mark.parametrize("place", [place for place, _ in every_command()])
def test_h_is_help_everywhere_and_shows_an_example(prbench: Callable[..., Any], place: str) -> None:
    ended = prbench(*place.split(), "-h")
    assert (ended.code, ended.err) == (0, "")
    assert f"prbench {place} " in ended.out
    assert "Example: " in ended.out or place in ("annotate", "data")


def completed(*words: str) -> list[str]:
    """What a shell offers for the last of some words."""
    asked = {"_PRBENCH_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    code = "import sys; sys.argv[0] = 'prbench'; from prbench.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **asked})
    return done.stdout.split()


def test_a_shell_completes_commands_and_options(prbench: Callable[..., Any]) -> None:
    assert completed("prbench", "ev") == ["eval", "eval-planner"]
    assert completed("prbench", "data", "") == ["check", "convert", "lab", "forget"]
    assert completed("prbench", "ppo", "--kl") == ["--kl-coefficient", "--kl-budget"]
    assert "--show-completion" in prbench("--help").out
    assert "--show-completion" not in prbench("eval", "--help").out


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
