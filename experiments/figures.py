"""Measured figures in README and docs come from files under `results/`: check them, or write them anew.

    python experiments/figures.py            # rewrite what is stale, and name it
    python experiments/figures.py --check    # name it only; exit code 1 where there is any

A figure in running text is followed by a comment with its file below `results/`, the keys and a format:
`81.4 [78.5, 84.1]<!-- = lab/figures.json > runs > head:lab-user test > accuracy ; .1p -->`. The format is Python's, or
ends in `p` for percent without a sign; an estimate is written with its interval, a list with commas. A `?` before the
comment asks for the figure to be filled in. A table between `<!-- table: NAME -->` and `<!-- end -->` is what the
function NAME in one of `tables_of_*.py` returns. `unmarked` finds numbers that look measured and have neither; those
that are none (settings, definitions, other people's figures) stand in `unmeasured.toml`, each with the reason.
docs/design/0024-measured-figures.md says why.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tables_of_intervals
import tables_of_models
import tables_of_policies
import tables_of_speed

ROOT = Path(__file__).resolve().parents[1]
FIGURE = re.compile(r"<!-- = (?P<path>[^;]+?)\s*;\s*(?P<form>\S+)\s*-->", re.DOTALL)
TABLE = re.compile(r"(?P<head><!-- table: (?P<name>\w+) -->\n\n)(?P<body>.*?)(?P<end>\n\n<!-- end -->)", re.DOTALL)
NUMBER = r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
DIGITS = re.compile(r"(?<![\w.])" + NUMBER)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)  # what shows how marks are written is no mark
NOT_TEXT = re.compile(r"``.+?``|`[^`\n]*`|!?\]\([^)]*\)|<!--.*?-->|https?://\S+", re.DOTALL | re.MULTILINE)
# Numbers that measure nothing, whatever page they are on.
NEVER_MEASURED = re.compile(
    r"arXiv\s+\d+\.\d+|(?:Python|PyTorch|CUDA) \d+\.\d+(?:,?\s+(?:and\s+)?\d+\.\d+)*"
    r"|[89]\d ?%\s+(?:intervals?|confidence|power)"
)
UNITS = ("percent", "times", "points?", "nats?", "(?:milli)?seconds?", "m?s", "minutes?", "hours?", "[KMG]i?B")
UNIT = rf"(?:%|(?:{'|'.join(UNITS)}|(?:a|per) second)\b)"
MEASURED = re.compile(
    rf"(?<![\w.]){NUMBER} \[[^\]]*\d[^\]]*\]"  # a figure with its interval
    rf"|(?<![\w.-])[+−-]?\d[\d,]*\.\d+(?!\w|\.\d)"
    rf"|(?<![\w.-])[+−-]?\d[\d,]*[ \n]?{UNIT}"
)


def pages() -> list[Path]:
    """Return every page of README and docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def stale(text: str) -> Iterator[str]:
    """Yield a line for every marked figure and table that is not what its source says."""
    for found in marks(FIGURE, text):
        expected = figure(found["path"], found["form"])
        if not ends_with(text[: found.start()], expected):
            before = text[max(0, found.start() - 30) : found.start()].replace("\n", " ")
            yield f"{' '.join(found['path'].split())}: is {expected}, and the page says …{before}"
    tables = list(marks(TABLE, text))
    for found in tables:
        if found["body"] != table(found["name"]):
            yield f"table {found['name']}: is not what experiments/tables_of_*.py make of the results"
    opened, ended = FENCED.sub("", text).count("<!-- table: "), len(tables)
    if opened != ended:
        yield f"{opened - ended} tables have no `<!-- end -->`, or no blank line beside a marker"


def renewed(text: str) -> str:
    """Return the page with every marked figure and table as the sources have it."""
    parts, place = [], 0
    for found in marks(TABLE, text):
        parts += [text[place : found.start()], found["head"], table(found["name"]), found["end"]]
        place = found.end()
    text = "".join([*parts, text[place:]])
    parts, place = [], 0
    for found in marks(FIGURE, text):
        expected = figure(found["path"], found["form"])
        parts += [swap_end(text[place : found.start()], expected), found[0]]
        place = found.end()
    return "".join([*parts, text[place:]])


