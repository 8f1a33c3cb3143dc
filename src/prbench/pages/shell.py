"""What every page has in common: templates with autoescape, one style, and a file that appears when it is complete."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from prbench.errors import UsageError
from prbench.runs.files import write_text
from prbench.schema import Json

TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, **values: Json) -> str:
    """Return a page as a string."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(style=read_asset("page.css"), **values)


def read_asset(name: str) -> Markup:
    """Return a style or a script of our own, which needs no escaping."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def prepare_place(path: Path, example: str) -> None:
    """Make the folder of a page, or refuse, before the work that fills the page."""
    if path.is_dir():
        raise UsageError(f"--html {path}: is a folder. Name the file, e.g. {path / example}.")
    path.parent.mkdir(parents=True, exist_ok=True)


def write_page(page: str, path: Path) -> None:
    """Write a page; nobody sees it half written."""
    write_text(path, page)
