"""What the documentation shows runs, and what it links to exists."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
OURS = re.compile(
    r"https://(?:github\.com/prbench/prbench/(?:blob|tree)|raw\.githubusercontent\.com/prbench/prbench)/main/"
)
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_python_block_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "block.py"
    script.write_text(block)
    assert runpy.run_path(str(script))


def test_the_quickstart_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"))
    out = capsys.readouterr().out
    assert re.search(r"^accuracy: 0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]$", out, re.MULTILINE)
    assert "swap gap:" in out


def links_of(page: Path) -> list[tuple[str, Path]]:
    """The links of a page that lead into the project, and where: also those to our own repository by its address."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if OURS.match(target):
            found.append((target, ROOT / OURS.sub("", target)))
        elif not re.match(r"[a-z]+:", target):
            found.append((target, page.parent / target if not target.startswith("#") else Path(f"{page}{target}")))
    return found


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text.lower(), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", each).strip()) for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    for target, place in links_of(page):
        path, _, anchor = str(place).partition("#")
        assert Path(path).exists(), f"{page.name} links to {target}, which does not exist"
        if anchor and path.endswith(".md"):
            assert anchor in anchors_of(Path(path)), f"{page.name} links to {target}, which has no such heading"


def test_what_pypi_shows_has_links_that_lead_somewhere_from_there() -> None:
    relative = [target for target, _ in links_of(ROOT / "README.md") if not target.startswith("https://")]
    assert not relative
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_reference_is_what_help_texts_and_docstrings_say() -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["pages"]()
    stale = [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"{stale} differ from what the code says. Run `make docs`, or python docs/make_reference.py."


def test_the_navigation_has_every_page_once() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    there = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(there)


def test_every_documented_flag_exists() -> None:
    from prbench.cli import load_command

    known = {parameter.name for parameter in load_command("eval").params}
    readme = (ROOT / "README.md").read_text()
    used = {
        flag.replace("-", "_")
        for line in readme.splitlines()
        if "prbench eval" in line
        for flag in re.findall(r"--([a-z-]+)", line)
    }
    assert used <= known
