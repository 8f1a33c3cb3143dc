"""What a panel's answers say: the two questions, the annotators, and words where a number would be a lie."""

import json

import pytest

from prbench.metrics.equivalence import Equivalence
from prbench.metrics.estimate import ClusteredShare
from prbench.people.agreement import PanelReport, QuestionReply, Settings, agreement, ask, load_answers
from prbench.people.agreement.figures import Why
from prbench.schema import Estimate


def replies(panel: PanelReport) -> list[str]:
    return [question.reply.value for question in panel.questions]


def share(panel: PanelReport) -> ClusteredShare:
    assert not isinstance(panel.label, Why)
    return panel.label.by_answer


def coefficient(panel: PanelReport, name: str) -> Estimate:
    (figure,) = [
        each.figure for each in panel.reliability.coefficients if name in (each.name, f"{each.about}: {each.name}")
    ]
    assert isinstance(figure, Estimate)
    return figure


def words(figure: object) -> str:
    assert isinstance(figure, Why)
    return figure.words


def test_a_good_panel_answers_yes_twice(save, make_panel) -> None:
    panel = agreement([save(make_panel(100))])
    assert replies(panel) == ["yes", "yes"]
    assert (panel.items, panel.answers, panel.people, panel.judges) == (100, 300, 3, 0)
    assert share(panel).low > 0.75
    assert "Chance is 50 %" in panel.questions[0].because
    assert "The margin is ±0.5" in panel.questions[1].because
    assert panel.caveats == ()


def test_coins_and_a_better_chosen_response_answer_no_twice(save, make_panel) -> None:
    panel = agreement([save(make_panel(100, errors=0.5, ahead=1.5))])
    assert replies(panel) == ["no", "no"]
    assert "Beyond the margin: correctness, relevance, helpfulness" in panel.questions[1].because


def test_a_small_panel_cannot_tell_and_says_how_many_items_would(save, make_panel) -> None:
    panel = agreement([save(make_panel(12, errors=0.2, noise=1.2))], settings=Settings(margin=0.25))
    assert replies(panel) == ["cannot tell", "cannot tell"]
    for question in panel.questions:
        assert question.items == 12
        assert question.items_needed is not None
        assert question.items_needed > 12
        assert f"about {question.items_needed:,} items would settle it" in question.because


def test_the_number_of_items_named_does_settle_it(save, make_panel) -> None:
    # One panel of that size is one draw of a test with 80 % power, so several are drawn.
    few, _ = ask(load_answers([save(make_panel(30, errors=0.15, seed=3))]).people, Settings(bar=0.75))
    assert few.items_needed is not None
    assert 30 < few.items_needed < 300
    settled = 0
    for seed in range(10):
        rows = make_panel(few.items_needed, errors=0.15, seed=100 + seed)
        more, _ = ask(load_answers([save(rows, f"{seed}.jsonl")]).people, Settings(bar=0.75))
        settled += more.reply is not QuestionReply.CANNOT_TELL
    assert settled >= 5  # 8 on average; 4 or fewer have a chance of 0.6 %


def test_small_differences_within_the_margin_are_named(save, make_panel) -> None:
    panel = agreement([save(make_panel(150, ahead=0.25))])
    assert panel.questions[1].reply is QuestionReply.YES
    assert "a small difference is there: correctness" in panel.questions[1].because


def test_a_stricter_bar_or_margin_is_harder_to_pass(save, make_panel) -> None:
    people = load_answers([save(make_panel(100))]).people
    assert ask(people, Settings(bar=0.9))[0].reply is QuestionReply.CANNOT_TELL
    assert ask(people, Settings(bar=0.97))[0].reply is QuestionReply.NO
    assert ask(people, Settings(margin=0.05))[1].reply is QuestionReply.CANNOT_TELL


def test_agreement_with_the_label_by_hand(save, make_line) -> None:
    # Item a: chosen, tie; b: chosen, rejected; c: rejected. Points 1.5 + 1 + 0 of 5; majorities: even, even, rejected.
    rows = [
        make_line("a", "ann", "chosen"),
        make_line("a", "ben", "tie"),
        make_line("b", "ann", "chosen"),
        make_line("b", "ben", "rejected"),
        make_line("c", "ann", "rejected"),
        make_line("c", "ben", None),
    ]
    panel = agreement([save(rows)])
    assert not isinstance(panel.label, Why)
    assert (share(panel).estimate.value, share(panel).answers) == (pytest.approx(2.5 / 5), 5)
    assert (panel.label.by_majority.estimate.value, panel.label.even_splits) == (pytest.approx(1 / 3), 2)
    assert panel.label.ties.estimate.value == pytest.approx(1 / 5)


