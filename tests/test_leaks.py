"""What must not leak: the rubric and the narrative reach no model under test, and no file it leaves behind."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prbench.backends.llm import FakeLLM
from prbench.evaluation import EvalSettings, evaluate
from prbench.prompts import load_template
from prbench.reward_models.base import LoadedModel
from prbench.reward_models.generative import JudgeModel, RatingModel
from prbench.schema import LabeledPair, PairInput, RewardInput, UserContext

MARKER = "ZQXJ-MARKER-77"
Rows = Callable[[int], list[dict[str, Any]]]


class Listener:
    """Keeps everything it is shown."""

    def __init__(self) -> None:
        self.seen: list[RewardInput] = []

    def score(self, inputs: Sequence[RewardInput]) -> list[float]:
        self.seen.extend(inputs)
        return [0.0 for _ in inputs]


def marked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    aspect = {"aspect": f"cost {MARKER}", "evidence": f"coins {MARKER}", "reason": f"money {MARKER}"}
    return [row | {"rubric_aspects": [aspect], "narrative": f"A story {MARKER}."} for row in rows]


def everything_under(folder: Path) -> str:
    return "".join(path.read_bytes().decode(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("context", ["none", "profile", "plan"])
@pytest.mark.parametrize(
    "model", ["control:overlap", "control:question", "judge:fake:Result: A", "rating:fake:Score: 5"]
)
def test_the_marker_reaches_no_file_of_a_run(rows: Rows, tmp_path: Path, context: str, model: str) -> None:
    settings = EvalSettings(context=context, planner="fake:- low cost: it matters" if context == "plan" else "")
    evaluate(marked(rows(4)), model, settings=settings, out=tmp_path)
    assert MARKER not in everything_under(tmp_path)


@pytest.mark.parametrize("context", ["none", "profile", "plan"])
def test_the_marker_reaches_no_input_of_a_scoring_model(rows: Rows, context: str) -> None:
    model = Listener()
    settings = EvalSettings(context=context, planner="fake:- low cost: it matters" if context == "plan" else "")
    evaluate(marked(rows(4)), model, settings=settings)
    assert model.seen
    assert not any(MARKER in f"{one}{one.context}" for one in model.seen)


@pytest.mark.parametrize("make,template", [(JudgeModel, "judge_pair"), (RatingModel, "rate")])
def test_the_marker_reaches_no_request_of_a_generative_model(rows: Rows, make: type, template: str) -> None:
    llm = FakeLLM(lambda request: "Result: A\nScore: 5")
    loaded = LoadedModel(spec="generative", kind="judge", model=make(llm, load_template(template)))
    evaluate(marked(rows(4)), loaded, context="profile")
    assert llm.requests
    assert not any(MARKER in message.content for request in llm.requests for message in request.messages)


def test_the_oracle_does_see_it(rows: Rows) -> None:
    model = Listener()
    evaluate(marked(rows(4)), model, context="oracle")
    assert any(MARKER in one.context for one in model.seen)


def test_no_record_for_a_model_has_a_field_for_it() -> None:
    """At any depth: what is told of a user is a record itself."""
    context = {"kind", "segments", "labels", "dropped", "problem", "detail", "truncated_posts"}
    assert set(RewardInput.__dataclass_fields__) == {"question", "response", "user"}
    assert set(PairInput.__dataclass_fields__) == {"question", "first", "second", "user"}
    assert set(UserContext.__dataclass_fields__) == context
    assert set(LabeledPair.__dataclass_fields__) == {"question", "chosen", "rejected"}


def test_the_marker_is_not_in_a_log(rows: Rows, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("DEBUG")
    evaluate(marked(rows(4)), "judge:fake:prose", out=tmp_path)
    assert MARKER not in caplog.text
    assert json.loads(next(tmp_path.glob("*/summary.json")).read_text())["coverage"]["value"] == 0.0
