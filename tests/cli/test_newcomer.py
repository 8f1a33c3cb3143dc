"""What somebody is told who has ten pairs of five people and a small classifier, and nothing but the README."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prbench.data import open_examples

Command = Callable[..., Any]
ADVICE = {
    "ana": "Take the bus and bring lunch.",
    "bo": "Book online and go at eight.",
    "cy": "Stay on the guarded path.",
    "di": "Ask the whole group along.",
    "ed": "Walk to the lake at dusk.",
}
BROKEN = '''
from prbench.schema import Problem, Score


class Broken:
    """Asks a server that is not there."""

    def score(self, inputs):
        return [Score(value=None, problem=Problem.FAILED, detail="connection refused") for _ in inputs]
'''
QUESTIONS = ("What shall I do on Saturday?", "How do I spend my first evening in town?")


def ten_pairs(same_posts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Pairs in which each response is chosen by one person and rejected by another; some people have the same post."""
    names = list(ADVICE)
    return [
        {
            "id": f"{turn}-{name}",
            "user_id": name,
            "question": question,
            "profile": [{"id": "p", "text": "We all like things." if name in same_posts else f"I am {name}."}],
            "chosen": ADVICE[name],
            "rejected": ADVICE[names[(place + turn) % 5]],
        }
        for turn, question in enumerate(QUESTIONS, 1)
        for place, name in enumerate(names)
    ]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def verdicts(ended: Any) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in json.loads(ended.out)}


def save_classifier(folder: Path, words: Sequence[str]) -> str:
    """Save a classifier that knows these words and no others."""
    pytest.importorskip("transformers", reason="needs pip install 'prbench[hf]'")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    known = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig(vocab_size=len(known), num_labels=1, max_position_embeddings=128, **size)
    BertForSequenceClassification(config).save_pretrained(folder)
    return f"classifier:{folder}"


def test_a_tokenizer_that_knows_no_word_is_named_and_not_the_chat_template(prbench: Command, tmp_path: Path) -> None:
    model = save_classifier(tmp_path / "rm", ["xyzzy", "plugh"])
    ended = prbench("eval", "--model", model, "--data", write(tmp_path / "pairs.jsonl", ten_pairs()))
    assert (ended.code, ended.out) == (2, "")
    line = ended.err.splitlines()[-1]
    assert line.startswith(f"prbench: {tmp_path / 'rm'}: the tokenizer")
    assert "tokenizer does not know the words: 3 of 3 tokens of 'one two three' are [UNK]" in line
    assert "chat template" not in line


def test_a_tokenizer_that_knows_no_word_of_the_data_is_refused_with_the_share(
    prbench: Command, tmp_path: Path
) -> None:
    model = save_classifier(tmp_path / "rm", ["one", "two", "three"])
    ended = prbench("eval", "--model", model, "--data", write(tmp_path / "pairs.jsonl", ten_pairs()))
    # Five questions of seven tokens and five of ten, and twice the five answers: 7 + 7 + 6 + 6 + 7 tokens.
    assert ended.code == 2
    assert "tokenizer does not know the words: 151 of 151 tokens of the first items are [UNK]" in ended.err