def test_answers_by_the_label_are_as_reliable_as_the_formula_says(save, make_panel) -> None:
    # Everybody errs with chance 0.1: alpha is (1 - 0.2)^2 = 0.64, though nine answers in ten are the same word.
    panel = agreement([save(make_panel(600, errors=0.1))])
    alpha = coefficient(panel, "choice: Krippendorff's alpha, nominal")
    assert alpha.low <= 0.64 <= alpha.high
    for name in ("Fleiss' kappa", "Cohen's kappa, all pairs"):
        assert coefficient(panel, name).value == pytest.approx(alpha.value, abs=0.01)
    named = coefficient(panel, "Krippendorff's alpha of the words chosen, rejected, tie")
    assert abs(named.value) < 0.05  # given the label, errors are independent: nothing is left to agree about
    assert len(panel.reliability.pairs) == 3


def test_position_is_told_apart_from_where_the_chosen_response_stood(save, make_line) -> None:
    # 40 items. Where chosen stands left (30), everybody is right; where it stands right (10), half are.
    rows = [make_line(f"{n:02}", "ann", side_chosen="left") for n in range(30)]
    rows += [make_line(f"{n}", "ann", ("chosen", "rejected")[n % 2], side_chosen="right") for n in range(30, 40)]
    position = agreement([save(rows)]).position
    assert isinstance(position.left_share, Estimate)
    assert isinstance(position.difference, Estimate)
    assert position.left_share.value == pytest.approx(35 / 40)
    assert position.difference.value == pytest.approx(1 - 0.5)
    assert position.difference.low > 0


def test_a_lean_to_one_side_is_a_caveat(save, make_panel) -> None:
    rows = make_panel(100)
    for row in rows[::2]:
        row["choice"] = "chosen" if row["side_chosen"] == "right" else "rejected"
    assert any(line.startswith("People lean to the right") for line in agreement([save(rows)]).caveats)


def test_tests_of_quality_are_those_of_the_metric(save, make_line) -> None:
    def ratings(one: int, two: int) -> dict[str, dict[str, int]]:
        names = ("correctness", "relevance", "helpfulness")
        return {"chosen": dict.fromkeys(names, one), "rejected": dict.fromkeys(names, two)}

    pairs = [(4, 4), (5, 4), (3, 3), (4, 5), (5, 5)]
    rows = [make_line(str(i), "ann", ratings=ratings(*pair)) for i, pair in enumerate(pairs)]
    panel = agreement([save(rows)], settings=Settings(margin=1.0))
    for quality in panel.qualities:
        assert isinstance(quality.test, Equivalence)
        assert (quality.chosen, quality.rejected) == (pytest.approx(4.2), pytest.approx(4.2))
        assert quality.test.t_below == pytest.approx(0.01705, abs=1e-4)  # worked out in tests/metrics
        assert not quality.test.equivalent  # five items leave room for what nobody has seen


def test_seven_items_do_not_show_equal_quality(save, make_line) -> None:
    names = ("correctness", "relevance", "helpfulness")
    one_off = {"chosen": dict.fromkeys(names, 5), "rejected": dict.fromkeys(names, 4)}
    rows = [make_line(str(i), "ann") for i in range(6)] + [make_line("6", "ann", ratings=one_off)]
    question = agreement([save(rows)]).questions[1]
    assert question.reply is QuestionReply.CANNOT_TELL
    assert question.items_needed is not None
    assert question.items_needed > 22  # what it takes without any difference


def test_odd_annotators_are_named(save, make_panel) -> None:
    rows = make_panel(60, ("ann", "ben", "eve"))
    for number, row in enumerate(row for row in rows if row["annotator"] == "eve"):
        left, right = ({"correctness": n, "relevance": n, "helpfulness": n} for n in (5, 3))
        stood_left = row["side_chosen"] == "left"
        row["ratings"] = {"chosen": left, "rejected": right} if stood_left else {"chosen": right, "rejected": left}
        row["choice"] = "chosen" if stood_left else "rejected"
        row["seconds"] = 3 + number % 2
    by_name = {each.name: each for each in agreement([save(rows)]).annotators}
    assert by_name["ann"].flags == by_name["ben"].flags == ()
    assert [flag.split(":")[0] for flag in by_name["eve"].flags] == ["straight-lining", "leans left", "fast"]
    assert isinstance(by_name["eve"].left_share, Estimate)
    assert by_name["eve"].left_share.value == 1.0


