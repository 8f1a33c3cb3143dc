"""Files at the border: tables of our own, published tables, and one line for each thing that can be wrong."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from prbench.errors import DataError, RunError, UsageError
from prbench.insight.meta import Choices, meta
from prbench.insight.meta.read import parse_source, read_boards
from prbench.metrics.official import REWARDBENCH_SECTIONS

SHARED = Path(os.environ.get("PRBENCH_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "tables"
needs_tables = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared result tables are not here")


def test_a_plain_table(table) -> None:
    path = table(
        "board.csv", "Model,score,size,family", ("a", "0.5", "8B", "x"), ("b", "", "350M", ""), ("c", 1, "", "y")
    )
    (board,) = read_boards([str(path)])
    assert (board.name, board.models, board.scores.tolist()) == ("board", ("a", "c"), [0.5, 1.0])
    assert board.sizes == {"a": 8e9, "b": 3.5e8}
    assert board.families == {"a": "x", "c": "y"}
    assert board.notes == ("board: 1 rows without a score are left out.",)


def test_item_rows_are_means_and_clustered_by_user(table) -> None:
    rows = [(model, item, f"u{item % 2}", item % 2 if model == "a" else 1) for model in "ab" for item in range(6)]
    (board,) = read_boards([str(table("rows.csv", "model,item,user,score", *rows))])
    assert board.scores.tolist() == [0.5, 1.0]
    assert board.items is not None
    assert len(set(board.items.users)) == 2
    assert board.low[0] < 0.5 < board.high[0]


def test_items_without_users_stand_for_themselves(table) -> None:
    (board,) = read_boards([str(table("rows.csv", "model,item,score", ("a", 1, 0), ("a", 2, 1), ("b", 1, 1)))])
    assert board.items is not None
    assert board.items.users == ("1", "2")
    assert np.isnan(board.items.values[1, 1])
    assert board.scores.tolist() == [0.5, 1.0]


def test_jsonl_and_json_rows(tmp_path: Path, save_json) -> None:
    rows = [{"model": "a", "score": 1}, {"model": "b", "score": 2}]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_boards([str(lines), f"named={save_json('rows.json', rows)}"])
    assert (first.name, second.name) == ("rows", "named")
    assert first.scores.tolist() == second.scores.tolist() == [1.0, 2.0]


def test_a_column_all_columns_and_a_name(table) -> None:
    path = table("wide.csv", "model,type,easy,hard", ("a", "x", 1, 2), ("b", "y", 3, 4))
    (one,) = read_boards([f"{path}#hard"])
    assert (one.name, one.scores.tolist()) == ("hard", [2.0, 4.0])
    assert [board.name for board in read_boards([f"{path}#*"])] == ["easy", "hard"]
    assert [board.name for board in read_boards([f"mine={path}#easy", f"mine={path}#hard"])] == [
        "mine (1)",
        "mine (2)",
    ]


def test_sources_are_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = parse_source("name=a/b.csv#x=y")
    assert (source.name, str(source.path), source.column) == ("name", "a/b.csv", "x=y")
    assert parse_source("dir/k=v.csv").path == Path("dir/k=v.csv")
    Path("odd#name.csv").write_text("model,score\n")
    assert parse_source("odd#name.csv").path == Path("odd#name.csv")
    with pytest.raises(UsageError, match="names no file"):
        parse_source("name=")


def test_rewardbench_weighs_sections(save_json) -> None:
    subsets = {subset: 0.5 for section in REWARDBENCH_SECTIONS.values() for subset in section}
    rows = [{"model": "o/a", **subsets}, {"model": "o/b", **subsets, "math-prm": 1.0, "mt-bench-hard": 1.0}]
    path = save_json("rb.json", rows)
    (board,) = read_boards([str(path)])
    # Maths is half of Reasoning, which is a quarter; mt-bench-hard is 37 of the 456 of Chat Hard.
    assert board.scores.tolist() == pytest.approx([0.5, 0.5 + 0.25 * 0.25 + 0.25 * 0.5 * 37 / 456])
    (section,) = read_boards([f"{path}#reasoning"])
    assert section.scores.tolist() == pytest.approx([0.5, 0.75])


def test_published_layouts_are_known_by_their_columns(table) -> None:
    two = table("a.csv", "model,average,factuality,precise_if,focus", ("o/a", 70, 1, 2, 3), ("o/b", 60, 1, 2, 3))
    bench = table("b.csv", "model,easy,normal,hard,overall", ("a", 9, 5, 1, 5), ("b", 9, 9, 9, 9))
    first, second = read_boards([str(two), str(bench)])
    assert (first.name, first.scores.tolist()) == ("RewardBench 2", [70.0, 60.0])
    assert (second.name, second.scores.tolist()) == ("RM-Bench", [5.0, 9.0])


@pytest.mark.parametrize(
    "name,text,message",
    [
        ("a.csv", "model,score\n", "a.csv: has no rows"),
        ("a.csv", "who,score\na,1\n", "a.csv: has no column 'model'. Its columns: who, score"),
        ("a.csv", "model,points\na,1\n", "a.csv: has no column 'score'. Choose one with FILE#COLUMN: points"),
        ("a.csv", "model,score\na,high\n", "a.csv:2: score is 'high', and no number"),
        ("a.csv", "model,score\na,inf\n", "a.csv:2: score is 'inf'"),
        ("a.csv", "model,score\na,0_55\n", "a.csv:2: score is '0_55', and no number"),
        ("a.csv", "model,score\na,٥٥\n", "a.csv:2: score is '٥٥', and no number"),
        ("a.csv", "model,score,score\na,1,2\n", "a.csv:1: has the column 'score' twice"),
        ("a.csv", f"model,score\na,{'1' * 200_000}\n", "a.csv:2: cannot be read (field larger than field limit"),
        ("a.json", "[" * 50_000, "a.json: is not valid JSON"),
        ("a.csv", "model,score\na,1\na,2\n", "a.csv:3: 'a' is there twice"),
        ("a.csv", "model,score\n,1\n", "a.csv:2: has no model"),
        ("a.csv", "model,score\na,1,2\n", "a.csv:2: has not as many fields"),
        ("a.csv", "model,score\na,\n", "a.csv: no model has a score"),
        ("a.csv", "model,item,score\na,1,1\na,1,0\n", "a.csv:3: 'a' has item '1' twice"),
        ("a.csv", "model,item,score\na,1,1\na,,0\n", "a.csv:3: has no item"),
        ("a.csv", "model,score,size\na,1,big\n", "a.csv:2: size is 'big'"),
        ("a.json", "{", "a.json: is not valid JSON"),
        ("a.json", '{"x": 1}', "a.json: is no list of models, and no result of prbench"),
        ("a.jsonl", "[1]\n", "a.jsonl:1: is no JSON object"),
        ("a.txt", "x", "a.txt: is none of .csv"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError) as raised:
        read_boards([str(path)])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_other_bad_sources(tmp_path: Path, save_json) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_boards([str(tmp_path / "nowhere.csv")])
    with pytest.raises(RunError, match="holds no runs"):
        read_boards([str(tmp_path)])
    (tmp_path / "latin.csv").write_bytes(b"model,score\n\xe9,1\n")
    with pytest.raises(DataError, match="is not UTF-8"):
        read_boards([str(tmp_path / "latin.csv")])
    (tmp_path / "words.csv").write_text("model,a\nx,y\n")
    with pytest.raises(DataError, match="has no column of numbers"):
        read_boards([f"{tmp_path / 'words.csv'}#*"])
    subsets = {subset: None for section in REWARDBENCH_SECTIONS.values() for subset in section}
    with pytest.raises(DataError, match="entry 1: a subset of RewardBench is no number"):
        read_boards([str(save_json("rb.json", [{"model": "a", **subsets}]))])


@needs_tables
def test_published_tables_give_the_independently_computed_correlations() -> None:
    expected = json.loads((SHARED / "EXPECTED_correlations.json").read_text())["alpacaeval_benchmarks_vs_arena"]
    path = SHARED / "alpacaeval_benchmarks_vs_arena.csv"
    choices = Choices(draws=10, permutations=99)
    for pair, figures in expected.items():
        benchmark, downstream = (f"{path}#{column}" for column in pair.split(" ~ "))
        found = meta([benchmark], [downstream], choices=choices).as_json()
        values = {name: found["statistics"][name]["value"] for name in ("pearson", "spearman", "kendall")}
        assert found["n_models"] == figures["n"]
        wanted = {name: figures["kendall_tau_b" if name == "kendall" else name] for name in values}
        assert values == pytest.approx(wanted, abs=1e-6)


@needs_tables
def test_published_boards_are_read_and_matched() -> None:
    path = SHARED / "rewardbench2_table3_top_models.csv"
    (two,) = read_boards([str(path)])
    domains = [board.scores for board in read_boards([f"{path}#*"]) if board.name != "average"]
    assert np.abs(np.mean(domains, axis=0) - two.scores).max() <= 0.051  # published with one decimal
    (bench,) = read_boards([str(SHARED / "rm_bench_leaderboard.csv")])
    assert len(bench.models) == 51
    (one,) = read_boards([str(SHARED / "rewardbench_per_subset_4_models.json")])
    assert len(one.models) == 4
    assert ((one.scores > 0.5) & (one.scores < 1)).all()
    found = meta([str(SHARED / "rm_bench_leaderboard.csv")], [str(path)], choices=Choices(draws=10)).as_json()
    assert found["n_models"] == 6
    assert {each["rule"] for each in found["matched"]} == {"without the organization"}
    assert len(found["unmatched"]["downstream"]) == 25 - 6


def test_a_line_separator_in_a_name_ends_no_line(tmp_path: Path) -> None:
    path = tmp_path / "board.jsonl"
    rows = [{"model": name, "score": number} for number, name in enumerate(("a\u2028b", "c", "d"))]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    (board,) = read_boards([str(path)])
    assert board.models == ("a\u2028b", "c", "d")
