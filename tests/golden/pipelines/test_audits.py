"""Commands that look at datasets, at finished runs, at people's answers, and that take a person out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.agreement.conftest import panel
from tests.build.lab_script import answer
from tests.check.conftest import make_pair
from tests.golden import extract_pipelines as ask
from tests.golden.conftest import Golden
from tests.support.scripted_server import ScriptedServer

Serve = Callable[..., ScriptedServer]
Rows = Callable[[int], list[dict[str, Any]]]


def people(count: int = 90) -> list[dict[str, Any]]:
    """Pairs of which the longer response is right, but for every third."""
    sides = ("A response of several words.", "Short.")
    return [
        {
            "id": f"i{n:03d}",
            "user_id": f"u{n:03d}",
            "question": "What now?",
            "profile": [{"id": "p", "text": f"I wrote this: {n}."}],
            "rubric_aspects": [{"aspect": "words", "evidence": "", "reason": ""}],
            "chosen": sides[n % 3 == 0],
            "rejected": sides[n % 3 != 0],
            "category": ("a", "b")[n % 2],
            "split": "train",
            "meta": {"kind": "hard" if n % 3 == 0 else "easy", "number": n},
        }
        for n in range(count)
    ]


def test_where_one_model_fails(golden: Golden, tmp_path: Path) -> None:
    data = str(ask.write_rows(tmp_path / "pairs.jsonl", people()))
    run = ask.evaluate(tmp_path, "control:longest", data)
    golden("diagnose_one", ask.diagnose(tmp_path, [run], by=["kind", "category"], label_next=4))


def test_where_two_models_differ(golden: Golden, tmp_path: Path, world: Path) -> None:
    runs = [
        ask.evaluate(tmp_path, model, str(world / "lab"), split="validation", probes="own,swap")
        for model in ("control:overlap", "control:longest")
    ]
    golden("diagnose_two", ask.diagnose(tmp_path, runs, label_next=6))


def test_what_to_label_next_without_labels(golden: Golden, tmp_path: Path, world: Path) -> None:
    run = ask.evaluate(tmp_path, "control:overlap", str(world / "lab"), split="validation", probes="own")
    golden("diagnose_unlabelled", ask.diagnose(tmp_path, [run], label_next=5, unlabeled=True))


def test_a_panel_of_three(golden: Golden, tmp_path: Path) -> None:
    rows = panel(30, errors=0.15, ahead=0.2)
    answers = ask.write_rows(tmp_path / "answers.jsonl", rows)
    golden("agreement_panel", ask.agreement(tmp_path, [str(answers)]))


def test_a_panel_that_is_too_small_to_tell(golden: Golden, tmp_path: Path) -> None:
    answers = ask.write_rows(tmp_path / "answers.jsonl", panel(14, errors=0.25))
    golden("agreement_too_few", ask.agreement(tmp_path, [str(answers)]))


def test_a_panel_that_agrees_throughout(golden: Golden, tmp_path: Path) -> None:
    rows = [
        row | {"choice": "chosen" if int(row["item"][-3:]) % 4 else "rejected"}
        for row in panel(24, people=("ann", "ben", "cleo", "dora"), errors=0.0)
    ]
    answers = ask.write_rows(tmp_path / "answers.jsonl", rows)
    golden("agreement_complete", ask.agreement(tmp_path, [str(answers)]))


def test_a_panel_beside_a_judge_and_other_bars(golden: Golden, tmp_path: Path, pairs: Path) -> None:
    run = ask.evaluate(tmp_path, "control:longest", str(pairs))
    table = tmp_path / "people.csv"
    lines = [
        f"item-{number:03},{name},{'rejected' if number % 5 == place else 'chosen'}"
        for number in range(12)
        for place, name in enumerate(("ann", "ben", "cleo"))
    ]
    table.write_text("item,annotator,label\n" + "\n".join(lines) + "\n")
    options = {"judge_run": run, "min_share": 0.6, "seed": 3}
    found = ask.agreement(tmp_path, [str(table)], names={run.name: "a run"}, **options)
    golden("agreement_judge", found)


def test_a_shortcut_is_found(golden: Golden, tmp_path: Path, pairs: Path) -> None:
    golden("check_shortcut", ask.check(tmp_path, str(pairs), audit_encoder="none", code=1))


def test_findings_about_the_lab(golden: Golden, tmp_path: Path, world: Path, tiny_encoder: Path) -> None:
    found = ask.check(tmp_path, str(world / "lab"), split="validation", audit_encoder=tiny_encoder, code=1)
    golden("check_lab", found, relative=1e-4)


def test_defects_of_rows_and_splits(golden: Golden, tmp_path: Path) -> None:
    rows = [make_pair(number) for number in range(40)]
    defects = [
        make_pair(1, id="again"),
        make_pair(2, id="turned", chosen=rows[2]["rejected"], rejected=rows[2]["chosen"]),
        make_pair(50, chosen="Same.", rejected="same. "),
        make_pair(51, question=rows[4]["question"], chosen=f"{rows[4]['chosen']}!", rejected=rows[4]["rejected"]),
        make_pair(52, profile=[]),
    ]
    folder = tmp_path / "folder"
    folder.mkdir()
    ask.write_rows(folder / "train.jsonl", rows[:22])
    ask.write_rows(folder / "test.jsonl", [*rows[20:], *defects])
    golden("check_defects", ask.check(tmp_path, str(folder), audit_encoder="none", code=1))


def test_two_models_side_by_side(golden: Golden, tmp_path: Path, world: Path) -> None:
    models = ("control:overlap", "control:longest")
    golden("parity", ask.parity(tmp_path, models, str(world / "lab"), split="test", limit=20, worst=3, posts=3))


def test_one_person_goes(golden: Golden, tmp_path: Path, world: Path, serve: Serve) -> None:
    rows = ask.lab_rows_as_written(world / "lab", "validation")[:6]
    source = [
        {key: row[key] for key in ("id", "user_id", "question", "profile", "rubric_aspects", "narrative", "category")}
        for row in rows
    ]
    data = ask.write_rows(tmp_path / "source.jsonl", source)
    ask.build(tmp_path, spec=serve(answer).spec, data=data, words=65, private=True, audit_encoder="none")
    ask.evaluate(tmp_path, "control:overlap", str(ask.pairs_of_build(tmp_path)))
    user = str(rows[2]["user_id"])
    shown = ask.forget(tmp_path, user, ["."], dry_run=True)
    golden("forget", {"dry run": shown, "done": ask.forget(tmp_path, user, ["."])})


def test_answers_in_every_form_of_export(golden: Golden, tmp_path: Path, pairs: Path) -> None:
    people = ("ada", "ben")
    qualities = ("correctness", "relevance", "helpfulness")
    rows = [
        {
            "item": f"item-{number:03d}",
            "annotator": name,
            "choice": ("chosen", "rejected", "tie")[(number + place) % 3],
            "side_chosen": ("left", "right")[number % 2],
            "ratings": {side: dict.fromkeys(qualities, 1 + (number + place) % 5) for side in ("chosen", "rejected")},
            "note": 'A "note",\nof two lines' if number % 2 else "",
            "seconds": 4.5 + number,
            "saved_at": f"2026-05-01T10:0{number}:00+00:00",
            "mode": "validate",
        }
        for number in range(6)
        for place, name in enumerate(people)
    ]
    answers = ask.write_rows(tmp_path / "answers.jsonl", rows)
    forms = ("rows", "argilla", "label-studio")
    found = ask.annotate(tmp_path, str(pairs), annotators=",".join(people), answers=answers, forms=forms)
    golden("annotate_validate", found)


def test_pairs_that_people_made(golden: Golden, tmp_path: Path, pairs: Path) -> None:
    rows = [
        {
            "item": f"item-{number:03d}",
            "annotator": "ada",
            "choice": ("chosen", "rejected", "tie")[number % 3],
            "side_chosen": "left",
            "ratings": {"chosen": {}, "rejected": {}},
            "note": f"note {number}",
            "seconds": 3.0,
            "saved_at": f"2026-05-01T10:0{number}:00+00:00",
            "mode": "collect",
            "why": [{"aspect": "thrift", "reason": "money"}, {"aspect": "calm"}],
            "posts": ["I grow beans.", "I paint."],
        }
        for number in range(5)
    ]
    answers = ask.write_rows(tmp_path / "answers.jsonl", rows)
    forms = ("rows", "pairs")
    found = ask.annotate(
        tmp_path, str(pairs), annotators="ada", answers=answers, forms=forms, mode="collect", overlap=1
    )
    golden("annotate_collect", found)
