"""Models and sources that tests of the build start from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.build.lab_script import HONEST, Rates, body_of, reply

from prbench.backends.llm import FakeLLM
from prbench.construction.build import BuildSettings
from prbench.lab.population import load_library

ROLES = ("generator", "judge", "quality_judge")


@pytest.fixture(autouse=True)
def pseudonym_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names in every folder."""
    monkeypatch.setenv("PRBENCH_PSEUDONYM_KEY", "a key for tests alone")


@pytest.fixture
def scripted() -> Callable[..., dict[str, FakeLLM]]:
    """Make the lab's scripted models, one per role, so that it can be seen what each was asked."""

    def make(rates: Rates = HONEST) -> dict[str, FakeLLM]:
        return {role: FakeLLM(lambda request: reply(body_of(request), rates), name=f"fake:{role}") for role in ROLES}

    return make


@pytest.fixture
def lab_settings() -> Callable[..., BuildSettings]:
    """Settings for the lab's short responses."""

    def make(**changes: object) -> BuildSettings:
        usual: dict[str, object] = {"data": "lab", "users": 6, "words": 65, **dict.fromkeys(ROLES, "fake:x")}
        return BuildSettings(**(usual | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture
def posts_file(tmp_path: Path) -> Callable[[int], Path]:
    """Write so many users, whose posts say what they look for, as one row per user."""

    def make(users: int) -> Path:
        path = tmp_path / "posts.jsonl"
        path.write_text("".join(json.dumps(user_row(number)) + "\n" for number in range(users)))
        return path

    return make


def user_row(number: int) -> dict[str, object]:
    """A user who looks for two aspects of one subject, and says so in every post."""
    subjects = load_library().subjects
    subject = subjects[number % len(subjects)]
    one, other = subject.aspects[number % 5], subject.aspects[number % 5 + 1]
    texts = [f"{a} {b}" for a, b in zip(one.evidence, other.evidence, strict=False)]
    posts = [{"id": f"post-{place}", "text": text, "category": subject.category} for place, text in enumerate(texts)]
    return {"user_id": f"person-{number}", "posts": posts}
