"""The queue: whole groups, nobody starves, nothing beyond its limit."""

import threading
import time

import pytest

from prbench.schema import RewardInput, Score, UserContext
from prbench.serve.queue import FullError, Operation, Outcome, PendingRequest, RequestQueue


def ticket(*names: str, task: Operation = Operation.SCORE, answers: list[Outcome] | None = None) -> PendingRequest:
    """One input per name; the letter of the name is the group, e.g. `a1` and `a2` share a question."""
    inputs = [RewardInput(question=name[0], response=name) for name in names]
    return PendingRequest(task, inputs, [].append if answers is None else answers.append)


def taken(queue: RequestQueue, most: int) -> list[str]:
    return [queued.input.response for queued in queue.take(most)]


def test_inputs_with_one_question_and_context_come_out_together() -> None:
    queue = RequestQueue(10)
    for name in ("a1", "b1", "a2", "b2", "a3"):
        queue.put(ticket(name))
    assert taken(queue, 10) == ["a1", "a2", "a3", "b1", "b2"]
    assert len(queue) == 0


def test_a_request_of_no_inputs_has_its_answers_at_once() -> None:
    answers: list[Outcome] = []
    queue = RequestQueue(10)
    queue.put(ticket(answers=answers))
    assert (answers, len(queue)) == ([[]], 0)


def test_the_same_question_in_another_context_is_another_group() -> None:
    queue = RequestQueue(10)
    texts = [("me", "1"), ("you", "2"), ("me", "3")]
    for context, response in texts:
        queue.put(
            PendingRequest(
                Operation.SCORE,
                [RewardInput(question="q", user=UserContext.from_text(context), response=response)],
                [].append,
            )
        )
    assert taken(queue, 10) == ["1", "3", "2"]


def test_the_oldest_goes_first_and_then_the_fullest_group_that_fits_whole() -> None:
    queue = RequestQueue(20)
    queue.put(ticket("a1"))
    queue.put(ticket("b1", "b2"))
    queue.put(ticket("c1", "c2", "c3"))
    queue.put(ticket("d1", "d2", "d3", "d4"))
    # Room for 6: the oldest (1), the fullest (4), and then only 1 is left, which neither b nor c fits.
    assert taken(queue, 6) == ["a1", "d1", "d2", "d3", "d4"]
    assert taken(queue, 6) == ["b1", "b2", "c1", "c2", "c3"]


def test_a_lone_input_is_served_next_however_full_the_other_groups_stay() -> None:
    queue = RequestQueue(100)
    queue.put(ticket("a1", "a2", "a3", "a4"))
    queue.put(ticket("z1"))
    assert taken(queue, 4) == ["a1", "a2", "a3", "a4"]
    queue.put(ticket("a5", "a6", "a7", "a8"))
    assert taken(queue, 4)[0] == "z1"


def test_a_group_larger_than_a_batch_is_cut_and_does_not_keep_its_turn() -> None:
    queue = RequestQueue(100)
    queue.put(ticket("a1", "a2"))
    queue.put(ticket("b1"))
    queue.put(ticket("a3", "a4"))
    assert taken(queue, 2) == ["a1", "a2"]
    assert taken(queue, 2) == ["b1"]  # older than a3, though its group is younger; a3 and a4 do not fit beside it
    assert taken(queue, 2) == ["a3", "a4"]


def test_a_request_is_taken_whole_or_not_at_all() -> None:
    queue = RequestQueue(3)
    queue.put(ticket("a1", "a2"))
    with pytest.raises(FullError):
        queue.put(ticket("b1", "b2"))
    assert len(queue) == 2
    queue.put(ticket("c1"))
    assert taken(queue, 9) == ["a1", "a2", "c1"]


def test_a_dropped_request_frees_its_room_and_is_never_taken() -> None:
    queue = RequestQueue(3)
    gone = ticket("a1", "b1")
    queue.put(gone)
    queue.put(ticket("a2"))
    assert queue.drop(gone) == 2
    assert queue.drop(gone) == 0
    queue.put(ticket("c1", "c2"))
    assert taken(queue, 9) == ["a2", "c1", "c2"]


def test_questions_about_the_window_go_first_and_alone() -> None:
    queue = RequestQueue(9)
    queue.put(ticket("a1"))
    queue.put(ticket("b1", "c1", task=Operation.FITS))
    assert taken(queue, 9) == ["b1", "c1"]
    assert taken(queue, 9) == ["a1"]


def test_a_closed_queue_gives_what_is_left_and_then_nothing() -> None:
    queue = RequestQueue(9)
    queue.put(ticket("a1"))
    queue.close()
    with pytest.raises(FullError):
        queue.put(ticket("b1"))
    assert queue.take(9, enough=5, settled_at=time.monotonic() + 3600)[0].input.response == "a1"
    assert queue.take(9) == []


def test_before_it_has_settled_a_batch_gathers_until_there_is_enough() -> None:
    queue = RequestQueue(9)
    batches: list[list[str]] = []

    def take() -> None:
        batches.append([each.input.response for each in queue.take(9, enough=2, settled_at=time.monotonic() + 3600)])

    thread = threading.Thread(target=take)
    queue.put(ticket("a1"))
    thread.start()
    queue.put(ticket("b1"))
    thread.join(30)
    assert batches == [["a1", "b1"]]


def test_answers_are_sent_once_all_are_there_and_in_the_order_of_the_inputs() -> None:
    answers: list[Outcome] = []
    request = ticket("a1", "b1", answers=answers)
    request.answer(1, Score(value=2.0))
    assert answers == []
    request.answer(0, Score(value=1.0))
    assert answers == [[Score(value=1.0), Score(value=2.0)]]
