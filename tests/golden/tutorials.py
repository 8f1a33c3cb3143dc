"""Tutorials as a newcomer would paste them: each in an empty folder, every line as it stands on the page.

Where a block of output follows, it is compared with what the last line printed: the words must be the same, decimal
figures may differ by `TOLERANCE`, and whole numbers, hashes and white space are not compared. A line `…` of a page
stands for any number of lines.
"""

import io
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.golden.extract import run_cli

TUTORIALS = tuple(sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md")))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
HEREDOC = re.compile(r"^cat > (\S+) <<'EOF'\n(.*?)^EOF\n", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"[-+−]?\d+\.\d+")
NOT_COMPARED = re.compile(r"[-+−]?\d+\.\d+|\b[0-9a-f]{12,16}\b|[-+−]?\b\d+\b|\s+")
TOLERANCE = 15.0  # points: three pairs of twenty, as another processor may decide them

NOT_RUN: Mapping[str, str] = {  # a line that begins so
    "prbench annotate serve ": "runs until it is ended",
}
ENDS_WITH: Mapping[str, int] = {  # where the page says that a line does not end well
    "prbench data check --data my_set/dataset": 1,
    "prbench data check --data pairs.jsonl": 1,
    "prbench eval --model control:overlap --data broken.jsonl": 2,
    "prbench eval --model 'judge:fake:Both are fine": 1,
    "prbench eval --model 'judge:fake:Therefore, Output (a) is better.' --data lab": 1,
}


@dataclass(frozen=True)
class Line:
    """A command line of a page, or a file that it writes; and what it should print, where the page shows that."""

    text: str
    file: str = ""
    prints: str = ""


def lines_of(page: Path) -> Iterator[Line]:
    """Yield what a reader pastes, in order."""
    last: Line | None = None
    for found in FENCED.finditer(page.read_text(encoding="utf-8")):
        language, content = found[1], found[2]
        if language == "text" and last is not None:
            yield Line(last.text, last.file, content)
            last = None
        elif language == "sh":
            for line in _lines_of_block(content):
                if last is not None:
                    yield last
                last = line
    if last is not None:
        yield last


def _lines_of_block(content: str) -> Iterator[Line]:
    place = 0
    for heredoc in HEREDOC.finditer(content):
        yield from _commands(content[place : heredoc.start()])
        yield Line(heredoc[2], file=heredoc[1])
        place = heredoc.end()
    yield from _commands(content[place:])


def _commands(content: str) -> Iterator[Line]:
    for line in content.replace("\\\n", " ").splitlines():
        plain = re.sub(r"(^|\s+)# .*$", "", line).strip()
        if plain:
            yield Line(" ".join(plain.split()))


class Newcomer:
    """Pastes one line after the other, and notes what went otherwise than the page says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, ports: Mapping[str, str]) -> None:
        self.folder, self.patch, self.ports = folder, patch, ports
        self.failures: list[str] = []
        self.in_background: list[subprocess.Popen[bytes]] = []

    def paste(self, line: Line) -> str:
        """Run a line; return what it printed."""
        text = line.text
        for written, free in self.ports.items():  # the page's own ports may be taken here
            text = text.replace(written, free)
        if line.file:
            (self.folder / line.file).write_text(text, encoding="utf-8")
            return ""
        if any(text.startswith(start) for start in NOT_RUN):
            return ""
        code, printed = self.run(text)
        wanted = next((each for start, each in ENDS_WITH.items() if text.startswith(start)), 0)
        if code != wanted:
            self.failures.append(f"{text}\n  ended with {code}: {printed[-600:]}")
        elif line.prints:
            self.compare(text, line.prints, printed)
        return printed

    def run(self, text: str) -> tuple[int, str]:
        """Return the exit code and what was printed."""
        command, *arguments = shlex.split(text)
        if command == "prbench":
            ended = run_cli(*arguments)
            return ended.code, ended.out + ended.err
        if command == "export" and arguments == ["PYTHONPATH=."]:
            self.patch.syspath_prepend(str(self.folder))
            return 0, ""
        if command == "python" and arguments[-1] == "&":
            self.in_background.append(subprocess.Popen([sys.executable, *arguments[:-1]], cwd=self.folder))
            return 0, ""
        if command == "python":
            printed = io.StringIO()
            with redirect_stdout(printed), redirect_stderr(io.StringIO()):
                runpy.run_path(str(self.folder / arguments[0]), run_name="__main__")
            return 0, printed.getvalue()
        if command == "kill":
            self.end()
            return 0, ""
        ended_shell = subprocess.run(["bash", "-c", text], cwd=self.folder, capture_output=True, text=True)
        return ended_shell.returncode, ended_shell.stdout + ended_shell.stderr

    def compare(self, text: str, page: str, printed: str) -> None:
        """Note the first line of the page that was not printed."""
        left = iter(printed.splitlines())
        for shown in page.splitlines():
            if shown.strip() in ("", "…"):
                continue
            if not any(_is_same(shown, each) for each in left):
                self.failures.append(f"{text}\n  the page shows: {shown}\n  printed:\n{printed}")
                return

    def end(self) -> None:
        """End what runs in the background."""
        for process in self.in_background:
            process.kill()
            process.wait()
        self.in_background.clear()


def _is_same(shown: str, printed: str) -> bool:
    """True for the same words and about the same figures; a page may cut a long line short with an ellipsis."""
    ours, theirs = NOT_COMPARED.sub("", shown.removesuffix("…")), NOT_COMPARED.sub("", printed)
    if not (theirs == ours or (shown.endswith("…") and theirs.startswith(ours))):
        return False
    pairs = zip(FIGURE.findall(shown), FIGURE.findall(printed), strict=False)
    return all(abs(_number(one) - _number(other)) <= TOLERANCE for one, other in pairs)


def _number(text: str) -> float:
    return float(text.replace("−", "-"))
