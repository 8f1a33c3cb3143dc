"""`prbench annotate agreement`: two questions in words, JSON for machines, a page, and one line for what is wrong."""

import json
from pathlib import Path

import pytest

QUALITIES = ("correctness", "relevance", "helpfulness")


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Sixty items, two people on each; they miss the label on every tenth, at different items."""
    rows = [
        {
            "item": f"item-{number:03}",
            "annotator": name,
            "choice": "rejected" if number % 10 == place else "chosen",
            "side_chosen": ("left", "right")[(number // 2 + place) % 2],
            "ratings": {
                "chosen": dict.fromkeys(QUALITIES, 3 + number % 2),
                "rejected": dict.fromkeys(QUALITIES, 3 + (number + place) % 2),
            },
            "seconds": 20 + number % 7,
            "saved_at": "2026-05-01T10:00:00Z",
            "mode": "validate",
        }
        for number in range(60)
        for place, name in enumerate(("ann", "ben"))
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_it_answers_both_questions(prbench, answers: Path) -> None:
    ended = prbench("annotate", "agreement", str(answers))
    assert (ended.code, ended.err) == (0, "")
    assert "120 answers of 2 people to 60 items" in ended.out
    assert "Is personal preference the discriminating factor? yes" in ended.out
    assert "Is general quality equal? yes" in ended.out
    assert "choice: Fleiss' kappa" in ended.out
    assert "left picks: " in ended.out


def test_json_has_every_figure(prbench, answers: Path) -> None:
    ended = prbench("annotate", "agreement", str(answers), "--json", "--margin", "0.1", "--seed", "3")
    found = ended.json
    assert (ended.code, ended.err) == (0, "")
    assert [question["reply"] for question in found["questions"]] == ["yes", "cannot tell"]
    assert found["settings"] == {"margin": 0.1, "bar": 0.75, "alpha": 0.05, "seed": 3}
    # Each misses 6 of 60, never the same item: they agree on 48.
    same = next(each for each in found["reliability"]["coefficients"] if each["name"].startswith("same answer"))
    assert same["figure"]["value"] == pytest.approx(48 / 60)
    (pair,) = found["reliability"]["pairs"]
    assert pair["kappa"]["value"] == pytest.approx((0.8 - 0.5) / 0.5)
    assert found["label"]["by_answer"]["value"] == pytest.approx(0.9)


def test_the_page_is_written_and_named(prbench, answers: Path) -> None:
    ended = prbench("annotate", "agreement", str(answers), "--html", "pages/agreement.html")
    assert "page: pages/agreement.html" in ended.err
    assert Path("pages/agreement.html").read_text().startswith("<!doctype html>")


def test_the_same_command_prints_the_same(prbench, answers: Path) -> None:
    first, again = (prbench("annotate", "agreement", str(answers), "--json").out for _ in range(2))
    assert first == again


def test_a_run_of_a_judge_is_one_more_line(prbench, pairs: Path, tmp_path: Path) -> None:
    assert prbench("eval", "--data", str(pairs), "--model", "control:longest", "--out", "runs").code == 0
    (folder,) = Path("runs").iterdir()
    people = tmp_path / "people.csv"
    lines = [f"item-{number:03},{name},chosen" for number in range(12) for name in ("ann", "ben")]
    people.write_text("item,annotator,label\n" + "\n".join(lines) + "\n")
    ended = prbench("annotate", "agreement", str(people), "--judge-run", str(folder), "--json")
    judge = ended.json["annotators"][-1]
    assert (judge["name"], judge["is_judge"]) == (f"control:longest ({folder.name})", True)
    assert ended.json["people"] == 2


@pytest.mark.parametrize(
    "arguments,message",
    [
        (("nowhere.jsonl",), "nowhere.jsonl: there is no such file"),
        (("ROWS", "--margin", "0"), "margin is 0"),
        (("ROWS", "--margin", "4"), "margin is 4.0. Give points above 0 and below 4"),
        (("ROWS", "--alpha", "0.5"), "alpha is 0.5"),
        (("ROWS", "--min-share", "1"), "bar is 1.0. Give a share"),
        (("ROWS", "--judge-run", "nowhere"), "nowhere: no such run"),
        (("ROWS", "--html", "."), "is a folder"),
        ((), "files"),
    ],
)
def test_bad_input_is_one_line(prbench, answers: Path, arguments: tuple[str, ...], message: str) -> None:
    given = [str(answers) if argument == "ROWS" else argument for argument in arguments]
    ended = prbench("annotate", "agreement", *given)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message.lower() in ended.err.lower()
