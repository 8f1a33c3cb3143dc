"""The general set: one response is bad, whoever asks."""

from collections import Counter

from prbench.data.texts import sentences_of
from prbench.lab import LabSize, make_split
from prbench.lab.gold import GoldInstrument
from prbench.lab.pairs import FLAWS
from prbench.lab.population import load_library

PAIRS = list(make_split("test_general", LabSize(users=60, pairs=200), seed=3))


def read(text: str, subject: str) -> list[bool]:
    """Say of every sentence whether it is a whole point on the subject; no encoder may be needed for that."""
    points = {
        point
        for one in load_library().subjects
        if one.subject == subject
        for aspect in one.aspects
        for point in aspect.points
    }
    return [sentence in points for sentence in sentences_of(text)]


def test_every_flaw_comes_equally_often_and_lengths_say_nothing() -> None:
    assert Counter(pair.meta["flaw"] for pair in PAIRS) == dict.fromkeys(FLAWS, 40)
    assert all(0.9 <= len(pair.chosen) / len(pair.rejected) <= 1.12 for pair in PAIRS)
    for flaw in FLAWS:  # the longer one is as often the good one: a coin of 40 throws
        longer = [len(pair.chosen) > len(pair.rejected) for pair in PAIRS if pair.meta["flaw"] == flaw]
        assert 10 <= sum(longer) <= 30


def test_chosen_is_three_points_on_the_subject_and_rejected_is_not() -> None:
    for pair in PAIRS:
        subject, flaw = pair.meta["subject"], pair.meta["flaw"]
        assert read(pair.chosen, subject) == [True] * 3
        rejected = read(pair.rejected, subject)
        if flaw == "repeated":
            assert len(set(sentences_of(pair.rejected))) == 1
        else:
            assert not any(rejected), (flaw, pair.rejected)


def test_good_responses_serve_wanted_and_unwanted_aspects_alike() -> None:
    wanted_of_chosen = Counter[bool]()
    instrument = GoldInstrument()
    for pair in PAIRS:
        for points in instrument.read(sentences_of(pair.chosen), pair.meta["subject"]):
            wanted_of_chosen[points[0].trait in pair.meta["wanted"]] += 1
    assert 0.4 <= wanted_of_chosen[True] / wanted_of_chosen.total() <= 0.6  # users want 3 to 5 of 8 traits
