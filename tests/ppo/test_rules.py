"""What an answer earns that failed, is empty, or was cut off: never a number for a failure."""

from statistics import fmean, pstdev

import pytest

from prbench.downstream.ppo.objective import RewardsFailedError, RunningMoments, check_failure_rate, shape_rewards
from prbench.reward_models.base import failed
from prbench.schema import Score

PLAIN = {"truncated": "score", "penalty": 1.0, "whiten": False}


def scores(*values: float | None) -> list[Score | None]:
    return [Score(value=value) for value in values]


def test_moments_of_batches_are_those_of_all_values() -> None:
    moments = RunningMoments().with_values([1.0, 2.0]).with_values([]).with_values([10.0, -3.0, 4.0])
    assert moments.mean == pytest.approx(fmean([1, 2, 10, -3, 4]))
    assert moments.deviation == pytest.approx(pstdev([1, 2, 10, -3, 4]))
    assert RunningMoments().with_values([2.0, 2.0]).deviation == 1.0


def test_a_failure_is_masked_and_counted_and_does_not_move_the_moments() -> None:
    found = shape_rewards(
        [*scores(0.0, 2.0), failed("timeout")], [False] * 3, RunningMoments(), **{**PLAIN, "whiten": True}
    )
    assert found.rewards == (-1.0, 1.0, None)
    assert (found.failed, found.moments.count) == (1, 2)


def test_an_empty_answer_earns_the_lowest_score_of_its_batch() -> None:
    found = shape_rewards([None, *scores(0.5, -0.5)], [False] * 3, RunningMoments(), **PLAIN)
    assert found.rewards == (-0.5, 0.5, -0.5)
    assert (found.empty, found.failed, found.asked) == (1, 0, 2)
    assert shape_rewards([None, failed("down")], [False] * 2, RunningMoments(), **PLAIN).rewards == (None, None)


@pytest.mark.parametrize(("rule", "expected"), [("score", 2.0), ("penalize", 1.0), ("mask", None)])
def test_an_answer_that_was_cut_off(rule: str, expected: float | None) -> None:
    found = shape_rewards(scores(0.0, 2.0), [False, True], RunningMoments(), truncated=rule, penalty=1.0, whiten=False)
    assert found.rewards == (0.0, expected)
    assert found.truncated == 1


def test_too_many_failures_stop_the_run_with_one_line() -> None:
    check_failure_rate([*scores(1.0, 1.0, 1.0), failed("HTTP 503")], 4, most=0.25)
    with pytest.raises(RewardsFailedError, match=r"step 4: 2 of 4 rewards failed \(50%\).*HTTP 503") as stopped:
        check_failure_rate([*scores(1.0, 1.0), failed("HTTP 500"), failed("HTTP 503")], 4, most=0.25)
    assert stopped.value.exit_code == 1


def test_empty_answers_are_not_among_the_rewards_that_were_asked_for() -> None:
    with pytest.raises(RewardsFailedError, match=r"1 of 2 rewards failed \(50%\)"):
        check_failure_rate([None, None, *scores(1.0), failed("HTTP 503")], 4, most=0.25)
    check_failure_rate([None, None], 4, most=0.0)
