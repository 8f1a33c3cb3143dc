"""Write docs/reference/cli.md from the commands' own help, and docs/reference/api.md from docstrings.

`make docs` runs it, and a test fails where a committed page differs from what it makes.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

REFERENCE = Path(__file__).parent / "reference"
MODULES = {  # documented modules, and which of their names; none: what `__all__` says
    "prbench": (),
    "prbench.construction.build": (),
    "prbench.construction.check": ("check_dataset", "Audit", "CheckFinding"),
    "prbench.construction.privacy": ("redact", "clean_row"),
    "prbench.construction.privacy.pseudonyms": ("Pseudonyms", "load_pseudonyms", "rename_people"),
    "prbench.people.annotate": ("create", "Store"),
    "prbench.people.agreement": (),
    "prbench.people.forget": ("forget", "Forgotten"),
    "prbench.insight.diagnose": ("diagnose", "Diagnosis", "write_label_next"),
    "prbench.insight.meta": (),
    "prbench.insight.planner_evaluation": ("measure_planner", "PlannerSettings"),
    "prbench.serve.server": ("RewardServer",),
    "prbench.serve.settings": ("ServeSettings",),
    "prbench.judging": ("Judge", "Grade", "judge_for"),
    "prbench.registry": ("Kind", "Usage", "Table"),
}
CLI_HEAD = """# Command line

