"""What is published says the same everywhere, and release notes are the changelog's own words."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
notes = runpy.run_path(str(ROOT / ".github" / "release_notes.py"))["notes"]
CHANGELOG = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-12-01)\n\n- two\n- three\n\n## 0.1.0\n\n- one\n"


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"]


@pytest.mark.parametrize("tag, expected", [("v0.2.0", "- two\n- three\n"), ("0.1.0", "- one\n")])
def test_release_notes_are_the_section_of_the_version(tag: str, expected: str) -> None:
    assert notes(tag, CHANGELOG) == expected


def test_a_version_without_a_section_is_refused() -> None:
    with pytest.raises(SystemExit, match=re.escape("no section 0.3.0. It has: Unreleased, 0.2.0, 0.1.0.")):
        notes("v0.3.0", CHANGELOG)


def test_workflows_run_what_the_readme_promises() -> None:
    """The workflows call the project's own commands, and only versions of Python that the package takes."""
    ci = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for step in ci["jobs"]["all"]["steps"]]
    assert "bash .ci/run" in steps
    named = {line.rpartition(" :: ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line}
    assert set(ci["jobs"]["all"]["strategy"]["matrix"]["python"]) == named


def test_the_image_installs_extras_that_there_are() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"'\.\[(.+)\]'", text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