def test_the_same_label_throughout_is_worth_a_look_and_the_same_right_answer_is_not(save, make_line) -> None:
    lines = [f"{i},ann,{i % 3}\n{i},eve,2\n" for i in range(20)]
    ann, eve = agreement([save("item,annotator,label\n" + "".join(lines), "t.csv")]).annotators
    assert (ann.flags, eve.flags) == ((), ("the same answer, 2.0, on 20 of 20 items",))
    sides = ("left", "right")
    rows = [make_line(str(i), "ann", ratings=None, side_chosen=sides[i % 2]) for i in range(20)]
    assert agreement([save(rows)]).annotators[0].flags == ()


def test_the_mean_of_the_pairs_kappas_is_named_beside_the_pooled_one(save, make_panel) -> None:
    panel = agreement([save(make_panel(60, ("a", "b", "c", "d", "e"), per_item=2))])
    (pooled,) = [each for each in panel.reliability.coefficients if each.name == "Cohen's kappa, all pairs"]
    found = [pair.kappa for pair in panel.reliability.pairs if isinstance(pair.kappa, Estimate)]
    mean = sum(kappa.n * kappa.value for kappa in found) / sum(kappa.n for kappa in found)
    assert pooled.remark == f"Mean of 5 pairs' own kappas: {mean:.3f}, with 12 items in common (median)."


def test_annotators_by_hand(save, make_line) -> None:
    rows = [make_line(str(i), "ann", "chosen", seconds=float(i + 1)) for i in range(4)]
    rows += [make_line(str(i), "ben", ("chosen", "rejected")[i % 2]) for i in range(4)]
    rows += [make_line("0", "cleo", "tie"), make_line("9", "cleo", None)]
    ann, ben, cleo = agreement([save(rows)]).annotators
    assert isinstance(ann.with_others, Estimate)
    assert (ann.answers, ann.seconds) == (4, 2.5)
    assert ann.with_others.value == pytest.approx(2 / 5)  # ben twice of four, cleo not
    assert isinstance(ben.with_label, Estimate)
    assert (ben.with_label.value, ben.with_label.n) == (0.5, 4)
    assert (cleo.answers, cleo.no_choice, cleo.ties) == (1, 1, 1)
    assert isinstance(cleo.with_others, Estimate)
    assert cleo.with_others.value == 0.0


def test_somebody_who_goes_against_the_label_is_named_and_may_decide(save, make_panel) -> None:
    rows = make_panel(60, errors=0.02)
    for row in rows:
        if row["annotator"] == "ben":
            row["choice"] = "rejected"
    panel = agreement([save(rows)])
    assert replies(panel)[0] == "no"
    assert "goes against the label: 0 %" in panel.annotators[1].flags
    assert (
        "Without ben, “Is personal preference the discriminating factor?” would be “yes”, not “no”." in panel.caveats
    )


def test_a_judge_stands_beside_people_and_does_not_vote(save, make_panel, rows, tmp_path) -> None:
    from prbench.evaluation import evaluate

    evaluate(rows(12), "control:longest", out=tmp_path / "runs")
    (folder,) = (tmp_path / "runs").iterdir()
    people = save(make_panel(12, errors=0.0))
    alone, beside = agreement([people]), agreement([people], judge_runs=[folder])
    assert (beside.judges, beside.people) == (1, 3)
    assert beside.questions == alone.questions
    assert beside.reliability.alpha == alone.reliability.alpha
    judge = beside.annotators[-1]
    assert judge.is_judge
    assert isinstance(judge.with_label, Estimate)
    assert judge.with_label.value == 0.0  # the longest is the rejected one throughout
    (found,) = beside.reliability.judges
    assert found.verdicts == 12
    assert isinstance(found.with_majority, Estimate)
    assert found.with_majority.value == pytest.approx(-1.0)  # always the other response


