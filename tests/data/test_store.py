"""The store: one checking pass, rows on disk, a small index, and stable donors."""

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prbench.data import open_examples
from prbench.data.rows import to_example
from prbench.errors import DataError, UsageError
from prbench.schema import Example, Post, RatedExample, User


def rated_row(number: int) -> dict[str, Any]:
    return {"id": f"r{number}", "user_id": "u", "question": "Why?", "profile": [], "response": "So.", "rating": 0.5}


def write_parquet(rows: list[dict[str, Any]], path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_rows_come_back_whole_and_in_order(write_rows: Any, make_row: Any) -> None:
    rows = [make_row(n, extra_column=[n]) for n in range(5)]
    with open_examples(write_rows(rows)) as store:
        expected = [to_example(row, "x") for row in rows]
        assert (len(store), store.kind) == (5, "pairs")
        assert list(store) == expected
        assert [store[3], store[-1]] == [expected[3], expected[4]]
        with pytest.raises(IndexError):
            store[5]


def test_post_ids_stay_with_their_texts(write_rows: Any, make_row: Any) -> None:
    posts = [{"id": str(9 - n), "category": "c", "text": f"text of post {9 - n}"} for n in range(9)]
    with open_examples(write_rows([make_row(1, profile=posts)])) as store:
        assert [(post.id, post.text) for post in store[0].user.profile] == [(p["id"], p["text"]) for p in posts]


def test_examples_and_plain_rows_can_come_from_python(make_row: Any) -> None:
    example = to_example(make_row(1), "x")
    with open_examples(iter([example, make_row(2)])) as store:
        assert list(store) == [example, to_example(make_row(2), "x")]


def test_records_from_python_are_checked_too() -> None:
    example = Example(id="a", user=User(id="u"), question="Why?", chosen="So.", rejected=" ")
    with pytest.raises(DataError, match=r"^examples:1: rejected: is empty\. "):
        open_examples([example])


def test_rated_rows_are_a_kind_of_their_own(write_rows: Any) -> None:
    with open_examples(write_rows([rated_row(1), rated_row(2)])) as store:
        assert store.kind == "rated"
        assert isinstance(store[0], RatedExample)
        assert store.users == 1


def test_mixed_kinds_are_refused(write_rows: Any, make_row: Any) -> None:
    path = write_rows([make_row(1), rated_row(2)])
    with pytest.raises(DataError) as error:
        open_examples(path)
    assert str(error.value) == (
        f"{path}:2: row: is a rated response, but the rows before it are not. "
        "Keep pairs and rated responses in separate files."
    )


def test_kind_is_that_of_the_first_good_row(write_rows: Any, make_row: Any) -> None:
    with open_examples(write_rows([make_row(1, chosen=""), rated_row(2)]), skip_bad_rows=1) as store:
        assert store.kind == "rated"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "changes,message",
    [
        ({"id": "q1"}, "id: 'q1' was used before, at {path}:1. Give every row its own id."),
        ({"question": " "}, "question: is empty. Fill it in, or drop the row."),
        (
            {"profile": [{"id": "a", "category": "", "text": ""}]},
            "profile[0].text: is empty. Fill it in, or drop the row.",
        ),
        (
            {"rejected": "Take the coast path, part 2."},
            "rejected: is the same text as chosen, so the pair tests nothing. "
            "Drop the row, or leave it out with --skip-bad-rows 1.",
        ),
        ({"profile": None}, "profile: is null. Add the user's posts; an empty list stands for a user without any."),
        ({"chosen": None}, "chosen: is null. Add it, or drop the row."),
    ],
)
def test_bad_row_is_named_by_file_line_and_field(
    tmp_path: Path, write_rows: Any, make_row: Any, suffix: str, changes: dict[str, Any], message: str
) -> None:
    rows = [make_row(1), make_row(2, **changes)]
    path = write_rows(rows) if suffix == "jsonl" else write_parquet(rows, tmp_path / "data.parquet")
    with pytest.raises(DataError) as error:
        open_examples(path)
    assert str(error.value) == f"{path}:2: {message.format(path=path)}"


