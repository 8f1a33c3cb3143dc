"""The page of a run: what happened in one sentence, charts of what changed, and strangers' gold with intervals."""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest

from prbench.downstream.ppo.evaluate import summarize
from prbench.pages.charts import round_axis
from prbench.pages.ppo import TEMPLATE, page_of, render_run, write_curves
from prbench.pages.shell import render_page
from prbench.schema import Json

HOSTILE = "<script>document.title='stolen'</script>"


def steps(count: int = 13, **changes: Json) -> list[dict[str, Json]]:
    row = {"entropy": 6.4, "length": 12.0, "failure_rate": 0.0, **changes}
    return [
        {"step": step, "reward": -1 + step / 10, "gold": step / 100, "kl": step / 4, **row} for step in range(count)
    ]


def summary_of(rows: Sequence[dict[str, Json]], **changes: Json) -> dict[str, Json]:
    return {
        "run_id": "3cd8d6e35258",
        "algorithm": "ppo",
        "policy": "tiny",
        "reward_model": "oracle",
        "context": "profile",
        "reward_context": "none",
        "seed": 0,
        "ended": "steps",
        "updates": rows[-1]["step"],
        "first": rows[0],
        "last": rows[-1],
        "rewards_asked": 208,
        "rewards_failed": 0,
        **changes,
    }


def measured(golds: dict[int, float], *, users: int = 24, sides: bool = True) -> list[dict[str, Json]]:
    """Policies whose mean gold is this over pairs of questions, one a tenth above the mean and one below."""
    return [
        {
            "step": step,
            "id": f"i{item}",
            "user_id": f"u{item // 2}",
            "majority": item % 2 == 0 if sides else None,
            "gold": gold + (0.1 if item % 2 == 0 else -0.1),
            "kl": step / 4,
            "length": 12.0,
            "truncated": 0.0,
        }
        for step, gold in golds.items()
        for item in range(2 * users)
    ]


def evaluation_of(answers: Sequence[dict[str, Json]]) -> dict[str, Json]:
    return {"held_out": {"samples": 4, "seed": 0, "split": "test"}, "policies": summarize(answers)}


def page_with(answers: Sequence[dict[str, Json]]) -> dict[str, Json]:
    rows = steps()
    return page_of(summary_of(rows), rows, evaluation_of(answers), answers)


def html_with(answers: Sequence[dict[str, Json]]) -> str:
    rows = steps()
    return render_page(TEMPLATE, page_of(summary_of(rows), rows, evaluation_of(answers), answers))


def test_one_sentence_says_what_happened() -> None:
    rows = steps()
    assert page_of(summary_of(rows), rows)["said"] == (
        "In 12 updates, the reward went from -1 to 0.2, gold went from 0 to 0.12, "
        "and the policy ended 3 nats per answer from the reference."
    )
    grouped = summary_of(rows, updates=1, first={"gold": 0.5}, last={"reward": 2.0, "gold": 0.5, "kl_per_token": 0.25})
    assert page_of(grouped, rows)["said"] == (
        "In 1 update, the reward came to 2, gold stayed at 0.5, "
        "and the policy ended 0.25 nats per token from the reference."
    )


@pytest.mark.parametrize(
    "last,outcome,said",
    [
        # Half of 24 users gain 0.02 more than the other half: +- t(23) 0.01 / sqrt(23) on Fisher's z.
        (0.29, "good", "For held-out users, gold rose from 0.100 to 0.300, by +0.200 [+0.196, +0.204]."),
        (-0.11, "bad", "For held-out users, gold fell from 0.100 to -0.100, by -0.200 [-0.204, -0.196]."),
    ],
)
def test_whether_strangers_gained_is_said_with_its_interval(last: float, outcome: str, said: str) -> None:
    answers = measured({0: 0.1, 12: last})
    for row in answers:
        if row["step"] == 12 and int(row["user_id"][1:]) % 2:
            row["gold"] += 0.02
    found = page_with(answers)["held_out"]
    assert (found["class"], found["said"]) == (outcome, said)


