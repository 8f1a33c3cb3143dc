"""`prbench models --check`: every extra is named with what it gives and how to get it."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from prbench.cli.models import PACKAGES

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def test_each_package_is_one_of_the_extra_that_is_said_to_bring_it() -> None:
    for package, extra, use in PACKAGES:
        assert package in {re.split(r"[\[<>=]", line)[0] for line in EXTRAS[extra]}
        assert use


def test_versions_are_those_installed_and_what_is_missing_says_how_to_get_it(prbench, monkeypatch) -> None:
    monkeypatch.setattr("prbench.cli.models.PACKAGES", (*PACKAGES, ("no-such-package", "ray", "nothing")))
    found = {entry["name"]: entry for entry in prbench("models", "--check", "--json").json}
    assert found["httpx"]["status"] == version("httpx")
    assert found["no-such-package"] == {
        "name": "no-such-package",
        "status": "missing",
        "for": "nothing",
        "install": "pip install 'prbench[ray]'",
    }
    assert {"ray", "fastapi", "uvicorn", "playwright", "chromium", "device"} <= set(found)


def test_the_table_shows_the_install_line_of_what_is_missing_alone(prbench, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr("prbench.cli.models.PACKAGES", (("httpx", "serve", "x"), ("no-such-package", "ray", "y")))
    lines = {line.split()[0]: line for line in prbench("models", "--check").out.splitlines()}
    assert "pip install 'prbench[ray]'" in lines["no-such-package"]
    assert "pip install" not in lines["httpx"]
