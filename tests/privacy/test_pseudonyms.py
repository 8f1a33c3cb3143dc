"""Pseudonyms: stable under one key, unlike under another, and the key stays in its file."""

import hashlib
import hmac
import stat
from pathlib import Path

import pytest

from prbench.construction.privacy import clean_row
from prbench.construction.privacy.pseudonyms import (
    KEY_FILE,
    KEY_VARIABLE,
    Pseudonyms,
    Renaming,
    find_pseudonyms,
    known_pseudonyms,
    load_pseudonyms,
    rename_people,
)
from prbench.errors import UsageError

KEY = b"sixteen bytes ok"


@pytest.fixture(autouse=True)
def _no_key_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def test_a_pseudonym_is_the_keyed_hash_of_the_id() -> None:
    message = (4).to_bytes(8, "big") + b"user" + (4).to_bytes(8, "big") + b"anna"
    assert Pseudonyms(KEY).name("anna") == "u_" + hmac.new(KEY, message, hashlib.sha256).hexdigest()[:12]


def test_people_posts_and_items_never_share_a_name() -> None:
    names = Pseudonyms(KEY)
    ids = [names.name("a"), names.post("a", "b"), names.post("ab", ""), names.post("", "ab"), names.item("a")]
    assert len({one[2:] for one in ids}) == 5


def test_another_key_gives_other_names() -> None:
    one, two = Pseudonyms(KEY), Pseudonyms(KEY[::-1])
    assert one.name("anna") != two.name("anna")
    assert one.fingerprint != two.fingerprint


def test_a_short_key_is_refused() -> None:
    with pytest.raises(UsageError, match="16 or more"):
        Pseudonyms(b"secret")


def test_the_key_is_drawn_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    first = load_pseudonyms(tmp_path)
    path = tmp_path / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [KEY_FILE]
    assert load_pseudonyms(tmp_path).name("anna") == first.name("anna")
    assert path.read_text().strip() not in repr(first)


def test_the_environment_comes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_pseudonyms(tmp_path)
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    assert load_pseudonyms(tmp_path).name("anna") == Pseudonyms(KEY).name("anna")


def test_all_keys_at_hand_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known_pseudonyms([]) == []
    assert find_pseudonyms(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    of_folder = load_pseudonyms(tmp_path)
    monkeypatch.setenv(KEY_VARIABLE, KEY.decode())
    known = known_pseudonyms([tmp_path / KEY_FILE])
    assert [names.name("anna") for names in known] == [Pseudonyms(KEY).name("anna"), of_folder.name("anna")]


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    load_pseudonyms(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        load_pseudonyms(tmp_path)


ROW = {
    "id": "anna_k-question-1",
    "user_id": "anna_k",
    "author_email": "anna@mail.example",
    "question": "What would anna_k plant? My name is Anna Kowalska.",
    "narrative": "Kowalska, as they call me, wants beans.",
    "profile": [{"id": "anna_k/1", "text": "Call +44 20 7946 0958.", "category": "Garden", "ip": "192.0.2.1"}],
    "rubric_aspects": [{"aspect": "beans", "evidence": "Kowalska wants beans", "reason": ""}],
    "category": "Anna",
    "meta": {"writer": {"user_id": "anna_k"}, "note": "see www.anna.example", "n": 3},
}


def test_a_row_is_cleaned_as_a_whole() -> None:
    names = Pseudonyms(KEY)
    cleaned = clean_row(ROW, pseudonyms=names)
    new = names.name("anna_k")
    assert cleaned.row == {
        "id": names.item("anna_k-question-1"),
        "user_id": new,
        "question": f"What would {new} plant? My name is [name].",
        "narrative": "[name], as they call me, wants beans.",
        "profile": [{"id": names.post("anna_k", "anna_k/1"), "text": "Call [phone].", "category": "Garden"}],
        "rubric_aspects": [{"aspect": "beans", "evidence": "[name] wants beans", "reason": ""}],
        "category": "Anna",
        "meta": {"writer": {"user_id": new}, "note": "see [link]", "n": 3},
    }
    assert cleaned.counts == {"name": 3, "phone": 1, "link": 1}


def test_redaction_and_pseudonyms_can_be_had_apart() -> None:
    names = Pseudonyms(KEY)
    only_masks = clean_row(ROW, pseudonyms=None).row
    assert (only_masks["user_id"], only_masks["profile"][0]["id"]) == ("anna_k", "anna_k/1")
    only_names = clean_row(ROW, pseudonyms=names, redaction=None).row
    assert only_names["profile"][0]["text"] == "Call +44 20 7946 0958."
    assert "anna_k" not in str(only_names)


def test_a_person_with_posts_and_a_single_post_are_rows_too() -> None:
    names = Pseudonyms(KEY)
    person = clean_row({"user_id": 7, "posts": [{"id": "x", "text": "Mail a@b.example"}]}, pseudonyms=names).row
    post = clean_row({"user_id": 7, "id": "x", "text": "I am 7 today"}, pseudonyms=names).row
    assert person == {"user_id": names.name("7"), "posts": [{"id": names.post("7", "x"), "text": "Mail [email]"}]}
    assert post == {"user_id": names.name("7"), "id": names.post("7", "x"), "text": "I am 7 today"}


def test_ids_of_posts_and_of_others_go_from_texts_too() -> None:
    names = Pseudonyms(KEY)
    others = rename_people(["anna_k", "bob_the_2", "garden", "48213377", "b_1", None], names)
    row = {
        "user_id": "anna_k",
        "posts": [{"id": "post-0", "text": "See Post-0 and post-01; @Bob_the_2 and anna_k-2 liked my garden, b_1."}],
    }
    text = clean_row(row, pseudonyms=names, redaction=None, others=others).row["posts"][0]["text"]
    own, new, bob = names.post("anna_k", "post-0"), names.name("anna_k"), names.name("bob_the_2")
    assert text == f"See {own} and post-01; @{bob} and {new}-2 liked my garden, b_1."


def test_the_longest_id_that_fits_is_taken() -> None:
    change = Renaming({"anna": "u_1", "anna-maria": "u_2", "7": "u_3", "anna/1": "p_1"})
    assert change("anna, Anna-Maria and annabel: anna/1, anna/10, 7") == "u_1, u_2 and annabel: p_1, u_1/10, 7"
    assert change("7") == "u_3"


def test_without_pseudonyms_nobody_is_renamed() -> None:
    assert rename_people(["anna_k"], None)("by anna_k") == "by anna_k"