def marks(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the marks of a page, but not those that code blocks show."""
    shown = [found.span() for found in FENCED.finditer(text)]
    for found in pattern.finditer(text):
        if not any(start < found.start() < end for start, end in shown):
            yield found


def swap_end(before: str, expected: str) -> str:
    """Return a text that ends with the figure, in place of the one, or the question mark, that it ends with."""
    if ends_with(before, expected):
        return before
    if before.endswith("?"):
        return before[:-1] + expected
    shape = "".join(NUMBER if DIGITS.fullmatch(part) else re.escape(part) for part in split(expected))
    found = re.search(rf"(?<![\d.,]){shape}$", before)
    if found is None:
        raise SystemExit(f"…{before[-40:]}: does not end in a figure like {expected}. Write a ? before the comment.")
    return before[: found.start()] + expected


def split(text: str) -> list[str]:
    """Return numbers and what stands between them."""
    return [part for part in re.split(f"((?<![\\w.]){NUMBER})", text) if part]


def ends_with(before: str, expected: str) -> bool:
    """Tell whether a text ends with a figure, and not with a longer number that ends alike; − is a minus, too."""
    before = before.replace("−", "-")
    return before.endswith(expected) and not re.search(r"[\d.,+-]$", before.removesuffix(expected)[-1:])


def figure(path: str, form: str) -> str:
    """Return what a file of results says under some keys, as text."""
    name, *keys = (part.strip() for part in " ".join(path.split()).split(" > "))
    found = source(name)
    for key in keys:
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise SystemExit(f"results/{name}: has nothing under {key!r} ({' > '.join(keys)}).") from None
    return written(found, form)


def written(found: Any, form: str) -> str:
    """Return a value, an estimate with its interval, or a list, as text."""
    if isinstance(found, Mapping):
        value, low, high = (written(found[part], form) for part in ("value", "low", "high"))
        return f"{value} [{low}, {high}]"
    if isinstance(found, Sequence) and not isinstance(found, str):
        return ", ".join(written(each, form) for each in found)
    if form == "s":
        return str(found)
    return f"{100 * found:{form[:-1]}f}" if form.endswith("p") else f"{found:{form}}"


@cache
def source(name: str) -> Any:
    """Return a file of results."""
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


@cache
def table(name: str) -> str:
    """Return a table that the results make."""
    for module in (tables_of_intervals, tables_of_models, tables_of_policies, tables_of_speed):
        if hasattr(module, name):
            made: str = getattr(module, name)()
            return made.strip("\n")
    raise SystemExit(f"table {name}: no function of experiments/tables_of_*.py has this name.")


def unmarked(text: str, allowed: Sequence[str] = ()) -> Iterator[str]:
    """Yield, with what stands around them, numbers that look measured and come from no file of results."""
    text = TABLE.sub("", FENCED.sub(blank, text))
    text = without(text, allowed)
    parts, place = [], 0
    for found in FIGURE.finditer(text):
        before = text[place : found.start()]
        expected = figure(found["path"], found["form"])
        parts.append(before[: -len(expected)] + " figure " if ends_with(before, expected) else before)
        place = found.end()
    text = NEVER_MEASURED.sub(blank, NOT_TEXT.sub(blank, "".join([*parts, text[place:]])))
    for found in MEASURED.finditer(text):
        around = text[max(0, found.start() - 40) : found.end() + 30]
        yield f"{found[0]}: …{' '.join(around.split())}…"


def without(text: str, passages: Sequence[str]) -> str:
    """Return a text with blanks in place of some passages, which may overlap."""
    left = list(text)
    for passage in passages:
        for found in re.finditer(r"\s+".join(re.escape(word) for word in passage.split()), text):
            for place in range(*found.span()):
                left[place] = "\n" if text[place] == "\n" else " "
    return "".join(left)


def blank(found: re.Match[str]) -> str:
    """Return nothing in place of a text, but keep words apart."""
    return "\n" if "\n" in found[0] else " x "


@cache
def unmeasured() -> dict[str, dict[str, str]]:
    """Return, for every page, the passages whose numbers come from no measurement, with the reason."""
    return tomllib.loads((ROOT / "experiments" / "unmeasured.toml").read_text(encoding="utf-8"))


def main() -> int:
    """Check or rewrite every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument(
        "--unmarked", nargs="*", metavar="PAGE", help="list numbers that look measured and are unmarked"
    )
    asked = parser.parse_args()
    if asked.unmarked is not None:
        for page in [ROOT / name for name in asked.unmarked] or pages():
            name = page.relative_to(ROOT).as_posix()
            for line in unmarked(page.read_text(encoding="utf-8"), list(unmeasured().get(name, {}))):
                print(f"{name}: {line}")
        return 0
    wrong = False
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for line in stale(text):
            wrong = True
            print(f"{page.relative_to(ROOT)}: {line}")
        if not asked.check and (new := renewed(text)) != text:
            page.write_text(new, encoding="utf-8")
    return int(wrong and asked.check)


if __name__ == "__main__":
    sys.exit(main())
