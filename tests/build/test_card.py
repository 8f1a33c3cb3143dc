"""The card: nothing from the data can break its tables, and what is missing is said to be missing."""

import json
from pathlib import Path

from prbench.construction.build.publish import card_text, figures_table, run_audit, table
from prbench.construction.build.settings import PublishSettings
from prbench.data import open_examples

EMPTY_AUDIT = {"rows": 0, "users": 0, "verdict": "skipped", "not_judgeable": [], "findings": []}
PRIVATE = PublishSettings(private=True)


def rows(count: int) -> list[dict[str, object]]:
    return [
        {
            "id": f"i{number}",
            "user_id": f"u{number % 3}",
            "question": "How many words are here?",
            "profile": [{"id": f"p{number % 3}", "text": "A post."}],
            "rubric_aspects": [{"aspect": "x"}] * (number + 1),
            "chosen": f"one two three {number}",
            "rejected": f"one two {number}",
            "split": "train" if number % 3 else "test",
        }
        for number in range(count)
    ]


def test_statistics_worked_out_by_hand() -> None:
    with open_examples(rows(4)) as store:
        figures = figures_table(list(store))  # type: ignore[arg-type]
    assert figures.splitlines()[2:] == [
        "| users | 3 |",
        "| pairs | 4 |",
        "| posts | 3 |",
        "| posts per user, on average | 1 |",
        "| aspects per pair, on average | 2.5 |",
        "| words of a question, median | 5 |",
        "| words of a chosen response, median | 4 |",
        "| words of a rejected response, median | 3 |",
        "| split `test` | 1 users, 2 pairs |",
        "| split `train` | 2 users, 2 pairs |",
    ]


def test_no_cell_breaks_out_of_its_table() -> None:
    assert table(("a", "b"), [("x | y\n| z", "<script>")]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| x \\| y \\| z | &lt;script> |",
    ]


def test_an_empty_manifest_makes_a_card_that_claims_nothing() -> None:
    with open_examples(rows(2)) as store:
        text = card_text({}, EMPTY_AUDIT, list(store), PRIVATE)  # type: ignore[arg-type]
    assert "**not green**" in text
    assert "- no pairs" in text
    assert "| user ids | as in the data |" in text
    assert "## Prompts" not in text


def test_the_card_shows_what_few_rows_cannot_tell(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(4)))
    audit = run_audit(tmp_path, encoder="none")
    with open_examples(rows(4)) as store:
        text = card_text({}, audit, list(store), PRIVATE)  # type: ignore[arg-type]
    assert "Not judgeable with 4 rows: " in text
    assert "| floor: words of the profile | not judgeable | " in text
    assert "| floor: the longer response | not judgeable | right in 100.0 %" in text


def test_a_card_says_whose_words_a_drawn_narrative_is() -> None:
    with open_examples(rows(2)) as store:
        examples = list(store)  # type: ignore[arg-type]
    said = "narratives are machine-written"
    assert said in card_text({"data": {"kind": "posts"}}, EMPTY_AUDIT, examples, PRIVATE)
    assert said not in card_text({"data": {"kind": "rows"}}, EMPTY_AUDIT, examples, PRIVATE)
