"""What all pages share: their frame, which says what they were made from, what can be saved from them, and writing."""

import csv
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from io import StringIO
from pathlib import Path
from time import gmtime, strftime
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from prbench.errors import RunError, UsageError
from prbench.pages.charts import NARROW, WIDE, asset, svg, svg_file
from prbench.runs.files import write_text
from prbench.runs.find import is_run
from prbench.runs.manifest import environment, read_manifest
from prbench.schema import Json

SHOWN_OF_HASH = 12
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute
_FLAG = re.compile(r"--[a-z][a-z-]*[a-z]( users,questions)?")
_CODE = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(  # 12.3, +0.5*, 1e-07, 0.5 [0.1, 0.9], 40 %, 0.1 … 0.9, [0.1, 0.9], < 0.001, and nothing
    r"[+\-−]?\.?\d[\d.,]*(e[+-]\d+)?[*%]?( ?\[[-+−\d., –…]*\]| %| s| (…|and) [+\-]?[\d.]+)?"
    r"|–|\[[-+−\d., –…]*\]|[<=] [\d.]+|"
)


class Chip(str):
    """A cell of a table that is drawn as a verdict: its words, and `good`, `look`, `bad` or `skipped`."""

    mark: str

    def __new__(cls, words: str, mark: str) -> "Chip":
        chip = super().__new__(cls, words)
        chip.mark = mark
        return chip


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a page was made from, for its last lines."""

    command: str = ""
    data: str = ""
    manifests: Sequence[Mapping[str, Json]] = ()  # of the runs whose figures are on the page

    def facts(self) -> dict[str, str]:
        """Return date, command, data and versions; those of a run are what computed its scores."""
        here = environment()
        dates = sorted({str(each["started"])[:10] for each in self.manifests if each.get("started")})
        computed = dict.fromkeys(_versions(each.get("environment")) for each in self.manifests)
        facts = {
            "page written": f"{strftime('%Y-%m-%d', gmtime())} by prbench {here['prbench']}, Python {here['python']}",
            "command": _without_password(self.command) or "none: written from Python",
            "data": self.data or "see above",
        }
        if dates:
            facts["scores computed"] = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        facts["computed by"] = "; ".join(filter(None, computed)) or _versions(here)
        return facts

    def runs(self) -> list[list[str]]:
        """Return one line per run: its folder's name, when it was computed, and the command that repeats it."""
        return [
            [
                each["run_id"],
                str(each.get("started", ""))[:10],
                _without_password(each["command"]) or "none: called from Python",
            ]
            for each in self.manifests
        ]


def _without_password(command: str) -> str:
    """Return a command line as others may see it: without what stands before the host in an address."""
    return re.sub(r"//[^/@\s]+@", "//***@", command)


def _versions(found: Json) -> str:
    """Return the environment of a manifest as one line: versions, device, and the commit; "" where it names none."""
    if not isinstance(found, Mapping):
        return ""
    named = {"prbench": "prbench", "python": "Python", "device": "on", "git": "commit"}
    packages = {name: name for name in found if name not in (*named, "system", "processor")}
    order = ["prbench", "python", *packages, "device", "git"]
    return ", ".join(
        f"{(named | packages)[name]} {str(found[name])[:SHOWN_OF_HASH] if name == 'git' else found[name]}"
        for name in order
        if name in found
    )


def origin_of(paths: Iterable[Path], command: str = "", data: str = "") -> Origin:
    """Return what the runs in these folders say of themselves, for the page that shows their figures."""
    manifests = []
    for folder in (each for path in paths for each in ([path] if is_run(path) else path.glob("*")) if is_run(each)):
        try:
            manifests.append(read_manifest(folder))
        except RunError:
            continue  # whoever reads the figures has left it out too, and said so
    named = dict.fromkeys(data_name(each["data"], each["config"].get("data_hash", "")) for each in manifests)
    return Origin(command=command, data="; ".join(filter(None, [data, *named])), manifests=manifests)


def data_name(data: Mapping[str, Json], data_hash: str) -> str:
    """Return which rows a run is of: source, subset, split and hash."""
    parts = [
        data.get("source") or data.get("name") or "rows given in Python",
        *(data.get(key) for key in ("subset", "split", "revision")),
    ]
    limit = f"first {data['limit']} rows" if data.get("limit") else None
    named = ", ".join(str(part) for part in (*parts, limit) if part)
    return f"{named} (hash {data_hash[:SHOWN_OF_HASH]})" if data_hash else named


def render_page(template: str, page: Mapping[str, Json], origin: Origin | None = None) -> str:
    """Return a page as a string."""
    script = asset("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            page=page,
            origin=origin or Origin(),
            style=Markup("\n".join(map(asset, ("tokens.css", "page.css", "chart.css")))),
            script=Markup(script),
            script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        )
    )


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("prbench.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["marked"] = marked
    found.globals |= {
        "drawings": lambda chart: (("wide", svg(chart, WIDE)), ("narrow", svg(chart, NARROW))),
        "svg_link": lambda chart: _link("image/svg+xml", svg_file(chart.title, [chart])),
        "csv_link": lambda cells: _link("text/csv", csv_text(*cells)),
        "file_name": lambda title: re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_") or "figures",
        "numeric": lambda rows: [
            all(_NUMBER.fullmatch(str(cell)) for cell in column) for column in zip(*rows, strict=True)
        ],
    }
    return found


def marked(text: str) -> Markup:
    """Return a sentence for a page, with what stands in backticks as code, and flags whole: browsers break them."""
    whole = _FLAG.sub(r'<span class="unbroken">\g<0></span>', str(escape(text)))
    return Markup(_CODE.sub(r"<code>\1</code>", whole))


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Json]]) -> str:
    """Return a table as CSV; a text that a spreadsheet would take for a formula stays a text."""
    text = StringIO()
    writer = csv.writer(text)
    for row in (names, *rows):
        cells = []
        for cell in row:
            # A figure with its sign is no formula.
            is_formula = isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)
            cells.append(f"'{cell}" if is_formula else cell)
        writer.writerow(cells)
    return text.getvalue()


def _link(kind: str, content: str) -> str:
    """Return an address that holds a file, for a link that saves it without a network and without scripts."""
    return f"data:{kind};charset=utf-8,{quote(content, safe=' =/;,()[]!*@$')}"


def prepare_place(path: Path, example: str) -> None:
    """Make the folder of a page, or refuse, before the work that fills the page."""
    if path.is_dir():
        raise UsageError(f"--html {path}: is a folder. Name the file, e.g. {path / example}.")
    path.parent.mkdir(parents=True, exist_ok=True)


def write_page(page: str, path: Path) -> None:
    """Write a page; nobody sees it half written."""
    write_text(path, page)