@pytest.mark.parametrize(
    "wrong,remedy", [({"question": 3}, "Correct"), ({"chosen": 3}, "Correct"), ({"profile": "none"}, "Write a list")]
)
def test_wrong_type_in_parquet_is_named(tmp_path: Path, make_row: Any, wrong: dict[str, Any], remedy: str) -> None:
    path = write_parquet([make_row(1, **wrong)], tmp_path / "data.parquet")
    with pytest.raises(DataError, match=rf"^{path}:1: {next(iter(wrong))}: must be .*, found .*\. {remedy}"):
        open_examples(path)


def test_long_posts_pass_in_every_format(tmp_path: Path, write_rows: Any, make_row: Any) -> None:
    row = make_row(1, profile=[{"id": "a", "category": "c", "text": "é" * 100_000}])
    for path in (write_rows([row]), write_parquet([row], tmp_path / "a.parquet")):
        with open_examples(path) as store:
            assert store[0].user.profile[0].text == "é" * 100_000


def test_broken_lines_count_as_bad_rows(tmp_path: Path, make_row: Any) -> None:
    path = tmp_path / "a.jsonl"
    good = [json.dumps(make_row(n)).encode() for n in (1, 2)]
    path.write_bytes(b"\n".join([good[0], b'{"id": "\xff"}', b"{", b"[1]", good[1]]))
    with open_examples(path, skip_bad_rows=3) as store:
        assert [example.id for example in store] == ["q1", "q2"]
        assert store.bad_rows == [
            f"{path}:2: row: is not UTF-8 (byte 9). Save the file as UTF-8.",
            f"{path}:3: row: is not JSON (Expecting property name enclosed in double quotes at character 2). "
            "Repair the line, or drop it.",
            f"{path}:4: row: is [1], not an object with columns. Correct or drop it.",
        ]


def test_one_bad_row_more_than_allowed_ends_the_reading(write_rows: Any, make_row: Any) -> None:
    path = write_rows([make_row(1), *(make_row(n, chosen="") for n in (2, 3, 4))])
    bad = [f"{path}:{n}: chosen: is empty. Fill it in, or drop the row." for n in (2, 3, 4)]
    with open_examples(path, skip_bad_rows=3) as store:
        assert store.bad_rows == bad
    with pytest.raises(DataError) as error:
        open_examples(path, skip_bad_rows=2)
    assert str(error.value) == (
        f"{path}: more than 2 bad rows. The first: {' | '.join(bad)} | "
        "Repair them, or allow more with --skip-bad-rows."
    )


def test_duplicate_id_counts_as_a_bad_row_and_the_first_one_stays(write_rows: Any, make_row: Any) -> None:
    path = write_rows([make_row(1), make_row(2, id="q1"), make_row(3)])
    with open_examples(path, skip_bad_rows=1) as store:
        assert [example.question[-2:] for example in store] == ["1?", "3?"]


def test_limit_reads_no_further(write_rows: Any, make_row: Any) -> None:
    path = write_rows([make_row(1), make_row(2), make_row(3, chosen="")])
    with open_examples(path, limit=2) as store:
        assert len(store) == 2
    for limit in (0, -1):
        with pytest.raises(UsageError, match="at least one row"):
            open_examples(path, limit=limit)


@pytest.mark.parametrize("content", ["", "\n \n", "[]", " [ ] "])
def test_empty_dataset_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError) as error:
        open_examples(tmp_path / "a.json")
    assert str(error.value) == f"{tmp_path / 'a.json'}: there are no rows. Check that this is the file you meant."
    with pytest.raises(DataError, match="there are no rows"):
        open_examples([])


def test_rows_of_an_unknown_shape_show_their_columns(write_rows: Any) -> None:
    path = write_rows([{"id": 1, "question": "Why?", "response_1": "a", "response_2": "b"}])
    with pytest.raises(DataError, match=r"has no response to judge \(columns: id, question, response_1, response_2\)"):
        open_examples(path)