def test_a_gain_whose_interval_holds_nothing_may_be_chance() -> None:
    answers = measured({0: 0.1, 12: 0.1})
    for row in answers:
        if row["step"] == 12:
            row["gold"] += 0.3 if int(row["user_id"][1:]) % 2 else -0.28
    found = page_with(answers)["held_out"]
    assert found["class"] == "look"
    assert re.search(r"by \+0\.010 \[-0\.\d+, \+0\.\d+\]: the interval holds 0, so it may be chance\.$", found["said"])


def test_gold_over_kl_has_a_line_with_intervals_for_each_side() -> None:
    answers = measured({0: 0.1, 4: 0.2, 12: 0.3})
    for row in answers:
        row["gold"] += int(row["user_id"][1:]) / 100
    found = page_with(answers)["held_out"]
    assert [line.name for line in found["chart"].series] == ["all users", "with the majority", "with the minority"]
    for line in found["chart"].series:
        assert [mark.x for mark in line.marks] == sorted(mark.x for mark in line.marks)
        assert all(mark.low < mark.value < mark.high for mark in line.marks)
    assert [label for label, _ in found["gains"].rows] == ["4 updates", "12 updates"]
    assert [round(mark.value, 6) for mark in found["gains"].rows[0][1]] == [0.1] * 3
    assert found["cells"][1][2][:2] == ["12", "3.00"]
    html = html_with(answers)
    assert html.count('class="whisker') == 2 * 9  # drawn wide and narrow
    assert "with the minority" in html


def test_of_many_policies_some_gains_are_drawn_and_the_last_among_them() -> None:
    found = page_with(measured({step: step / 1000 for step in range(31)}, users=4))["held_out"]
    labels = [label for label, _ in found["gains"].rows]
    assert (len(labels), labels[-1]) == (10, "30 updates")
    assert len(found["cells"][1]) == 31


def test_rows_without_sides_have_one_line() -> None:
    found = page_with(measured({0: 0.1, 12: 0.3}, sides=False))["held_out"]
    assert [line.name for line in found["chart"].series] == ["all users"]
    assert found["cells"][1][0][4:6] == ["–", "–"]


def test_gold_that_is_the_same_for_all_is_a_line_of_text() -> None:
    answers = [{**row, "gold": 0.0} for row in measured({0: 0.0, 12: 0.0})]
    found = page_with(answers)["held_out"]
    assert found["said"] == "For held-out users, gold stayed at 0.000."
    assert (found["chart"], found["gains"]) == (None, None)
    assert found["steady"] == "Gold was 0 for every policy."
    assert "Gold over KL" not in html_with(answers)


def test_a_run_that_kept_nothing_has_the_reference_alone() -> None:
    found = page_with(measured({0: 0.1}))["held_out"]
    assert found["said"].startswith("Held-out users get gold of 0.100 [")
    assert found["gains"] is None
    assert "Gold over KL" in html_with(measured({0: 0.1}))


def test_few_held_out_users_are_said() -> None:
    few, enough = (page_with(measured({0: 0.1, 12: 0.3}, users=users))["notes"] for users in (4, 20))
    assert any(note.startswith("Intervals are over 4 held-out users, too few") for note in few)
    assert enough == []


def test_without_an_evaluation_there_is_training_alone() -> None:
    rows = steps()
    html = render_page(TEMPLATE, page_of(summary_of(rows), rows))
    assert "Held-out" not in html
    assert "clustered by users" not in html
    assert html.count("<svg") == 2 * 3  # drawn wide and narrow


def test_missing_gold_is_said_and_not_drawn() -> None:
    rows = steps(gold=None)
    page = page_of(summary_of(rows), rows)
    assert page["notes"] == ["Gold is known in the lab alone: nothing here says what the users got."]
    assert [chart.title for chart in page["charts"]] == ["Reward", "KL to the reference"]
    assert "gold" not in page["said"]
    assert "Gold" not in page["steps"][0]


