"""The audit of a build: what `prbench data check` says, and what so few rows cannot say."""

import json
from pathlib import Path
from typing import Any

from prbench.construction.build.publish import is_green, reasons, run_audit
from prbench.construction.check.finding import Band


def write_pairs(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def pair(number: int, chosen: str, rejected: str) -> dict[str, Any]:
    return {
        "id": f"item-{number}",
        "user_id": f"user-{number}",
        "question": f"What about question{number}?",
        "profile": [{"id": f"post-{number}", "text": f"I wrote SECRETPOST{number}."}],
        "chosen": chosen,
        "rejected": rejected,
    }


def balanced(count: int) -> list[dict[str, Any]]:
    """Pairs in which every second chosen response is the longer one."""
    words = ("Take alpha{0} and beta{0}.", "Take gamma{0} and zeta{0} too, please.")
    return [pair(n, words[n % 2].format(n), words[1 - n % 2].format(n + 10_000)) for n in range(count)]


def by_name(audit: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in audit["findings"]}


def test_a_build_without_pairs_has_nothing_to_judge(tmp_path: Path) -> None:
    audit = run_audit(tmp_path, encoder="none")
    assert (audit["rows"], is_green(audit), reasons(audit)) == (0, False, ["no pairs"])
    assert json.loads((tmp_path / "audit.json").read_text()) == audit


def test_few_rows_cannot_clear_a_set_of_shortcuts(tmp_path: Path) -> None:
    write_pairs(tmp_path, balanced(8))
    audit = run_audit(tmp_path, encoder="none")
    floor = by_name(audit)["floor: the longer response"]
    assert floor["values"]["accuracy"]["value"] == 0.5
    assert not floor["judgeable"]
    assert floor["note"] == "8 rows cannot tell; about 97 rows of as many users can"
    assert "floor: the longer response" in audit["not_judgeable"]
    assert "floor: meaning of the profile" in audit["not_judgeable"]  # no encoder


def test_enough_rows_can(tmp_path: Path) -> None:
    write_pairs(tmp_path, balanced(120))
    floor = by_name(run_audit(tmp_path, encoder="none"))["floor: the longer response"]
    assert (floor["verdict"], floor["judgeable"]) == ("good", True)


def test_a_shortcut_that_a_few_rows_show_counts(tmp_path: Path) -> None:
    longer = [pair(n, f"Take alpha{n} and beta{n}, and more of it.", f"Take gamma{n}.") for n in range(20)]
    write_pairs(tmp_path, longer)
    audit = run_audit(tmp_path, encoder="none")
    assert by_name(audit)["floor: the longer response"]["verdict"] == "bad"
    assert audit["verdict"] == "bad"
    assert not is_green(audit)
    assert any(line.startswith("floor: the longer response: bad: right in 100.0 %") for line in reasons(audit))


def test_rows_needed_follow_from_the_normal_interval() -> None:
    # 1.96 * 0.5 / 0.1 = 9.8, and 9.8 squared is 96.04.
    assert Band(low=0.45, high=0.55).rows_needed == 97


def test_the_file_holds_no_text_of_anybody(tmp_path: Path) -> None:
    rows = balanced(6)
    write_pairs(tmp_path, [*rows, rows[0] | {"id": "again"}])
    run_audit(tmp_path, encoder="none")
    assert "SECRETPOST" not in (tmp_path / "audit.json").read_text()


def test_one_pair_is_audited_too(tmp_path: Path) -> None:
    write_pairs(tmp_path, balanced(1))
    assert run_audit(tmp_path, encoder="none")["rows"] == 1
