"""Publishing: a folder that others can load, the same bytes every time, and nothing without consent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from prbench.construction.build.publish import check_may_publish, publish, read_shares, split_of
from prbench.construction.build.settings import PublishSettings
from prbench.data import open_examples
from prbench.errors import DataError, UsageError
from prbench.prompts import load_template

OPEN = PublishSettings(license="cc-by-4.0", consent="All writers agreed in writing.", title="Balconies")
MANIFEST: dict[str, Any] = {
    "settings": {"rank": "bm25", "posts": 10, "seed": 3, "pseudonyms": True, "redact": True, "subset": None},
    "models": {"generator": "openai:writer@http://127.0.0.1:1/v1", "judge": "fake:<judge>"},
    "prompts": {name: load_template(name).hash for name in ("plan", "rate")},
    "thresholds": {"verify.chosen_mean": 1.5},
    "stages": {
        "rank": {"in": 20, "out": 20, "rejected": {}, "failed": 0},
        "verify": {"in": 20, "out": 12, "rejected": {"aspect_missing": 7}, "failed": 1},
    },
    "data": {"kind": "rows", "hash": "abc", "masked": {"name": 4}},
    "redaction": "patterns",
}


@pytest.fixture
def folder(tmp_path: Path, rows: Callable[[int], list[dict[str, Any]]]) -> Path:
    """A build of twelve pairs, as far as publishing can see."""
    place = tmp_path / "my_build"
    place.mkdir()
    (place / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    (place / "rejects.jsonl").write_text('{"id": "x", "reason": "aspect_missing", "chosen": "A REJECTED TEXT"}\n')
    (place / "pseudonym.key").write_text("0123456789abcdef0123456789abcdef")
    (place / "summary.json").write_text(json.dumps(MANIFEST))
    (place / "audit.json").write_text(
        json.dumps({"rows": 12, "users": 3, "hash": "", "verdict": "good", "not_judgeable": [], "findings": []})
    )
    return place


def all_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_dataset_is_read_by_us_and_by_datasets(folder: Path) -> None:
    from datasets import load_dataset

    place = publish(folder, OPEN)
    assert place == folder / "dataset"
    with open_examples(place) as store:
        assert sorted(example.id for example in store) == [f"item-{number:03d}" for number in range(12)]
    for config in ("Art_and_Entertainment", "Society_and_Culture"):
        loaded = list(load_dataset(str(place), config, split="test", streaming=True))
        assert len(loaded) == 6
        assert loaded[0]["rubric_aspects"] == [
            {"aspect": "low cost", "evidence": "I count my coins.", "reason": "Money is short."}
        ]


def test_the_same_build_gives_the_same_bytes_and_replaces_what_was_there(folder: Path) -> None:
    first = all_bytes(publish(folder, OPEN))
    (folder / "dataset" / "stale.txt").write_text("old")
    (folder / "dataset.7.tmp").mkdir()
    assert all_bytes(publish(folder, OPEN)) == first
    assert sorted(path.name for path in folder.iterdir() if "dataset" in path.name) == ["dataset"]


def test_the_card_says_how_the_set_was_made_and_lost(folder: Path) -> None:
    text = (publish(folder, OPEN) / "README.md").read_text()
    header = yaml.safe_load(text.split("---")[1])
    assert header["license"] == "cc-by-4.0"
    assert [config["config_name"] for config in header["configs"]] == ["Art_and_Entertainment", "Society_and_Culture"]
    for line in (
        "# Balconies",
        "| users | 3 |",
        "| pairs | 12 |",
        "| posts | 12 |",
        "| posts per user, on average | 4 |",
        "| words of a chosen response, median | 7 |",
        "| words of a rejected response, median | 10 |",
        "| verify | 20 | 12 | 60.0 % | 7 aspect missing, 1 failed requests |",
        "| model: judge | `fake:&lt;judge>` |",
        f"| [`plan`](prompts/plan.md) | `{load_template('plan').hash}` |",
        "| verify.chosen_mean | 1.5 |",
        "| license | cc-by-4.0 |",
        "| consent | All writers agreed in writing. |",
        "| user ids | pseudonyms |",
        "| texts | redacted (names by patterns): 4 name |",
    ):
        assert line in text, line


def test_neither_key_nor_rejects_get_into_the_dataset(folder: Path) -> None:
    everything = b"".join(all_bytes(publish(folder, OPEN)).values())
    assert b"0123456789abcdef" not in everything
    assert b"A REJECTED TEXT" not in everything
    assert (folder / "rejects.jsonl").exists()


def test_the_prompts_are_there_word_for_word(folder: Path) -> None:
    place = publish(folder, OPEN)
    assert load_template(place / "prompts" / "plan.md").hash == load_template("plan").hash


def test_a_prompt_that_changed_since_the_build_is_refused(folder: Path) -> None:
    (folder / "summary.json").write_text(json.dumps(MANIFEST | {"prompts": {"plan": "000000000000"}}))
    with pytest.raises(DataError, match="another one than the pairs were made with"):
        publish(folder, OPEN)


@pytest.mark.parametrize("given", [{}, {"license": "cc0-1.0"}, {"consent": "yes"}, {"license": " ", "consent": "yes"}])
def test_without_license_and_consent_nothing_is_handed_on(folder: Path, given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--private"):
        publish(folder, PublishSettings(**given))
    assert not (folder / "dataset").exists()


def test_a_private_set_needs_neither_and_says_so(folder: Path) -> None:
    text = (publish(folder, PublishSettings(private=True)) / "README.md").read_text()
    assert "# my_build" in text
    assert "**Private: not to be handed on.**" in text
    assert "| consent | not stated |" in text


def test_a_date_is_there_only_if_it_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Date:" not in (publish(folder, OPEN) / "README.md").read_text()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert "Date: 1970-01-02" in (publish(folder, OPEN) / "README.md").read_text()
    with pytest.raises(UsageError, match="YYYY-MM-DD"):
        check_may_publish(PublishSettings(private=True, date="May 1"))


def test_a_build_without_pairs_cannot_be_published(folder: Path) -> None:
    (folder / "pairs.jsonl").write_text("")
    with pytest.raises(DataError, match=r"rejects\.jsonl"):
        publish(folder, OPEN)


def test_shares_are_read_or_refused() -> None:
    assert read_shares("") == {"test": 1.0}
    assert read_shares("train=0.8, test=0.2") == {"train": 0.8, "test": 0.2}
    for wrong in ("train", "train=2", "train=0.5,test=0.4", "a=0.5,a=0.5", "Train=1", "../x=1"):
        with pytest.raises(UsageError, match="--split-by-user"):
            read_shares(wrong)


def test_users_are_split_whole_and_nobody_moves(folder: Path) -> None:
    shares = read_shares("train=0.75,test=0.25")
    users = [f"user-{number}" for number in range(4000)]
    in_train = sum(split_of(user, shares) == "train" for user in users)
    assert 2900 < in_train < 3100  # 3000 expected; 3.6 standard deviations
    place = publish(folder, PublishSettings(private=True, split_by_user="train=0.75,test=0.25"))
    for path in place.rglob("*.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            assert row["split"] == path.stem == split_of(row["user_id"], shares)


def test_the_last_second_that_has_a_date(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "253402300799")
    assert "Date: 9999-12-31" in (publish(folder, OPEN) / "README.md").read_text()
