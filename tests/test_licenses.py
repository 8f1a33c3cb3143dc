"""Nothing that an install of prbench brings along is under a copyleft license."""

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COPYLEFT = re.compile(r"\b(A?GPL|LGPL|GNU|EUPL|CC-BY-SA|SSPL|CECILL|OSL|Affero)\b|copyleft", re.IGNORECASE)
OF_TESTS = "dev"
ROOT = "prbench"
# What offers a permissive license beside a copyleft one, or names one of a part that is not used.
CHOICE = re.compile(r"\bOR\b")


def needed(extra: str) -> Iterator[Distribution]:
    """Yield what an extra installs, as far as it is installed here, each package once."""
    seen: set[tuple[str, str]] = set()
    asked = [(ROOT, extra)]
    while asked:
        name, wanted = asked.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            found = distribution(name)
        except PackageNotFoundError:  # of an extra that is not installed here, or of another platform
            continue
        if name != ROOT:
            yield found
        for text in found.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                asked += [(canonicalize_name(requirement.name), each) for each in requirement.extras or ("",)]


def license_of(package: Distribution) -> str:
    """Return what a package says of its license: an expression, classifiers, or the beginning of a text."""
    facts = package.metadata
    if expression := facts.get("License-Expression"):
        return str(expression)
    named = [line.rpartition(" :: ")[2] for line in facts.get_all("Classifier") or () if line.startswith("License ::")]
    if told := "; ".join(named) or (facts.get("License") or "").strip().partition("\n")[0]:
        return told
    texts = [file for file in package.files or () if file.match("licenses/LICENSE*")]
    return " ".join(texts[0].read_text().split()[:6]) if texts else ""


def is_a_list(package: Distribution) -> bool:
    """Say whether a package installs nothing of its own, and only names others (CUDA's, beside PyTorch on Linux)."""
    return all(".dist-info" in file.parts[0] for file in package.files or ())


EXTRAS = ["", *(extra for extra in distribution(ROOT).metadata.get_all("Provides-Extra") or () if extra != OF_TESTS)]


@pytest.mark.parametrize("extra", EXTRAS, ids=[extra or "core" for extra in EXTRAS])
def test_no_copyleft_comes_with_an_install(extra: str) -> None:
    told = {package.name: license_of(package) for package in needed(extra) if not is_a_list(package)}
    assert told, "nothing is installed"
    assert [name for name, text in told.items() if not text] == [], "these do not say what their license is"
    bound = {name: text for name, text in told.items() if COPYLEFT.search(text) and not CHOICE.search(text)}
    assert bound == {}


def test_a_copyleft_license_would_be_seen() -> None:
    assert COPYLEFT.search(license_of(distribution("krippendorff")))  # an oracle of the tests


def test_only_a_package_without_files_of_its_own_is_a_list() -> None:
    assert not is_a_list(distribution("numpy"))


def test_the_lists_of_what_is_needed_name_what_is_there() -> None:
    """The walk reaches what an extra's packages need themselves."""
    reached = {canonicalize_name(package.name) for package in needed("hf")}
    assert {"torch", "transformers", "tokenizers", "numpy"} <= reached
    assert Path(str(distribution(ROOT).locate_file(""))).exists()
