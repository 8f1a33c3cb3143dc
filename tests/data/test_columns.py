"""Tables, and `--columns`: which columns are meant where no importer knows the format."""

from pathlib import Path

import pytest
from tests.data.test_original_formats import Command, only, put, table
from tests.support.command_line import prbench

from prbench.data import load_dataset, open_examples
from prbench.errors import DataError, UsageError
from prbench.schema import Example

__all__ = ["prbench"]  # a fixture

ODD = table(
    {"nr": "1", "who": "ana", "ask, please": "Where to?", "a": "To the lake.", "b": "To the mall.", "winner": "A"},
    {"nr": "2", "who": "bo", "ask, please": "What now?", "a": "Sleep,\nthen walk.", "b": "Read.", "winner": "B"},
)
MAP = 'id=nr,user_id=who,question="ask, please",first=a,second=b,label=winner:A/B'


def test_columns_of_an_odd_table_are_named(prbench: Command, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text(ODD)
    with open_examples("odd.csv", columns=MAP) as store:
        pairs = [pair for pair in store if isinstance(pair, Example)]
    assert [(pair.id, pair.user.id, pair.question, pair.chosen, pair.rejected) for pair in pairs] == [
        ("1", "ana", "Where to?", "To the lake.", "To the mall."),
        ("2", "bo", "What now?", "Read.", "Sleep,\nthen walk."),
    ]
    assert pairs[0].meta == {"winner": "A"}
    # The longer one of row 1 is rejected by a letter (12 against 12: a tie), that of row 2 is rejected.
    summary = prbench("eval", "--model", "control:shortest", "--data", "odd.csv", "--columns", MAP, "--json").json
    assert summary["accuracy"]["value"] == 0.75
    converted = prbench("data", "convert", "jsonl:ours.jsonl", "--data", "odd.csv", "--columns", MAP)
    assert converted.code == 0
    with open_examples("ours.jsonl") as again:
        assert list(again) == pairs


def test_columns_lead_into_objects_and_lists(tmp_path: Path) -> None:
    row = {
        "chat": [{"text": "Where to?"}],
        "answers": {"good": ["To the lake."], "bad.one": "To the mall."},
        "history": ["I row.", "I swim."],
        "level": 3,
    }
    put(tmp_path, {"a.jsonl": [row]})
    columns = 'question=chat[0].text, chosen=answers.good[0], rejected=answers."bad.one", profile=history'
    pair = only(tmp_path / "a.jsonl", columns=columns)
    assert (pair.question, pair.chosen, pair.rejected) == ("Where to?", "To the lake.", "To the mall.")
    assert [(post.id, post.text) for post in pair.user.profile] == [("1", "I row."), ("2", "I swim.")]
    assert pair.meta == {"level": 3}
    put(tmp_path, {"a.jsonl": [{"ask": "Why?", "said": "So.", "stars": 0.5, "who": "ana"}]})
    (rated,) = load_dataset(tmp_path / "a.jsonl", columns="prompt=ask,response=said,rating=stars,user_id=who")
    assert (rated.question, rated.response, rated.rating, rated.user.id) == ("Why?", "So.", 0.5, "ana")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "columns,line",
    [
        ("chosen", "cannot be read from 'chosen' on. Write ours=theirs"),
        ("chosen=a;rejected=b", "cannot be read"),
        ("chosn=a", "Known columns: id, .* Did you mean 'chosen'?"),
        ("chosen=a,chosen=b", "chosen is given twice"),
        ("first=a,second=b", "first, second and label belong together"),
        ("first=a,second=b,label=winner", "values belong to the label"),
        ("chosen=a:1/2", "values belong to the label"),
        ("first=a,second=b,label=winner:A/A", "the two values of the label must differ"),
        ("question=a,prompt=b,chosen=a,rejected=b", "question and prompt mean the same"),
    ],
)
def test_column_map_that_cannot_be_read_is_one_line(columns: str, line: str) -> None:
    with pytest.raises(UsageError, match=line.replace("?", r"\?").replace(".* Did", ".* Did")):
        load_dataset([{"a": "x", "b": "y"}], columns=columns)


def test_row_that_lacks_a_named_column_is_a_bad_row(tmp_path: Path) -> None:
    columns = "prompt=ask,first=a,second=b,label=winner:A/B"
    good = {"ask": "Why?", "a": "So.", "b": "No.", "winner": "A"}
    for bad, fact in (
        ({"ask": "Why?", "a": "So.", "winner": "A"}, r"has no column 'b' \(it has: ask, a, winner\)"),
        ({**good, "winner": "tie"}, "has the label 'tie', which is neither 'A' nor 'B'"),
    ):
        put(tmp_path, {"a.jsonl": [good, bad]})
        with pytest.raises(DataError, match=rf"a\.jsonl:2: row: {fact}\. Correct --columns, or drop the row\.$"):
            load_dataset(tmp_path / "a.jsonl", columns=columns)
        assert only(tmp_path / "a.jsonl", columns=columns, skip_bad_rows=1).chosen == "So."
    with pytest.raises(UsageError, match="--columns is for files, and lab has our columns"):
        load_dataset("lab", columns=columns)


def test_table_of_our_columns_needs_no_map(tmp_path: Path) -> None:
    row = {
        "id": "1",
        "user_id": "",
        "question": "Why?",
        "profile": '[{"id": "p", "text": "I row."}]',
        "chosen": "[So.]",
        "rejected": "No.",
    }
    for name, text in (("a.csv", table(row)), ("a.tsv", table(row, delimiter="\t"))):
        (tmp_path / name).write_text(text)
        pair = only(tmp_path / name)
        assert (pair.chosen, pair.user.profile[0].text) == ("[So.]", "I row.")


def test_damage_in_a_table_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ODD + "3,cy,Why?,x,y,A,too many\n")
    with pytest.raises(DataError, match=r"a\.csv:5: row: has more cells than the header has columns"):
        load_dataset(path, columns=MAP)
    path.write_bytes(ODD.encode() + b"3,cy,Why?,caf\xe9,y,A\n")
    with pytest.raises(DataError, match=r"a\.csv:5: row: is not UTF-8"):
        load_dataset(path, columns=MAP)
    assert len(load_dataset(path, columns=MAP, skip_bad_rows=1)) == 2
    path.write_text("a,a\n1,2\n")
    with pytest.raises(DataError, match=r"a\.csv: has two columns 'a'\. Rename one of the two\.$"):
        load_dataset(path)
