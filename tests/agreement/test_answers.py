"""What the border lets in, what it leaves out with a count, and what it refuses with one line."""

import shutil
from pathlib import Path

import pytest

from prbench.errors import PrbenchError
from prbench.evaluation import evaluate
from prbench.people.agreement import load_answers


def test_a_row_keeps_the_choice_the_side_and_pairs_of_ratings(save, make_line) -> None:
    ratings = {"chosen": {"correctness": 5, "relevance": None}, "rejected": {"correctness": 4, "relevance": 3}}
    (answer,) = load_answers([save([make_line("i", "ann", "rejected", side_chosen="right", ratings=ratings)])]).rows
    assert (answer.item, answer.annotator, answer.label, answer.side_chosen) == ("i", "ann", "rejected", "right")
    assert answer.ratings == {"correctness": (5.0, 4.0)}  # the others lack one side
    assert answer.seconds == 30.0


def test_gaps_are_kept_as_gaps(save, make_line) -> None:
    bare = {"item": 7, "annotator": "ann", "choice": None, "unknown column": 1}
    (answer,) = load_answers([save([bare])]).rows
    assert (answer.item, answer.label, answer.side_chosen, dict(answer.ratings)) == ("7", None, None, {})


def test_collected_and_unfinished_rows_are_left_out_and_counted(save, make_line) -> None:
    rows = [
        make_line("a", "ann"),
        make_line("b", "ann", mode="collect"),
        make_line("c", "ann", status="draft"),
        make_line("d", "ann", status="draft"),
        make_line("e", "ann", None, status="skipped"),
        make_line("f", "ann", status="done"),
    ]
    answers = load_answers([save(rows)])
    assert [answer.item for answer in answers.rows] == ["a", "f"]
    assert [note.split(",")[0] for note in answers.notes] == ["1 rows of mode collect", "2 drafts", "1 skipped items"]


def test_flagged_answers_count_and_are_counted(save, make_line) -> None:
    answers = load_answers([save([make_line("a", "ann", flagged=True), make_line("b", "ann", seconds=0.0)])])
    assert answers.notes == ("1 answers to items that the annotator flagged; they count",)
    assert [answer.seconds for answer in answers.rows] == [30.0, None]  # 0 stands for a time that is not known


def test_of_two_answers_of_one_person_the_later_one_counts(save, make_line) -> None:
    early = make_line("i", "ann", "chosen", saved_at="2026-05-01T10:00:00+02:00")
    late = make_line("i", "ann", "rejected", saved_at="2026-05-01T09:00:00Z")  # an hour later: the zones differ
    for files in ([[early, late]], [[late, early]], [[early], [late]]):
        paths = [save(rows, f"{place}.jsonl") for place, rows in enumerate(files)]
        answers = load_answers(paths)
        assert [answer.label for answer in answers.rows] == ["rejected"]
        assert answers.notes == ("1 earlier or repeated answers of the same person to the same item, left out",)


@pytest.mark.parametrize("status", ["skipped", "draft"])
def test_an_answer_that_was_taken_back_later_does_not_count(save, make_line, status: str) -> None:
    other = make_line("j", "ann")
    answer = make_line("i", "ann", flagged=True, saved_at="2026-05-01T10:00:00Z")
    back = make_line("i", "ann", status=status, saved_at="2026-05-02T10:00:00Z")
    for rows in ([answer, back, other], [back, other, answer]):
        answers = load_answers([save(rows)])
        assert [row.item for row in answers.rows] == ["j"]
        assert [note.split(" ")[:2] for note in answers.notes] == [
            ["1", "earlier"],
            ["1", {"draft": "drafts,"}.get(status, status)],
        ]
    again = make_line("i", "ann", saved_at="2026-05-03T10:00:00Z")
    assert [row.item for row in load_answers([save([answer, back, again])]).rows] == ["i"]
    with pytest.raises(PrbenchError, match="with no later `saved_at`"):
        load_answers([save([answer, back | {"saved_at": None}])])