def test_what_did_not_change_is_a_line_of_text() -> None:
    rows = steps(gold=0.0)
    page = page_of(summary_of(rows), rows)
    assert page["steady"] == [
        "Gold: 0 at all 13 measured steps.",
        "Entropy: 6.4 at all 13 measured steps.",
        "Length: 12 at all 13 measured steps.",
        "Failed rewards: 0 at all 13 measured steps.",
    ]
    assert [chart.title for chart in page["charts"]] == ["Reward", "KL to the reference"]
    assert page_of(summary_of(rows[:1]), rows[:1])["steady"][0] == "Reward: -1 at the one measured step."


def test_one_bad_step_among_many_is_drawn() -> None:
    rows = steps(101)
    rows[1]["failure_rate"] = 0.25
    (chart,) = (each for each in page_of(summary_of(rows), rows)["charts"] if each.title == "Failed rewards")
    (line,) = chart.series
    assert (len(line.curve), len(line.marks)) == (101, 40)
    assert chart.alt == "Failed rewards. Over 100 updates: from 0 to 0, between 0 and 0.25."
    assert chart.y == round_axis(0.0, 0.25)


def test_shares_of_answers_without_an_end_or_a_word_are_said() -> None:
    rows = steps(truncated=0.25, empty=0.5)
    assert page_of(summary_of(rows), rows)["notes"] == [
        "25.0 % of the answers at the last measured step ran out of tokens.",
        "50.0 % of the answers at the last measured step were empty.",
    ]


def test_a_spent_budget_is_among_the_facts() -> None:
    rows = steps()
    facts = page_of(summary_of(rows, ended="kl_budget"), rows)["facts"]
    assert facts["updates"] == "12, when the KL budget was spent"
    assert facts["context of policy / reward model"] == "profile / none"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with hostile names; its page is written."""
    rows, answers = steps(), measured({0: 0.1, 4: 0.2, 12: 0.25})
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "evaluation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    summary = summary_of(rows, policy=HOSTILE, reward_model=HOSTILE)
    (tmp_path / "report.html").write_text(render_run(tmp_path, summary, evaluation_of(answers)))
    return tmp_path


def test_names_from_outside_stay_text_and_nothing_is_fetched(run: Path) -> None:
    html = (run / "report.html").read_text()
    assert "&lt;script&gt;" in html
    assert html.count("<script") == 1  # ours
    assert "<script" not in (run / "curves.svg").read_text()
    assert not re.search(r'src="|href="(?!data:)|https?://', html)


def test_every_drawing_has_words_for_those_who_do_not_see_it(run: Path) -> None:
    html = (run / "report.html").read_text()
    labels = re.findall(r'<svg [^>]*role="img" aria-label="([^"]*)"', html)
    assert len(labels) == html.count("<svg") == 2 * 5  # drawn wide and narrow
    assert "Reward. Over 12 updates: from -1 to 0.2, between -1 and 0.2." in labels
    assert html.count("<h1>") == 1


def test_curves_leave_out_what_was_not_measured(tmp_path: Path) -> None:
    rows = [
        {
            "step": step,
            "reward": step / 10,
            "kl": -0.1 + step,
            "gold": 0.5 if step % 20 == 0 else None,
            "length": 9 + step,
        }
        for step in range(101)
    ]
    write_curves(tmp_path / "curves.svg", "a <title>", rows)
    drawn = (tmp_path / "curves.svg").read_text()
    assert "a &lt;title&gt;" in drawn
    assert drawn.count("<polyline") == 3
    assert drawn.count('class="dot"') == 3 * 40  # points, and no legend
    assert "Gold: 0.5 at all 6 measured steps." in drawn
    assert "Entropy" not in drawn
    ElementTree.fromstring(drawn)
