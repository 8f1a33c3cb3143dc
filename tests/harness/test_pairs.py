"""What both harnesses are given, without either of them: options, rows, and how likelihoods are counted."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import make_row

from prbench.downstream.harness.lm_eval.likelihoods import dataset, error_by_user, process_results
from prbench.downstream.harness.pairs import prepared_pairs, read_options
from prbench.errors import UsageError
from prbench.schema import Probe


@pytest.mark.parametrize(
    "given,fact",
    [
        ({"dat": "lab"}, "dat: Extra inputs are not permitted. The options are: data, subset,"),
        ({"limit": "8"}, "limit: Input should be a valid integer"),
        ({"limit": 0}, "limit=0"),
        ({"probes": ["none"]}, "each probe is a task"),
        ({"context": "horoscope"}, "horoscope"),
        (["lab"], "give options such as"),
    ],
)
def test_a_wrong_option_of_lm_eval_is_one_line(given: Any, fact: str) -> None:
    with pytest.raises(UsageError) as error:
        dataset("own", config_source="x.yaml", prbench=given)
    assert fact in str(error.value)
    assert "\n" not in str(error.value)


def test_rated_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rated.jsonl"
    row = {name: value for name, value in make_row(1).items() if name in ("id", "user_id", "question", "profile")}
    path.write_text(json.dumps(row | {"response": "Sow.", "rating": 0.5}) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="rated responses"):
        prepared_pairs(read_options({"data": str(path)}, "here"))


def test_only_the_probes_asked_for_are_there_and_a_pair_without_a_donor_has_no_swap(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [make_row(number, category="One" if number else "Alone") for number in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    swapped = prepared_pairs(read_options({"data": str(path), "probes": ["swap"]}, "here"))
    assert {item.probe for item in swapped} == {Probe.SWAP}
    assert {item.example.id for item in swapped} == {f"item-{number:03d}" for number in range(1, 5)}
    assert all(item.example.user.profile[0].text not in item.user.segments for item in swapped)
    (none, *_) = prepared_pairs(read_options({"data": str(path), "probes": ["none"]}, "here"))
    assert none.user.segments == ()


def test_likelihoods_are_compared_whole_and_per_byte_and_a_tie_is_half() -> None:
    doc = {"choices": ["ab", "é" * 3], "gold": 1, "user_id": "u"}  # 2 and 6 bytes
    found = process_results(doc, [(-4.0, False), (-6.0, False)])
    assert found == {"acc": 0.0, "acc_norm": 1.0, "error_by_user": ("u", 0.0)}
    assert process_results(doc, [(-4.0, False), (-4.0, True)])["acc"] == 0.5
    assert process_results(doc, [(-2.0, False), (-6.0, True)])["acc_norm"] == 0.5


def test_the_error_by_user_is_that_of_users_not_of_rows() -> None:
    # Two users, all of one right and all of the other wrong: leaving one out gives 1 and 0, around a mean of 0.5.
    items = [("a", 1.0)] * 4 + [("b", 0.0)] * 4
    assert error_by_user(items) == pytest.approx(0.5)