def test_an_item_not_begun_takes_nothing_back(save, make_line) -> None:
    rows = [make_line("i", "ann"), make_line("i", "ann", None, status="open", saved_at=None)]
    answers = load_answers([save(rows)])
    assert [row.label for row in answers.rows] == ["chosen"]
    assert answers.notes == ("1 items not begun, left out",)


def test_the_same_export_given_twice_counts_once(save, make_line) -> None:
    path = save([make_line("i", "ann"), make_line("j", "ann")])
    assert len(load_answers([path, path]).rows) == 2


def test_a_plain_table_of_words_numbers_and_gaps(save) -> None:
    table = "item,annotator,label,comment\n1,ann,3,x\n1,ben,4.5,\n2,ann,,\n"
    labels = [answer.label for answer in load_answers([save(table, "t.csv")]).rows]
    assert labels == [3.0, None, 4.5]
    words = "\ufeffannotator,item,label\nann,1,good\nben,1,nan\n"  # a byte order mark, other order, and a word
    assert [answer.label for answer in load_answers([save(words, "w.csv")]).rows] == ["good", "nan"]


def test_a_tie_between_other_labels_is_no_choice(save) -> None:
    answers = load_answers([save("item,annotator,label\n1,ann,first\n1,ben,tie\n", "t.csv")])
    assert not answers.are_choices


def test_choices_may_come_as_a_table(save, make_line) -> None:
    table = save("item,annotator,label\na,zoe,tie\n", "t.csv")
    answers = load_answers([table, save([make_line("a", "ann")])])
    assert answers.are_choices
    assert [answer.label for answer in answers.rows] == ["chosen", "tie"]


def test_a_run_stands_beside_people_on_their_items_only(save, make_line, rows, tmp_path: Path) -> None:
    run = evaluate(rows(12), "control:longest", out=tmp_path / "runs")
    people = save([make_line(f"item-{number:03}", "ann") for number in (1, 2)] + [make_line("elsewhere", "ann")])
    (folder,) = (tmp_path / "runs").iterdir()
    answers = load_answers([people], judge_runs=[folder])
    assert [(answer.annotator, answer.item) for answer in answers.judges] == [
        (f"control:longest ({folder.name})", "item-001"),
        (f"control:longest ({folder.name})", "item-002"),
    ]
    assert {answer.label for answer in answers.judges} == {"rejected"}  # the rejected texts are the longer ones
    assert answers.notes == (f"1 items of which control:longest ({folder.name}) has no verdict",)
    assert run.summary["n_items"] == 12


def row_with(field: str) -> str:
    return f'{{"item": "i", "annotator": "a", "choice": null, {field}}}'


