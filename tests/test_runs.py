"""The store of a run: what is written stays, what is torn is cut, and nobody else writes."""

import json
from pathlib import Path

import pytest

from prbench.errors import RunError
from prbench.runs import ITEMS, RunStore, read_rows, run_id
from prbench.schema import Probe, Problem, RatedRow, Row, Verdict

MANIFEST = {"config": {"model": "fake"}}


def row(
    item: str, *, probe: Probe = Probe.OWN, verdict: Verdict = Verdict.CHOSEN, problem: Problem = Problem.NONE
) -> Row:
    return Row(
        id=item,
        probe=probe,
        user_id="u",
        category="c",
        verdict=verdict,
        score_chosen=1.5,
        score_rejected=-0.25,
        problem=problem,
        orders=({"order": "chosen_first", "pick": "first", "raw": "Result: A"},),
        groups={"majority": True},
    )


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rated = RatedRow(
        id="r", probe=Probe.SWAP, user_id="u", category="", rating=0.5, score=None, problem=Problem.NO_VERDICT
    )
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a"), rated])
    assert read_rows(tmp_path / "run", replies=True) == [row("a"), rated]


def test_raw_replies_stay_on_disk_unless_asked_for(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a")])
    assert read_rows(tmp_path / "run")[0].orders[0]["raw"] == ""  # type: ignore[union-attr]


def test_a_torn_last_line_is_cut_and_the_rest_kept(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a"), row("b")])
    with (tmp_path / "run" / ITEMS).open("a") as file:
        file.write('{"id": "c", "probe": "ow')
    with RunStore(tmp_path / "run", MANIFEST) as store:
        assert store.finished() == {("a", "own"), ("b", "own")}
        store.append([row("c")])
    assert [one.id for one in read_rows(tmp_path / "run")] == ["a", "b", "c"]


@pytest.mark.parametrize("length", [1, 65_535, 65_536, 65_537, 200_000])
def test_a_torn_line_of_any_length_is_cut(tmp_path: Path, length: int) -> None:
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a")])
    path = tmp_path / "run" / ITEMS
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * length)
    with RunStore(tmp_path / "run", MANIFEST):
        assert path.read_bytes() == whole


def test_failed_rows_are_retried_and_the_last_row_wins(tmp_path: Path) -> None:
    failed = row("a", verdict=Verdict.UNREADABLE, problem=Problem.FAILED)
    unreadable = row("b", verdict=Verdict.UNREADABLE, problem=Problem.NO_VERDICT)
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([failed, unreadable])
        assert store.finished() == {("b", "own")}
        store.append([row("a")])
        assert store.finished() == {("a", "own"), ("b", "own")}
    assert [one.problem for one in read_rows(tmp_path / "run")] == [Problem.NONE, Problem.NO_VERDICT]


@pytest.mark.parametrize("problem", Problem)
def test_only_what_is_worth_another_try_is_not_finished(tmp_path: Path, problem: Problem) -> None:
    retried = {"failed", "wrong_model", "out_of_tokens"}
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a", problem=problem)])
        assert bool(store.finished()) == (problem.value not in retried)


def test_rows_are_put_in_order_and_the_latest_of_an_item_stays_last(tmp_path: Path) -> None:
    failed = row("a", verdict=Verdict.UNREADABLE, problem=Problem.FAILED)
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("c"), failed, row("b"), row("a")])
        store.put_in_order(lambda item, probe: ("abcd".index(item), 0))
        store.append([row("d")])
        assert store.finished() == {(item, "own") for item in "abcd"}
    records = [json.loads(line) for line in (tmp_path / "run" / ITEMS).read_text().splitlines()]
    assert [(one["id"], one["reason"]) for one in records] == [
        ("a", "failed"),
        ("a", ""),
        ("b", ""),
        ("c", ""),
        ("d", ""),
    ]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["items.jsonl", "lock", "manifest.json"]


def test_a_second_writer_is_refused_in_one_line(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run", MANIFEST), pytest.raises(RunError, match="another process is writing this run"):
        RunStore(tmp_path / "run", MANIFEST)


def test_a_folder_of_another_configuration_is_refused(tmp_path: Path) -> None:
    RunStore(tmp_path / "run", MANIFEST).close()
    with pytest.raises(RunError, match="another configuration"):
        RunStore(tmp_path / "run", {"config": {"model": "other"}})


def test_fresh_starts_over(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a")])
    with RunStore(tmp_path / "run", {"config": {"model": "other"}}, fresh=True) as store:
        assert store.finished() == set()


def test_a_damaged_line_names_file_and_line(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a")])
    with (tmp_path / "run" / ITEMS).open("a") as file:
        file.write("not json\n")
    with pytest.raises(RunError, match=r"items\.jsonl:2: not a row of ours"):
        read_rows(tmp_path / "run")


def test_the_run_id_depends_on_content_and_not_on_key_order() -> None:
    assert run_id({"a": 1, "b": 2}) == run_id({"b": 2, "a": 1})
    assert run_id({"a": 1}) != run_id({"a": 2})


def test_a_second_reward_model_never_continues_the_first_ones_run(tmp_path: Path) -> None:
    """The paper's code names runs without the reward model, so a second one would resume the first one's results."""
    assert run_id({"model": "classifier:one"}) != run_id({"model": "classifier:two"})


def test_every_line_is_one_json_object_with_the_contracted_keys(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run", MANIFEST) as store:
        store.append([row("a")])
    record = json.loads((tmp_path / "run" / ITEMS).read_text())
    assert {"id", "probe", "score_chosen", "score_rejected", "verdict", "reason", "orders"} <= set(record)
