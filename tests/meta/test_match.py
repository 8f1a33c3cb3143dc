"""Names: what is the same model, what only looks like it, and what a map says."""

from pathlib import Path

import pytest

from prbench.errors import DataError
from prbench.insight.meta.board import ModelBoard, apply_map, board_of_scores, match, pair_up, read_map


def board(*names: str) -> ModelBoard:
    return board_of_scores("board", {name: float(place) for place, name in enumerate(names)})


@pytest.mark.parametrize(
    "ours,theirs,rule",
    [
        ("head:lab-user", "head:lab-user", "the same name"),
        ("Skywork Reward_8B", "skywork-reward-8b", "spelling"),
        ("ArmoRM-Llama3-8B", "RLHFlow/ArmoRM-Llama3-8B", "without the organization"),
        ("classifier:RLHFlow/ArmoRM-Llama3-8B", "ArmoRM-Llama3-8B", "without the organization"),
        ("rubric-chain:models/chain", "chain", "without the organization"),
    ],
)
def test_rules(ours: str, theirs: str, rule: str) -> None:
    (found,) = match(board(ours), board(theirs)).matched
    assert (found.benchmark, found.downstream, found.rule) == (ours, theirs, rule)


@pytest.mark.parametrize(
    "ours,theirs",
    [
        (("one/final",), ("two/final",)),  # two organisations
        (("RM-8B", "rm_8b"), ("Rm-8b",)),  # two that it could be
        (("GRM-Llama3.2-3B",), ("GRM-Llama3-8B",)),  # alike, and another model
        (("head:a?context=none",), ("head:a",)),  # told something else
    ],
)
def test_what_is_not_matched(ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    found = match(board(*ours), board(*theirs))
    assert found.matched == ()
    assert (found.only_benchmark, found.only_downstream) == (ours, theirs)


def test_near_names_are_suggested_and_not_used() -> None:
    found = match(board("GRM-Llama3.2-3B-ft", "a"), board("Ray/GRM-Llama3-8B-ft", "a"))
    assert [each.benchmark for each in found.matched] == ["a"]
    assert found.suggestions == (("GRM-Llama3.2-3B-ft", "Ray/GRM-Llama3-8B-ft"),)


def test_a_pair_has_the_benchmarks_names_and_order() -> None:
    pair, _ = pair_up(board("B", "A", "C"), board("x/A", "y/B", "z/D"))
    assert pair.models == pair.downstream.models == ("B", "A")
    assert pair.downstream.scores.tolist() == [1.0, 0.0]


def test_a_map_renames_and_tells_what_it_did_not_find(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    path.write_text("from,to\nold,new\nnobody,else\n")
    (renamed,), notes = apply_map([board("old", "other")], read_map(path))
    assert renamed.models == ("new", "other")
    assert notes == ["The map names 'nobody', which is on no board."]
    as_json = tmp_path / "map.json"
    as_json.write_text('{"old": "new"}')
    assert read_map(as_json) == {"old": "new"}


@pytest.mark.parametrize(
    "name,text,message",
    [
        ("map.csv", "a,b\nx,y\n", "must have the columns from,to. It has a, b"),
        ("map.csv", "from,to\nx,\n", "map.csv:2: a name is empty"),
        ("map.csv", "from,to\nx,y\nx,z\n", "map.csv:3: 'x' has two meanings"),
        ("map.json", "[1]", "must be an object of names"),
        ("map.json", "{", "is not valid"),
    ],
)
def test_bad_maps(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_map(path)


def test_a_map_must_not_merge_two_models(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gives the name 'b' to two models"):
        apply_map([board("a", "b")], {"a": "b"})
    with pytest.raises(DataError, match="there is no such file"):
        read_map(tmp_path / "nowhere.csv")