Every command with its options, as `--help` prints them (this page is made from it by `make docs`). An option may be
written with `-` or `_`. `-h` is short for `--help`. `--config FILE` reads options from YAML or JSON. Exit codes are in
[Runs and reports](runs.md#exit-codes).
"""
API_HEAD = """# Python

What `import prbench` shows, and the documented modules one import deeper (this page is made from their docstrings by
`make docs`). Data is a path, a hub id, `lab`, or rows; a model is a [spec](reward-models.md#naming-one) or any object
of yours. Modules that are not named here may change in any release.
"""


def cli_page() -> str:
    """Return the reference of the command line."""
    from prbench.cli import COMMANDS, load_command

    parts, listed = [], []
    for panel, commands in COMMANDS.items():
        rows = [f"| [{name}](#prbench-{name}) | {cell(line)} |" for name, line in commands.items()]
        listed.append("\n".join([f"| {panel} | |", "| --- | --- |", *rows]))
        for name in commands:
            parts += _command(f"prbench {name}", load_command(name))
    parts = [CLI_HEAD, *listed, *parts]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _command(name: str, command: Any) -> Iterator[str]:
    """Yield the parts of a command, and of those within it."""
    within = getattr(command, "commands", {})
    yield f"{'##' if name.count(' ') == 1 else '###'} {name}"
    yield from _prose(inspect.cleandoc(command.help or ""))
    shown = [each for each in command.params if each.name != "help" and not getattr(each, "hidden", False)]
    panels: dict[str, list[Any]] = {}
    for each in shown:
        panels.setdefault(getattr(each, "rich_help_panel", None) or "Options", []).append(each)
    if not within:
        rows = [_option(each, panel) for panel, found in panels.items() for each in found]
        head = ["| option | value | default | what it does |", "| --- | --- | --- | --- |"]
        yield "\n".join([*head, *rows])
    for each in within:
        yield from _command(f"{name} {each}", within[each])


def _prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; an example becomes a block that can be copied."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        example = re.fullmatch(r"Example: `(.*)`", line)
        if example:
            yield f"```text\n{example[1]}\n```"
        elif line:
            yield line


def _option(parameter: Any, panel: str) -> str:
    """Return the row of an option or an argument."""
    names = [*parameter.opts, *parameter.secondary_opts] if parameter.opts[0].startswith("-") else [parameter.name]
    kind = "" if getattr(parameter, "is_flag", False) else _kind(parameter)
    default = parameter.default() if callable(parameter.default) else parameter.default
    if isinstance(default, Enum):
        default = default.value
    if getattr(parameter, "is_flag", False):
        shown = (names[0] if default else names[-1]) if parameter.secondary_opts else ""
        shown = f"`{shown}`" if shown else ""
    elif parameter.required:
        shown = "required"
    elif default is None or default in ("", (), []):
        shown = ""
    else:
        several = isinstance(default, list | tuple)
        shown = f"`{','.join(map(str, default)) if several else default}`"
    text = " ".join((getattr(parameter, "help", "") or "").split())
    note = "" if panel in ("Options", "Arguments") else f" *({panel})*"
    return f"| {', '.join(f'`{each}`' for each in names)} | {kind} | {shown} | {cell(text)}{note} |"


def _kind(parameter: Any) -> str:
    """Return the type of a value in words."""
    annotation = parameter.type_descriptor.annotation
    found = get_args(annotation)[0] if get_origin(annotation) in (list, tuple) else annotation
    if inspect.isclass(found) and issubclass(found, Enum):
        name = " or ".join(f"`{each.value}`" for each in found)
    else:
        name = {int: "whole number", float: "number", Path: "path"}.get(found, "text")
    low, high = parameter.min, parameter.max
    limits = [f"from {low:g}" if low is not None else "", f"to {high:g}" if high is not None else ""]
    return " ".join([name, *filter(None, limits)]) + (", repeatable" if found is not annotation else "")


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def api_page() -> str:
    """Return the reference of the public names."""
    parts = [API_HEAD]
    for name, names in MODULES.items():
        module = import_module(name)
        parts.append(f"## {name}")
        parts.append(as_markdown(inspect.getdoc(module) or ""))
        for each in names or module.__all__:
            parts += _name(module, each)
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _name(module: ModuleType, name: str) -> Iterator[str]:
    """Yield heading, signature and docstring of a public name."""
    found = getattr(module, name)
    yield f"### {name}" if module.__name__ == "prbench" else f"### {module.__name__.rpartition('.')[2]}.{name}"
    documented = inspect.getdoc(found) or ""
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        yield f"```py\n{name} = {found!r}\n```"
        return
    is_enum, is_protocol = inspect.isclass(found) and issubclass(found, Enum), getattr(found, "_is_protocol", False)
    if not is_enum and not is_protocol:
        yield f"```py\n{_signature(found, name)}\n```"
    yield as_markdown(documented)
    if is_enum:
        yield "Values: " + ", ".join(f"`{each.value}`" for each in found) + "."
    elif inspect.isclass(found):
        methods = "\n".join(_methods(found))
        if methods:
            yield "| member | what |\n| --- | --- |\n" + methods


def _methods(found: type) -> Iterator[str]:
    for name, member in vars(found).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        documented = inspect.getdoc(plain)
        if name.startswith("_") or not documented or not (inspect.isfunction(plain) or isinstance(plain, property)):
            continue
        shown = name if isinstance(plain, property) else _signature(plain, name, in_one_line=True)
        first = " ".join(documented.split("\n\n")[0].split())
        yield f"| `{cell(shown)}` | {cell(first)} |"


def _signature(found: Any, name: str, *, in_one_line: bool = False) -> str:
    """Return how something is called, one parameter a line where that is long; records by their fields."""
    signature = inspect.signature(found)
    kept = {each.name: each for each in fields(found)} if is_dataclass(found) else {}
    parts, star = [], False
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        parts.append(_parameter(each, kept.get(each.name)))
    gives = "" if inspect.isclass(found) else f" -> {_type(signature.return_annotation)}"
    whole = f"{name}({', '.join(parts)}){gives}"
    if in_one_line or len(whole) <= 100:
        return whole
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){gives}"


def _parameter(parameter: inspect.Parameter, field: "Field[Any] | None") -> str:
    prefix = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
    text = f"{prefix}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        made = field.default_factory if field is not None and field.default_factory is not MISSING else None
        shown = _default(made() if made is not None else parameter.default)
        text += f" = {shown}"
    return text


def _default(value: object) -> str:
    """Return a default as it would be typed."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}()"
    if isinstance(value, Mapping):
        return repr(dict(value))
    if inspect.isfunction(value):
        return "…" if "<" in value.__name__ else value.__name__
    return re.sub(r"<(\w+)[^>]*>", r"\1", repr(value))


def _type(annotation: Any) -> str:
    """Return a type without the modules it comes from."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_][a-z_0-9]*\.)+(?=[A-Za-z])", "", text.replace("'", ""))


def as_markdown(documented: str) -> str:
    """Return a docstring with its indented examples as blocks of code."""
    parts = []
    for paragraph in documented.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            parts.append("```py\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            parts.append(paragraph)
    return "\n\n".join(parts)


def pages() -> dict[Path, str]:
    """Return every page that is made, and its text."""
    return {REFERENCE / "cli.md": cli_page(), REFERENCE / "api.md": api_page()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