def test_a_name_opens_the_lab_and_a_path_the_folder_of_that_name(
    write_rows: Any, make_row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    write_rows([make_row(1)]).rename(tmp_path / "lab" / "pairs.jsonl")
    monkeypatch.chdir(tmp_path)
    with open_examples("lab", limit=2) as store:
        assert [example.id for example in store] == ["test-00000a", "test-00000b"]
    with open_examples("./lab") as store:
        assert [example.id for example in store] == ["q1"]


def test_subset_and_split_choose_rows_of_a_file(write_rows: Any, make_row: Any) -> None:
    path = write_rows(
        [make_row(1, split="train"), make_row(2, split="test"), make_row(3, category="Art", split="test")]
    )
    with open_examples(path, subset="Lifestyle", split="test") as store:
        assert [example.id for example in store] == ["q2"]
    with pytest.raises(DataError) as error:
        open_examples(path, subset="Sport")
    assert str(error.value) == f"{path}: no row has the wanted category. It has: Lifestyle (2 rows), Art (1 rows)."


def test_split_told_by_a_file_name_needs_no_column(tmp_path: Path, write_rows: Any, make_row: Any) -> None:
    write_rows([make_row(1)], "set/train.jsonl")
    write_rows([make_row(2), make_row(3, category="Art")], "set/test.jsonl")
    with open_examples(tmp_path / "set", split="train") as store:
        assert [example.id for example in store] == ["q1"]
    with open_examples(tmp_path / "set", subset="Art") as store:
        assert [example.id for example in store] == ["q3"]


def test_same_rows_have_the_same_hash_in_every_format(tmp_path: Path, write_rows: Any, make_row: Any) -> None:
    rows = [make_row(1, note="a", meta={"k": 1}), make_row(2, meta={"other": "x"}), make_row(3)]
    plain = write_rows(rows)
    zipped = tmp_path / "data.jsonl.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    array = tmp_path / "data.json"
    array.write_text(json.dumps([dict(sorted(row.items())) for row in rows], indent=1))
    # A table fills the gaps with nulls, at the top and inside `meta`.
    table = write_parquet(rows, tmp_path / "data.parquet")
    hashes = set()
    for path in (plain, zipped, array, table):
        with open_examples(path) as store:
            hashes.add(store.content_hash)
    assert len(hashes) == 1


def test_hash_changes_with_content_and_order(make_row: Any) -> None:
    variants = [
        [make_row(1), make_row(2)],
        [make_row(2), make_row(1)],
        [make_row(1)],
        [make_row(1), make_row(2, rubric_aspects=[])],
        [make_row(1), make_row(2, user_id="u")],
    ]
    assert len({open_examples(rows).content_hash for rows in variants}) == len(variants)


def test_temporary_file_has_no_name_and_ends_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_row: Any
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = open_examples([make_row(1)])
    assert list(tmp_path.iterdir()) == []
    store.close()
    store.close()
    with pytest.raises(ValueError, match="closed"):
        store[0]


def long_rows(make_row: Any, count: int, size: int) -> Iterator[dict[str, Any]]:
    return (make_row(n, profile=[{"id": "a", "text": f"{n} " + "x" * size}]) for n in range(count))


def test_memory_grows_with_the_number_of_rows_not_with_their_size(make_row: Any) -> None:
    def peak(size: int) -> int:
        tracemalloc.start()
        store = open_examples(long_rows(make_row, 100, size))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        store.close()
        return used

    peak(10)  # imports and first-call caches
    # 100 rows of 100 kB are 10 MB; a handful of copies of one row may be alive at a time.
    assert peak(100_000) - peak(10) < 2_000_000


def test_a_row_takes_some_bytes_of_memory_and_is_found_by_its_id(make_row: Any) -> None:
    tracemalloc.start()
    store = open_examples(make_row(n, user_id=f"user-{n % 50}") for n in range(2_000))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    with store:
        assert held / len(store) < 400
        assert store.users == 50
        assert store.position("q777") == 777
        with pytest.raises(KeyError, match="q2000"):
            store.position("q2000")


def person(name: str, posts: int = 1) -> User:
    return User(id=name, profile=tuple(Post(id=f"{name}-{n}", text=f"post {n} of {name}") for n in range(posts)))


def example(number: int, user: User, category: str = "Art") -> Example:
    return Example(id=f"e{number}", user=user, question="Why?", chosen="So.", rejected="No.", category=category)


def donors(examples: list[Example], seed: int = 0) -> dict[str, str | None]:
    with open_examples(examples) as store:
        found = {store[n].id: store.donor(n, seed) for n in range(len(store))}
    return {key: user and user.id for key, user in found.items()}


def crowd(rows: int = 300, users: int = 40) -> list[Example]:
    return [example(n, person(f"u{n % users}"), "Art" if n % users < users // 2 else "Society") for n in range(rows)]


def test_donor_is_another_user_of_the_same_category() -> None:
    examples = crowd()
    category_of = {item.user.id: item.category for item in examples}
    found = donors(examples)
    for item in examples:
        donor = found[item.id]
        assert donor is not None
        assert donor != item.user.id
        assert category_of[donor] == item.category


def test_donor_brings_a_whole_profile() -> None:
    with open_examples([example(1, person("a", 3)), example(2, person("b", 2))]) as store:
        assert store.donor(0, 0) == person("b", 2)
        assert store.donor(1, 0) == person("a", 3)


def test_no_other_user_means_no_donor() -> None:
    alone = [example(1, person("a")), example(2, person("a")), example(3, person("b"), "Society")]
    assert donors(alone) == {"e1": None, "e2": None, "e3": None}


def test_donor_with_posts_is_preferred_wherever_there_is_one() -> None:
    empty = [example(n, person(f"empty{n}", posts=0)) for n in range(50)]
    found = donors([*empty, example(99, person("talker"))])
    assert {found[item.id] for item in empty} == {"talker"}
    assert found["e99"] in {f"empty{n}" for n in range(50)}


def test_row_with_posts_lends_the_profile_of_a_user_who_also_has_one_without() -> None:
    rows = [example(n, person("b", posts=n % 2)) for n in range(10)]
    with open_examples([example(99, person("a")), *rows]) as store:
        donor = store.donor(0, 0)
    assert donor is not None
    assert len(donor.profile) == 1


def test_donors_do_not_depend_on_the_order_of_rows() -> None:
    examples = crowd()
    assert donors(examples) == donors(examples[::-1])


def test_lent_profile_does_not_depend_on_the_order_of_rows() -> None:
    lender = [example(n, User(id="b", profile=(Post(id=f"p{n}", text=f"text {n}"),))) for n in range(10)]
    lent = set()
    for rows in (lender, lender[::-1]):
        with open_examples([example(99, person("a")), *rows]) as store:
            donor = store.donor(0, 0)
            assert donor is not None
            lent.add(donor.profile[0].id)
    assert len(lent) == 1


def test_seed_changes_donors() -> None:
    examples = crowd()
    changed = [a != b for a, b in zip(donors(examples, 0).values(), donors(examples, 1).values(), strict=True)]
    assert sum(changed) > len(examples) / 2


def test_dropping_a_user_moves_only_the_rows_that_borrowed_from_them() -> None:
    examples = crowd()
    before = donors(examples)
    after = donors([item for item in examples if item.user.id != "u3"])
    for key, donor in after.items():
        if before[key] == "u3":
            assert donor != "u3"
        else:
            assert donor == before[key]


def test_adding_rows_moves_no_donor_of_the_others() -> None:
    examples = crowd()
    before = donors(examples)
    after = donors([*examples, *(example(1000 + n, person(f"u{n}")) for n in range(20))])
    assert {key: after[key] for key in before} == before


def test_donors_are_spread_over_the_users() -> None:
    counts: dict[str | None, int] = {}
    for donor in donors([example(n, person(f"u{n}")) for n in range(400)]).values():
        counts[donor] = counts.get(donor, 0) + 1
    assert len(counts) > 200
    assert max(counts.values()) < 12
