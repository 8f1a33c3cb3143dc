"""What a build reads, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.build.conftest import user_row

from prbench.construction.build import BuildSettings
from prbench.construction.build.sources import SourceItems, read_items
from prbench.construction.privacy.pseudonyms import Pseudonyms
from prbench.errors import DataError

NAMES = Pseudonyms(b"0123456789abcdef")
ROW: dict[str, Any] = {
    "id": "q1",
    "question": "What should I read?",
    "narrative": "I like slow books. Write to me@example.org.",
    "profile": [{"id": "ann-1", "text": "I read on trains."}, {"id": "ann-2", "text": "Ask me@example.org."}],
    "user_id": "ann_reads",
    "category": "books",
    "secret_column": "ann_reads lives in Rome",
    "rubric_aspects": [{"aspect": "slow", "evidence": "I like slow books.", "reason": "She says so."}],
}


def read(path: Path, rows: list[dict[str, Any]], names: Pseudonyms | None = None, **changes: Any) -> SourceItems:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    limit = changes.pop("limit", None)
    usual = {"data": str(path), "generator": "fake:x", "judge": "fake:x", "quality_judge": "fake:x"}
    return read_items(BuildSettings(**(usual | changes)), names, limit)


def test_rows_with_questions_need_no_responses(tmp_path: Path) -> None:
    found = read(tmp_path / "rows.jsonl", [ROW])
    (item,) = found.items
    assert (found.kind, item.id, item.user.id, item.category) == ("rows", "q1", "ann_reads", "books")
    assert [post.id for post in item.user.profile] == ["ann-1", "ann-2"]
    assert item.rubric[0].evidence == "I like slow books."
    assert not item.meta  # unknown columns stay behind


def test_a_row_without_a_rubric_and_without_a_narrative_is_a_row(tmp_path: Path) -> None:
    row = {key: ROW[key] for key in ("id", "question", "profile")}
    (item,) = read(tmp_path / "rows.jsonl", [row]).items
    assert (item.rubric, item.narrative) == ((), "")
    assert item.user.id.startswith("profile-")


def test_parquet_and_folders_read_alike(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = read(tmp_path / "rows.jsonl", [ROW])
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([ROW]), folder / "test.parquet")
    settings = BuildSettings(data=str(folder), generator="fake:x", judge="fake:x", quality_judge="fake:x")
    assert read_items(settings, None).items == rows.items


def test_no_id_of_a_person_passes_the_border(tmp_path: Path) -> None:
    found = read(tmp_path / "rows.jsonl", [ROW], NAMES)
    (item,) = found.items
    assert item.user.id == NAMES.name("ann_reads")
    assert item.id == NAMES.item("q1")
    assert item.user.profile[0].id == NAMES.post("ann_reads", "ann-1")
    assert "ann" not in repr(item)


def test_redaction_comes_before_everything(tmp_path: Path) -> None:
    found = read(tmp_path / "rows.jsonl", [ROW], redact=True)
    (item,) = found.items
    assert "me@example.org" not in repr(item)
    assert item.narrative == "I like slow books. Write to [email]."
    assert found.masked["email"] == 2
    assert found.redaction


def test_names_masks_and_a_limit_do_not_change_the_hash_but_a_word_does(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [ROW, ROW | {"id": "q2"}]
    plain = read(path, rows)
    assert plain.hash == read(path, rows, NAMES, redact=True, limit=1).hash
    assert plain.hash != read(path, [ROW, ROW | {"id": "q2", "question": "What now?"}]).hash


def test_posts_by_user_and_post_by_post_are_the_same(tmp_path: Path) -> None:
    by_user = [user_row(0), user_row(1)]
    single = [{"user_id": row["user_id"], **post} for row in by_user for post in row["posts"]]  # type: ignore[attr-defined]
    one, other = read(tmp_path / "a.jsonl", by_user), read(tmp_path / "b.jsonl", single)
    assert one.kind == other.kind == "posts"
    assert one.items == other.items
    assert one.hash == other.hash


def test_the_held_out_post_leaves_the_profile(tmp_path: Path) -> None:
    (item,) = read(tmp_path / "posts.jsonl", [user_row(0)]).items
    assert item.held_out is not None
    assert len(item.user.profile) == 3
    assert item.held_out not in item.user.profile


def test_all_held_out_posts_of_a_user_leave_all_their_profiles(tmp_path: Path) -> None:
    items = read(tmp_path / "posts.jsonl", [user_row(0)], questions_per_user=9).items
    assert len(items) == 3  # of four posts one must be left
    for item in items:
        assert not [each.held_out for each in items if each.held_out in item.user.profile]


def test_another_seed_holds_out_other_posts(tmp_path: Path) -> None:
    rows = [user_row(number) for number in range(12)]
    drawn = [[item.held_out for item in read(tmp_path / "p.jsonl", rows, seed=seed).items] for seed in (0, 1)]
    assert drawn[0] != drawn[1]


def test_a_user_with_one_post_is_an_item_without_one_to_draw_from(tmp_path: Path) -> None:
    (item,) = read(tmp_path / "p.jsonl", [{"user_id": "u", "text": "One post of many words, but only one."}]).items
    assert item.held_out is None


def test_lab_items_keep_the_truth_and_one_question_per_user(tmp_path: Path) -> None:
    settings = BuildSettings(data="lab", users=5, generator="fake:x", judge="fake:x", quality_judge="fake:x")
    items = read_items(settings, NAMES).items
    assert len(items) == len({item.user.id for item in items}) == 5
    for item in items:
        assert set(item.meta["lab"]) == {"id", "subject", "level", "wanted"}
        assert item.user.id.startswith("u_")


def test_a_copy_of_the_held_out_post_leaves_the_profile_too(tmp_path: Path) -> None:
    posts = [
        {"text": f"The same long post about one thing, written more than once, {n % 2} in all."} for n in range(6)
    ]
    (item,) = read(tmp_path / "p.jsonl", [{"user_id": "u", "posts": posts}]).items
    assert item.held_out is not None
    assert [post.text for post in item.user.profile] != [item.held_out.text]
    assert len(item.user.profile) == 1


@pytest.mark.parametrize(
    "row,message",
    [
        (ROW | {"question": " "}, r"rows.jsonl:1: question: is empty"),
        ({key: ROW[key] for key in ROW if key != "profile"}, r"rows.jsonl:1: profile: is missing"),
        (ROW | {"narrative": 3}, r"rows.jsonl:1: narrative: input should be a valid string"),
        (ROW | {"profile": [{"id": "p", "text": ""}]}, r"rows.jsonl:1: profile\[0\].text: is empty"),
        ({"user_id": "u", "posts": [{"text": "  "}]}, r"rows.jsonl:1: posts\[0\].text: is empty"),
        ({"text": "nobody wrote this"}, r"rows.jsonl:1: user_id: is missing"),
        ({"user": "u"}, r"rows.jsonl:1: row: has neither question nor posts nor text"),
        (ROW | {"user_id": ""}, r"rows.jsonl:1: user_id: is empty"),
        (ROW | {"user_id": "\u200b "}, r"rows.jsonl:1: user_id: is empty"),
        (ROW | {"question": "Why \ud800?"}, r"rows.jsonl:1: question: holds half of a surrogate pair"),
        (ROW | {"category": "\ud800"}, r"rows.jsonl:1: category: holds half of a surrogate pair"),
        (ROW | {"rubric_aspects": [{"aspect": "\ud800"}]}, r"rows.jsonl:1: rubric_aspects\[0\].aspect: holds half"),
        (ROW | {"profile": [{"id": "p", "text": "\udfff"}]}, r"rows.jsonl:1: profile\[0\].text: holds half"),
        (ROW | {"category": "prompts"}, r"rows.jsonl:1: category: is the name of something in every dataset folder"),
        (ROW | {"category": "README.md"}, r"rows.jsonl:1: category: is the name of something"),
        ({"user_id": "", "text": "Some words."}, r"rows.jsonl:1: user_id: is empty"),
        ({"user_id": "\ud800", "posts": [{"text": "a"}]}, r"rows.jsonl:1: user_id: holds half of a surrogate pair"),
        ({"user_id": "u", "posts": [{"text": "a \ud800"}]}, r"rows.jsonl:1: posts\[0\].text: holds half"),
        ({"user_id": "u", "text": "a", "category": "Prompts"}, r"rows.jsonl:1: category: is the name of something"),
    ],
)
def test_a_bad_row_is_named_with_its_place(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    for names in (None, NAMES):
        with pytest.raises(DataError, match=message):
            read(tmp_path / "rows.jsonl", [row], names)


@pytest.mark.parametrize("names", [None, NAMES])
def test_two_rows_with_one_id_are_refused_by_the_id_in_the_data(tmp_path: Path, names: Pseudonyms | None) -> None:
    with pytest.raises(DataError, match=r"rows.jsonl:2: id: 'q1' stands twice, first in .*rows.jsonl:1\. Give"):
        read(tmp_path / "rows.jsonl", [ROW, ROW], names)


def test_two_posts_with_one_id_are_refused_by_the_id_in_the_data(tmp_path: Path) -> None:
    posts = [{"id": f"p{n // 2}", "text": f"{'long ' * 12}post number {n}"} for n in range(4)]
    with pytest.raises(DataError, match=r"p.jsonl:1: id: 'p0' stands twice among the posts of one user\. Give"):
        read(tmp_path / "p.jsonl", [{"user_id": "u", "posts": posts}], NAMES, questions_per_user=3)


def test_a_post_with_an_empty_id_is_a_post_without_one(tmp_path: Path) -> None:
    row = ROW | {"profile": [{"id": " ", "text": "I read on trains."}]}
    (item,) = read(tmp_path / "rows.jsonl", [row]).items
    assert item.user.profile[0].id == "q1-0"


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no rows"):
        read(tmp_path / "rows.jsonl", [])
