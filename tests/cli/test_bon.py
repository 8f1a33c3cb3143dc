"""`prbench bon` as a shell sees it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny_llama import save_tiny_llama

from prbench.backends.llm import CachedLLM, ChatRequest, FakeLLM, Finish, Reply
from prbench.data import open_examples
from prbench.downstream.best_of_n.pool import PoolQuestion, select_questions
from prbench.judging import RubricJudge

LAB = ("bon", "--policy", "lab", "--users", "12", "--n", "8", "--out", "bon")
CHEAP = "Sow cheap seeds by the handful in spring."
NOTHING_SERVED = '{"verdicts": [{"number": 1, "evidence": "", "reason": "none", "score": 0}]}'


def test_json_is_all_there_is_on_stdout(prbench: Callable[..., Any], tmp_path: Path) -> None:
    ended = prbench(*LAB, "--model", "control:overlap", "--model", "control:longest?context=none", "--json")
    assert ended.code == 0
    assert ended.json["policy"] == "lab"
    assert (ended.json["n"], ended.json["users"], ended.json["seed"]) == (8, 12, 0)
    assert list(ended.json["models"]) == ["control:overlap", "control:longest?context=none", "random", "oracle"]
    figures = ended.json["models"]["control:overlap"]
    assert set(figures["value_at"]) == {"1", "2", "4", "8"}
    assert set(figures["value_at"]["8"]) == {"value", "low", "high", "n"}
    assert {"captured_headroom", "regret", "win_rate", "swap", "quality_at", "ties", "overoptimization"} <= set(
        figures
    )
    folder = tmp_path / "bon" / ended.json["run_id"]
    assert json.loads((folder / "summary.json").read_text()) == ended.json
    assert (folder / "bon.html").is_file()


def test_the_table_names_all_that_picked(prbench: Callable[..., Any], tmp_path: Path) -> None:
    ended = prbench(*LAB, "--model", "control:overlap")
    assert ended.code == 0
    flat = "".join(ended.out.split())
    for name in ("control:overlap", "random", "oracle", "100.0[100.0,100.0]", "Bestof8:lab"):
        assert name in flat


def test_a_policy_that_is_told_the_rubric_is_marked_as_a_ceiling(prbench: Callable[..., Any], tmp_path: Path) -> None:
    command = (*LAB, "--model", "control:overlap", "--policy-context")
    assert "a ceiling" not in prbench(*command, "none").out
    assert "a ceiling" in prbench(*command, "oracle").out
    pages = ["the rubric, a ceiling" in path.read_text(encoding="utf-8") for path in tmp_path.glob("bon/*/bon.html")]
    assert sorted(pages) == [False, True]


def test_a_pool_is_used_by_every_later_command(prbench: Callable[..., Any], tmp_path: Path) -> None:
    for model in ("control:overlap", "control:longest"):
        assert prbench(*LAB, "--model", model).code == 0
    (pool,) = (tmp_path / "bon" / "pools").iterdir()
    assert len(list((pool / "scores").iterdir())) == 2
    assert len(list((pool / "grades").iterdir())) == 1


def test_another_seed_is_another_pool_and_the_same_seed_the_same_figures(
    prbench: Callable[..., Any], tmp_path: Path
) -> None:
    command = (*LAB, "--model", "control:overlap", "--json")
    first = prbench(*command).json
    assert prbench(*command).json == first
    assert prbench(*command, "--seed", "1").json["pool"] != first["pool"]


@pytest.mark.parametrize(
    "args,line",
    [
        (("--model", "judge:fake:Result: A"), "only compares"),
        (("--model", "control:overlap?context=all"), "context=all"),
        (("--model", "nothing:at-all"), "Unknown kind 'nothing'"),
        (("--model", "control:overlap", "--policy", "labs"), "Unknown kind 'labs' of policy"),
        (("--model", "control:overlap", "--policy-context", "all"), "--policy-context all: unknown"),
        (("--model", "control:overlap", "--n", "0"), "--n"),
        (("--model", "control:overlap", "--users", "1"), "--users"),
        (("--model", "control:overlap", "--context", "plan"), "--context plan needs a planner"),
    ],
)
def test_what_is_wrong_is_one_line(prbench: Callable[..., Any], args: tuple[str, ...], line: str) -> None:
    ended = prbench(*LAB, *args)
    assert ended.code == 2
    assert line in ended.err
    assert ended.err.count("\n") == 1


def test_other_data_needs_a_judge(prbench: Callable[..., Any], pairs: Path) -> None:
    command = ("bon", "--data", str(pairs), "--policy", "fake:Sow cheap seeds.", "--model", "fake:length", "--n", "3")
    ended = prbench(*command)
    assert ended.code == 2
    assert "Name a judge of rubrics with --judge" in ended.err
    judged = prbench(*command, "--judge", f"fake:{NOTHING_SERVED}", "--json")
    assert judged.code == 0
    assert judged.json["value_span"] == [0.0, 1.0]
    assert judged.json["models"]["oracle"]["value_at"]["3"]["value"] == 0
    assert judged.json["models"]["oracle"]["captured_headroom"] is None  # there was nothing to gain
    assert judged.json["models"]["fake:length"]["quality_at"] is None


def test_a_judge_without_rubrics_is_refused_before_sampling(
    prbench: Callable[..., Any], rows: Callable[[int], list[dict[str, Any]]], tmp_path: Path
) -> None:
    bare = tmp_path / "bare.jsonl"
    bare.write_text("".join(json.dumps(row | {"rubric_aspects": []}) + "\n" for row in rows(6)))
    options = ("--policy", "fake:Sow.", "--judge", f"fake:{NOTHING_SERVED}", "--model", "fake:length", "--out", "bon")
    ended = prbench("bon", "--data", str(bare), *options)
    assert ended.code == 2
    assert "has no rubric aspects" in ended.err
    assert not (tmp_path / "bon" / "pools").exists()


def test_options_of_an_hf_policy_reach_it(prbench: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")
    folder = save_tiny_llama(tmp_path / "policy", ["tea walk long short hills garden"])
    how = ("--max-new-tokens", "4", "--dtype", "bfloat16", "--batch-size", "5", "--top-p", "0.5")
    ended = prbench(
        "bon", "--policy", f"hf:{folder}", *how, "--model", "fake:length", "--limit", "12", "--n", "2", "--json"
    )
    assert ended.code == 0
    (pool,) = (tmp_path / "runs" / "bon" / "pools").iterdir()
    identity = json.loads((pool / "manifest.json").read_text())["config"]["policy"]
    assert (identity["dtype"], identity["top_p"]) == ("torch.bfloat16", 0.5)


def test_few_users_are_said(prbench: Callable[..., Any]) -> None:
    assert "Intervals are over 12 users, too few" in prbench(*LAB, "--model", "control:overlap").out


def test_failed_samples_and_grades_are_said_and_end_with_1(prbench: Callable[..., Any], pairs: Path) -> None:
    command = ("bon", "--data", str(pairs), "--model", "fake:length", "--n", "2", "--judge")
    broken = prbench(*command, f"fake:{NOTHING_SERVED}", "--policy", "fake:error")
    assert broken.code == 2
    assert "0 of 12 questions have all answers and grades" in broken.err
    assert "fake:error always fails" in broken.err


def test_a_model_that_scores_too_few_questions_ends_with_1(prbench: Callable[..., Any]) -> None:
    ended = prbench(*LAB, "--model", "rating:fake:I cannot say.")
    assert ended.code == 1
    assert re.search(r"rating:fake:I cannot say\.: \d+ questions are left out, without a score: no verdict", ended.out)


@pytest.fixture
def question(rows: Callable[[int], list[dict[str, Any]]]) -> PoolQuestion:
    two = [{"aspect": name, "evidence": "", "reason": ""} for name in ("low cost", "shade")]
    with open_examples([row | {"rubric_aspects": two} for row in rows(4)]) as store:
        return select_questions(store)[0]


def verdicts(*scores: int) -> str:
    each = [
        {"number": n, "evidence": "Sow cheap seeds by the handful", "reason": "r", "score": s}
        for n, s in enumerate(scores, 1)
    ]
    return json.dumps({"verdicts": each})


def test_the_judge_grades_0_to_2_per_aspect_and_equal_answers_once(question: PoolQuestion) -> None:
    def script(request: ChatRequest) -> str:
        return verdicts(2, 1) if CHEAP in request.messages[-1].content else verdicts(0, 0)

    llm = FakeLLM(script)
    grades = RubricJudge(llm, seed=0).grade(question.example, [CHEAP, "Buy pots.", CHEAP])
    assert [grade.value for grade in grades] == [0.75, 0.0, 0.75]
    assert len(llm.requests) == 2
    assert all("low cost" in request.messages[-1].content for request in llm.requests)


def test_a_judge_with_other_weights_is_another_judge() -> None:
    class Trained(FakeLLM):
        fingerprint = ""

    one, two = Trained("yes"), Trained("yes")
    one.fingerprint, two.fingerprint = "weights=1", "weights=2"
    assert RubricJudge(one, seed=0).identity != RubricJudge(two, seed=0).identity


@pytest.mark.parametrize(
    "reply,problem",
    [
        (Reply(text="[2, 1]"), "unreadable"),
        (Reply(text=verdicts(2)), "unreadable"),  # one verdict on two aspects
        (Reply(text=verdicts(2, 1, 0)), "unreadable"),
        (Reply(text=verdicts(3, 1)), "unreadable"),
        (Reply(text=verdicts(2, 1)), "evidence_not_quoted"),
        (Reply(text=verdicts(2, 1)[:-20], finish=Finish.LENGTH), "cut_off"),
        (Reply(finish=Finish.ERROR, error="HTTP 500"), "failed"),
    ],
)
def test_what_a_judge_gets_wrong_is_no_grade(question: PoolQuestion, reply: Reply, problem: str) -> None:
    (grade,) = RubricJudge(FakeLLM(reply), seed=0).grade(question.example, ["Buy pots."])
    assert grade.value is None
    assert grade.problem == problem


def test_rows_that_the_lab_wrote_are_graded_by_its_judge(prbench: Callable[..., Any], tmp_path: Path) -> None:
    assert prbench("data", "lab", "--users", "96", "--pairs", "60", "--out", "my_lab").code == 0
    asked = ("bon", "--policy", "lab", "--users", "4", "--n", "2", "--model", "control:longest", "--out", "bon")
    ended = prbench(*asked, "--data", "my_lab", "--json")
    assert ended.code == 0  # the folder's card names the judge
    assert ended.json["judge"]["judge"] == "lab"
    one_file = sorted((tmp_path / "my_lab").rglob("test.jsonl"))[0]
    refused = prbench(*asked, "--data", str(one_file))
    assert refused.code == 2
    assert "Name a judge of rubrics with --judge" in refused.err
    assert prbench(*asked, "--data", str(one_file), "--judge", "lab").code == 0


@pytest.mark.parametrize("finish,problem", [(Finish.LENGTH, "cut_off"), (Finish.WRONG_MODEL, "wrong_model")])
def test_verdicts_that_were_cut_off_or_are_another_models_are_no_grade(
    question: PoolQuestion, finish: Finish, problem: str, tmp_path: Path
) -> None:
    llm = FakeLLM(Reply(text=verdicts(2, 1), finish=finish))
    cached = CachedLLM(llm, tmp_path / "r.sqlite")
    (grade,) = RubricJudge(cached, seed=0).grade(question.example, [CHEAP])
    assert (grade.value, grade.problem) == (None, problem)
    mended = CachedLLM(FakeLLM(verdicts(2, 1)), tmp_path / "r.sqlite")
    assert RubricJudge(mended, seed=0).grade(question.example, [CHEAP])[0].value == 0.75