def test_a_tokenizer_that_misses_some_words_of_the_data_is_warned_of(
    prbench: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = [word for question in QUESTIONS for word in question[:-1].split()]
    model = save_classifier(tmp_path / "rm", sorted({*asked, "one", "two", "three"}))
    ended = prbench("eval", "--model", model, "--data", write(tmp_path / "pairs.jsonl", ten_pairs()))
    assert ended.code == 0
    # Known are the six and the nine words of the questions, which five people ask, and twice the "on" of an answer.
    (told,) = [record.getMessage() for record in caplog.records if "does not know" in record.getMessage()]
    assert told.startswith(f"{model}: ")
    assert "74 of 151 tokens" in told


def test_a_donor_has_other_posts_wherever_somebody_has() -> None:
    rows = ten_pairs(same_posts=("ana", "bo", "cy"))
    with open_examples(rows) as store:
        for place, row in enumerate(rows):
            donor = store.donor(place, seed=0)
            assert donor is not None
            assert donor.texts != tuple(post["text"] for post in row["profile"])


def test_donors_are_found_in_a_crowd_of_the_same_posts() -> None:
    rows = [{**ten_pairs(ADVICE)[0], "id": str(n), "user_id": f"u{n}"} for n in range(200)]
    rows[7]["profile"] = [{"id": "p", "text": "I am the only one."}]
    with open_examples(rows) as store:
        donors = [store.donor(place, seed=0) for place in range(200)]
    assert {donor.id for place, donor in enumerate(donors) if donor and place != 7} == {"u7"}
    assert donors[7] is not None
    assert donors[7].id != "u7"


def test_pairs_that_cannot_be_swapped_are_counted_named_and_no_evidence(prbench: Command, tmp_path: Path) -> None:
    rows = ten_pairs(same_posts=("ana", "bo", "cy"))
    for row in rows:  # in this category nobody has other posts
        row["category"] = "same" if row["user_id"] in ("ana", "bo", "cy") else "own"
    data = write(tmp_path / "pairs.jsonl", rows)
    asked = ("eval", "--model", "control:overlap", "--data", data)
    summary = prbench(*asked, "--json").json
    assert summary["unswapped"] == {"items": 6, "ids": ["1-ana", "1-bo", "1-cy", "2-ana", "2-bo"]}
    assert summary["swap"]["gap"]["n"] == summary["n_items"] - 6
    told = "6 of 10 items have no swap, as nobody else of their category has other posts (1-ana, 1-bo, 1-cy, 2-ana, "
    assert told in prbench(*asked).out
    board = prbench("report", "runs", "--html", "board.html")
    assert told in " ".join(board.out.split())
    assert told in (tmp_path / "board.html").read_text(encoding="utf-8")
    found = verdicts(prbench("data", "check", "--data", data, "--audit-encoder", "none", "--json"))["profiles"]
    assert (found["verdict"], len(found["values"]["same_posts"])) == ("look", 6)
    assert "6 in whose category everybody has the same posts (1-ana, " in found["figure"]


def test_a_set_whose_users_all_have_the_same_posts_has_no_swap_gap(prbench: Command, tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.jsonl", ten_pairs(same_posts=tuple(ADVICE)))
    ended = prbench("eval", "--model", "control:overlap", "--data", data)
    assert "10 of 10 items have no swap" in ended.out
    assert next(line for line in ended.out.splitlines() if "swap gap" in line).split()[-1] == "–"
    summary = prbench("eval", "--model", "control:overlap", "--data", data, "--probes", "own,none", "--json").json
    assert summary["unswapped"] is None  # no swap was asked for


def test_labeled_pairs_tell_users_with_the_same_posts_apart(prbench: Command, tmp_path: Path) -> None:
    rows = ten_pairs(same_posts=tuple(ADVICE))
    data, labels = write(tmp_path / "pairs.jsonl", rows[:5]), write(tmp_path / "labels.jsonl", rows[5:])
    ended = prbench("eval", "--model", "control:overlap", "--data", data, "--labels", labels, "--json")
    assert ended.json["unswapped"] is None
    assert ended.json["swap"]["gap"]["n"] == 5


def test_few_rows_are_said_to_be_too_few_and_never_good(prbench: Command, tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.jsonl", ten_pairs())
    found = verdicts(prbench("data", "check", "--data", data, "--audit-encoder", "none", "--json"))
    judged = [name for name in found if name.startswith("floor") and "meaning" not in name]
    assert len(judged) == 5
    assert all(found[name]["verdict"] != "good" for name in (*judged, "length and style", "label position"))
    assert found["floor: the longer response"]["verdict"] == "too few"
    assert "10 rows are too few to tell; about 97 rows" in found["floor: the longer response"]["remedy"]


def test_another_persons_opposite_preference_is_balance_and_no_defect(prbench: Command, tmp_path: Path) -> None:
    rows = ten_pairs()[:5]
    mirrors = [
        {**row, "id": f"m-{row['id']}", "user_id": f"m-{row['user_id']}", "chosen": row["rejected"],
         "rejected": row["chosen"], "profile": [{"id": "p", "text": f"I am not {row['user_id']}."}]}
        for row in rows
    ]  # fmt: skip
    asked = ("data", "check", "--audit-encoder", "none", "--json", "--data")
    found = verdicts(prbench(*asked, write(tmp_path / "mirrored.jsonl", [*rows, *mirrors])))["duplicates"]
    assert (found["verdict"], found["remedy"]) == ("good", "")
    again = {**rows[0], "id": "again"}
    found = verdicts(prbench(*asked, write(tmp_path / "again.jsonl", [*rows, *mirrors, again])))["duplicates"]
    assert found["remedy"] == "Keep one row of each repeated group."


def test_rows_without_a_split_are_told_how_to_be_trained_on(prbench: Command, tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.jsonl", ten_pairs())
    ended = prbench("train", "--method", "head", "--data", data, "--out", "m")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "its rows belong to no split" in ended.err
    assert "Hold some of its 5 users out with --hold-out 0.4" in ended.err


def test_a_diagnosis_of_few_pairs_says_that_nothing_was_compared(prbench: Command, tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.jsonl", ten_pairs())
    run = prbench("eval", "--model", "control:longest", "--data", data, "--json").json["run_id"]
    ended = prbench("diagnose", f"runs/{run}", "--html", "page.html")
    told = "No slice could be compared with the rest: that takes 20 pairs of 10 users on either side."
    assert told in ended.out
    assert "shown to be weaker" not in ended.out
    assert "over 0 tests" not in ended.out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert told in page
    assert "By without a profile" not in page


def test_the_same_rows_in_two_files_are_one_board_with_both_names(prbench: Command, tmp_path: Path) -> None:
    for name, model in (("mine.jsonl", "control:longest"), ("copy.jsonl", "control:overlap")):
        prbench("eval", "--model", model, "--data", write(tmp_path / name, ten_pairs()))
    heads = [line for line in prbench("report", "runs").out.splitlines() if line.endswith("10 pairs of 5 users")]
    assert len(heads) == 1
    assert "mine.jsonl" in heads[0]
    assert "copy.jsonl" in heads[0]


def test_one_is_not_written_as_many(prbench: Command, tmp_path: Path) -> None:
    rows = [row for row in ten_pairs() if row["id"] == "1-ana"]
    prbench("eval", "--model", "control:longest", "--data", write(tmp_path / "pairs.jsonl", rows))
    assert "1 pair of 1 user\n" in prbench("report", "runs").out


@pytest.mark.parametrize(
    "model, told",
    [
        ("my-model", "'my-model' is a folder, and its kind is not said. If it holds a sequence classifier, write "
                     "classifier:my-model."),
        ("head:nowhere", "nowhere: there is no such folder. Give one that `prbench train` wrote."),
    ],
)  # fmt: skip
def test_a_folder_that_is_named_wrongly_is_told_how(prbench: Command, tmp_path: Path, model: str, told: str) -> None:
    (tmp_path / "my-model").mkdir()
    ended = prbench("eval", "--model", model, "--data", write(tmp_path / "pairs.jsonl", ten_pairs()))
    assert (ended.code, ended.err) == (2, f"prbench: {told}\n")


def test_a_share_that_holds_one_of_five_people_out_is_told_which_holds_two(prbench: Command, tmp_path: Path) -> None:
    data = write(tmp_path / "pairs.jsonl", ten_pairs())
    train = ("train", "--method", "head", "--data", data, "--out", "m")
    ended = prbench(*train, "--hold-out", "0.2")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "--hold-out 0.2 of 5 users is one user" in ended.err
    assert "--hold-out 0.4" in ended.err


def test_why_no_request_was_answered_stands_beside_the_missing_accuracy(
    prbench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_model.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = write(tmp_path / "pairs.jsonl", ten_pairs())
    ended = prbench("eval", "--model", "python:broken_model:Broken", "--data", data)
    assert ended.code == 1
    assert "for the reason 'failed' (connection refused)" in ended.out


def test_a_table_is_told_what_to_become(prbench: Command, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("id,question,profile,chosen,rejected\n1,Why?,I row.,So.,No.\n")
    ended = prbench("eval", "--model", "control:longest", "--data", "pairs.csv")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert (
        'pairs.csv:2: profile: must be a list, found text. Write a list of posts: [{"id": "p1", "text": "…"}]'
        in ended.err
    )


def test_a_temperature_at_its_bound_is_said_beside_the_calibration_error(prbench: Command, tmp_path: Path) -> None:
    rows = [{**row, "chosen": f"{row['chosen']} And then some more of it."} for row in ten_pairs()]
    data = write(tmp_path / "pairs.jsonl", rows)
    summary = prbench("eval", "--model", "control:longest", "--data", data, "--json").json
    assert summary["accuracy"]["value"] == 1.0
    assert summary["calibration"]["temperature_at_bound"] is True  # every margin is right
    printed = prbench("eval", "--model", "control:longest", "--data", data).out
    (line,) = [line for line in printed.splitlines() if "calibration error" in line]
    assert line.endswith("(temperature at its bound)")
    prbench("eval", "--model", "control:overlap", "--data", data)
    prbench("report", "runs", "--html", "board.html", "--csv", "board.csv")
    page = (tmp_path / "board.html").read_text(encoding="utf-8")
    assert "at its bound</span>" in page  # in the cell of the board
    assert "temperature at its bound)" in page  # in the legend of the chart
    header, *lines = [line.split(",") for line in (tmp_path / "board.csv").read_text().splitlines()]
    at_bound = {line[header.index("model")]: line[header.index("temperature_at_bound")] for line in lines}
    assert at_bound["control:longest"] == "True"
