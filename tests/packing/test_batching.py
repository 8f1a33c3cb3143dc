"""Batches of like length, each distinct sequence computed once."""

from collections.abc import Sequence

from prbench.backends.shared_prefix.batching import TokenCount, Tokens, common_prefix, compute_each_once


class Machine:
    """A forward pass that gives the sum of the ids, and whose memory holds so many tokens at once."""

    def __init__(self, memory: int = 10**9) -> None:
        self.memory = memory
        self.batches: list[list[int]] = []

    def __call__(self, batch: Sequence[Tokens]) -> list[float]:
        if len(batch) * max(len(each.ids) for each in batch) > self.memory:
            raise MemoryError("full")
        self.batches.append([len(each.ids) for each in batch])
        return [float(sum(each.ids)) for each in batch]


SEQUENCES = [Tokens(ids=ids) for ids in [(1, 2), (3,), (1, 2), (4, 5, 6), (7,), (3,), (8, 8, 8, 8)]]


def test_each_distinct_sequence_is_computed_once_and_the_order_is_kept() -> None:
    machine, count = Machine(), TokenCount()
    assert compute_each_once(SEQUENCES, 2, machine, count) == [3, 3, 3, 15, 7, 3, 32]
    assert machine.batches == [[4, 3], [2, 1], [1]]
    assert count.as_mapping() == {"total": 14, "computed": 11}


def test_batches_do_not_depend_on_the_order_of_the_inputs() -> None:
    one, other = Machine(), Machine()
    compute_each_once(SEQUENCES, 2, one, TokenCount())
    assert compute_each_once(SEQUENCES[::-1], 2, other, TokenCount()) == [32, 3, 7, 15, 3, 3, 3]
    assert one.batches == other.batches


def test_same_ids_with_another_response_boundary_are_another_sequence() -> None:
    machine = Machine()
    compute_each_once([Tokens(ids=(1, 2), prompt=0), Tokens(ids=(1, 2), prompt=1)], 4, machine, TokenCount())
    assert machine.batches == [[2, 2]]


def test_batch_that_the_memory_does_not_hold_is_halved_until_it_does() -> None:
    machine = Machine(memory=3)
    values = compute_each_once(SEQUENCES, 7, machine, TokenCount())
    assert values[:6] == [3, 3, 3, 15, 7, 3]
    assert isinstance(values[6], MemoryError)


def test_common_prefix() -> None:
    assert common_prefix((1, 2, 3), (1, 2, 4)) == 2
    assert common_prefix((1, 2), (1, 2, 3)) == 2
    assert common_prefix((1,), ()) == 0