def test_one_annotator(save, make_panel) -> None:
    panel = agreement([save(make_panel(60, ("ann",), per_item=1))])
    assert replies(panel) == ["yes", "yes"]
    assert "one annotator only" in words(panel.reliability.alpha)
    assert "All answers come from one person, ann." in panel.caveats
    assert "There is nobody else." in words(panel.annotators[0].alpha_without)
    assert "Nobody else" in words(panel.annotators[0].with_others)


def test_one_item(save, make_line) -> None:
    panel = agreement([save([make_line("i", "ann"), make_line("i", "ben")])])
    assert replies(panel) == ["cannot tell", "cannot tell"]
    assert "Only one item" in words(panel.reliability.alpha)
    assert "Only one item is rated" in panel.questions[1].because


def test_no_overlap(save, make_line) -> None:
    panel = agreement([save([make_line("i", "ann"), make_line("j", "ben")])])
    assert "Plan an overlap" in words(panel.reliability.alpha)
    assert words(panel.reliability.pairs[0].kappa) == "No item in common."


def test_everybody_always_right_is_complete_agreement(save, make_line) -> None:
    panel = agreement([save([make_line(str(i), name) for i in range(30) for name in ("ann", "ben")])])
    alpha = coefficient(panel, "choice: Krippendorff's alpha, nominal")
    assert (alpha.value, alpha.high) == (1.0, 1.0)
    assert 0.7 < alpha.low < 0.9
    (named,) = [each for each in panel.reliability.coefficients if "words" in each.name]
    assert "Everybody always answered 'chosen'" in words(named.figure)
    # All ratings are 4, so no variance is seen; thirty items without a difference bound it.
    assert replies(panel) == ["yes", "yes"]


def test_everybody_always_undecided(save, make_line) -> None:
    panel = agreement([save([make_line(str(i), name, "tie") for i in range(20) for name in ("ann", "ben")])])
    assert replies(panel)[0] == "no"
    assert "Everybody always answered 'tie'" in words(panel.reliability.alpha)
    assert panel.annotators[0].flags == (
        "straight-lining: the same ratings on 20 of 20 items",
        "cannot tell on 20 of 20 items",
    )


def test_no_choice_and_no_rating_at_all(save, make_line) -> None:
    panel = agreement([save([make_line(str(i), "ann", None, ratings=None, seconds=None) for i in range(3)])])
    assert replies(panel) == ["cannot tell", "cannot tell"]
    assert panel.questions[0].because == "Nobody has made a choice yet."
    assert "Nobody rated both" in panel.questions[1].because


def test_plain_labels_have_coefficients_and_no_verdict(save) -> None:
    table = "item,annotator,label\n" + "".join(
        f"{item},{name},{value}\n"
        for item, row in enumerate(["1111", "2232", "333*", "3333", "2222", "1234", "4444", "1121", "2222", "*555"])
        for name, value in zip("abcd", row, strict=True)
        if value != "*"
    )
    panel = agreement([save(table, "t.csv")])
    names = [each.name for each in panel.reliability.coefficients]
    assert names[-2:] == ["Krippendorff's alpha, ordinal", "Krippendorff's alpha, interval"]
    assert replies(panel) == ["cannot tell", "cannot tell"]
    assert "not chosen, rejected and tie" in panel.questions[0].because
    assert panel.caveats == ()


@pytest.mark.parametrize("hostile", [True, False])
def test_json_is_plain_whatever_is_missing(save, make_line, make_panel, hostile: bool) -> None:
    rows = [make_line("i", "ann", None, ratings=None, side_chosen=None)] if hostile else make_panel(20)
    content = json.dumps(agreement([save(rows)]).as_json(), allow_nan=False)
    found = json.loads(content)
    assert set(found["reliability"]) == {"alpha", "coefficients", "pairs", "judges"}
    if hostile:
        assert found["label"] == {"value": None, "why": "Nobody has made a choice yet."}
    else:
        assert set(found["label"]["by_answer"]) == {"value", "low", "high", "n", "wilson", "answers"}
        assert {"p_above", "p_below", "p_value", "equivalent", "resolves"} <= set(found["qualities"][0]["test"])


def test_the_order_of_rows_changes_nothing(save, make_panel) -> None:
    rows = make_panel(40, errors=0.2)
    forth, back = agreement([save(rows, "a.jsonl")]), agreement([save(rows[::-1], "b.jsonl")])
    assert forth == back
    assert forth != agreement([save(rows, "a.jsonl")], settings=Settings(seed=1))
