"""What the border lets in, what it leaves out with a count, and what it refuses with one line."""

from pathlib import Path

import pytest

from prbench.agreement import load_answers
from prbench.errors import PrbenchError
from prbench.evaluation import evaluate


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
    with pytest.raises(PrbenchError, match="these labels are not"):
        load_answers([save("item,annotator,label\nitem-001,ann,3\n", "t.csv")], judge_runs=[folder])
    with pytest.raises(PrbenchError, match="no such file"):
        load_answers([tmp_path / "nowhere.jsonl"])
