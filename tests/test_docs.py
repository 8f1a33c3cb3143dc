"""What the documentation shows runs, and what it links to exists."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


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