@pytest.mark.parametrize(
    "name,content,message",
    [
        ("a.jsonl", "{", r"a.jsonl:1: row: is not valid JSON"),
        ("a.jsonl", "[1]\n", r"a.jsonl:1: row: "),
        ("a.jsonl", '\n{"annotator": "ann", "choice": "chosen"}\n', r"a.jsonl:2: item: is missing"),
        ("a.jsonl", '{"item": " ", "annotator": "a", "choice": null}', r"a.jsonl:1: item: is empty"),
        ("a.jsonl", '{"item": "i", "annotator": "a", "choice": "left"}', r"choice: Input should be 'chosen'"),
        (
            "a.jsonl",
            '{"item": "i", "annotator": "a", "choice": null, "ratings": {"chosen": {"relevance": 6}}}',
            r"ratings.chosen.relevance: Input should be less than or equal to 5, found 6",
        ),
        ("a.jsonl", '{"item": "i", "annotator": "a", "choice": null, "saved_at": "noon"}', r"saved_at: is no ISO"),
        ("a.jsonl", '{"item": "i", "annotator": "a", "choice": null, "mode": "collect"}', r"no answer in it \(1 rows"),
        ("a.jsonl", "", r"there is no answer in it\. Export again"),
        ("a.csv", "item,label\n1,2\n", r"a.csv:1: annotator: is missing"),
        ("a.csv", "item,annotator,label\n1,,2\n", r"a.csv:2: annotator: is empty"),
        ("a.csv", "item,annotator,label\n1,ann,chosen\n2,ann,maybe\n", r"'maybe' stands beside chosen and rejected"),
        ("a.csv", "item,annotator,label\n1,ann,3\n2,ann,maybe\n", r"Some labels are numbers"),
        (
            "a.csv",
            "item,annotator,label\n1,ann,3\n1,ann,4\n",
            r"a.csv:3: 'ann' answered item '1' already at .*a.csv:2",
        ),
        (
            "a.csv",
            "item,annotator,label\n1,a,5\n1,b,1_0\n",
            r"Some labels are numbers and some are words, such as '1_0'",
        ),
        ("a.jsonl", row_with('"ratings": {"chosen": {"relevance": true}}'), r"ratings.chosen.relevance: .*found True"),
        (
            "a.jsonl",
            row_with('"ratings": {"rejected": {"relevance": "5"}}'),
            r"ratings.rejected.relevance: .*found '5'",
        ),
        ("a.jsonl", row_with('"seconds": "12"'), r"seconds: .*found '12'"),
        ("a.jsonl", row_with('"flagged": "yes"'), r"flagged: .*found 'yes'"),
        ("a.jsonl", row_with('"saved_at": 1e400'), r"saved_at: .*found inf"),
        ("a.txt", "x", r"must end in .jsonl or .csv"),
        (
            "a.jsonl",
            '{"item": "i", "annotator": "a\\u001b[2J", "choice": null}',
            r"annotator: holds characters that cannot",
        ),
        ("a.jsonl", '{"item": "\\ud800", "annotator": "a", "choice": null}', r"item: holds characters that cannot"),
        ("a.csv", "item,annotator,label\n1,ann,\x1b[2J\n", r"a.csv:2: label: holds characters that cannot"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(save, name: str, content: str, message: str) -> None:
    with pytest.raises(PrbenchError, match=message) as refused:
        load_answers([save(content, name)])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "name,start,repeated,times,message",
    [
        ("a.jsonl", '{"item": ', "1", 5_000, r"a.jsonl:1: row: holds a number of thousands of digits"),
        ("a.jsonl", "", "[", 100_000, r"a.jsonl:1: row: is nested too deeply"),
        ("a.csv", 'item,annotator,label\n1,a,2\n2,a,"', "z", 140_000, r"a.csv:3: row: cannot be read as CSV"),
        ("a.csv", "item,", "z", 140_000, r"a.csv:1: row: cannot be read as CSV"),
    ],
)
def test_what_is_far_too_long_is_refused_in_one_line(
    save, name: str, start: str, repeated: str, times: int, message: str
) -> None:
    with pytest.raises(PrbenchError, match=message) as refused:
        load_answers([save(start + repeated * times, name)])
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("item,annotator,label\n1,Zoë,3\n".encode("latin-1"))
    with pytest.raises(PrbenchError, match="is not UTF-8 text"):
        load_answers([path])


def test_a_judge_needs_choices_and_common_items(save, make_line, rows, tmp_path: Path) -> None:
    evaluate(rows(3), "control:longest", out=tmp_path / "runs")
    (folder,) = (tmp_path / "runs").iterdir()
    with pytest.raises(PrbenchError, match="has no pair that people answered"):
        load_answers([save([make_line("elsewhere", "ann")])], judge_runs=[folder])
    common = save([make_line("item-001", "ann")])
    twin = Path(shutil.copytree(folder, tmp_path / "copied" / folder.name))
    with pytest.raises(
        PrbenchError, match=r"--judge-run .* stands among the annotators already\. Give every run once"
    ):
        load_answers([common], judge_runs=[folder, twin])
    with pytest.raises(PrbenchError, match="these labels are not"):
        load_answers([save("item,annotator,label\nitem-001,ann,3\n", "t.csv")], judge_runs=[folder])
    with pytest.raises(PrbenchError, match="no such file"):
        load_answers([tmp_path / "nowhere.jsonl"])
