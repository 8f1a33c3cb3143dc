"""Floors and label position: verdicts by bands, planted shortcuts, and checks that say why they were left out."""

import re
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
import pytest

from prbench.construction.check import check_dataset, check_position, floors
from prbench.construction.check.duplicates import pair_keys
from prbench.construction.check.finding import BAD, CHANCE, GOOD, LOOK, SKIPPED, TOO_FEW
from prbench.construction.check.floors import EMBED, OVERLAP, check_floors
from prbench.evaluation.score import chosen_comes_first
from prbench.schema import Estimate

TOPICS = ("thrift", "craft", "company", "nature")


class TopicEncoder:
    """Tells texts apart by their topics alone."""

    name = "topics"
    identity = MappingProxyType({"name": "topics"})

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.array([[1e-3 + text.count(topic) for topic in TOPICS] for text in texts], dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def check(store, encoder: object = "no encoder here", seed: int = 0):
    found = check_floors(store, pair_keys(store), encoder, seed=seed, progress=lambda name: None)
    return {finding.check.removeprefix("floor: "): finding for finding in found}


def estimate(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, n=100)


@pytest.mark.parametrize(
    "band,low,high,verdict",
    [
        (CHANCE, 0.55, 0.70, GOOD),
        (CHANCE, 0.551, 0.70, LOOK),
        (CHANCE, 0.60, 0.80, LOOK),
        (CHANCE, 0.601, 0.80, BAD),
        (CHANCE, 0.20, 0.399, BAD),
        (CHANCE, 0.20, 0.45, GOOD),
        (OVERLAP, 0.58, 0.60, GOOD),
        (OVERLAP, 0.59, 0.65, LOOK),
        (OVERLAP, 0.64, 0.70, BAD),
        (EMBED, 0.70, 0.80, GOOD),
        (EMBED, 0.75, 0.80, LOOK),
        (EMBED, 0.76, 0.80, BAD),
    ],
)
def test_the_nearer_end_of_the_interval_decides(band, low: float, high: float, verdict: str) -> None:
    assert band.verdict(estimate(low, high), users=10) == verdict


@pytest.mark.parametrize(
    "low,high,users,verdict",
    [
        (0.038, 0.919, 10, TOO_FEW),  # nearly anything is possible
        (0.33, 0.67, 10, GOOD),
        (0.45, 0.55, 9, TOO_FEW),  # no interval of so few users was ever tried
        (0.0, 0.39, 9, BAD),  # what is bad is bad, however few the rows
    ],
)
def test_what_only_few_rows_make_good_is_said_to_be_too_few(low: float, high: float, users: int, verdict: str) -> None:
    assert CHANCE.verdict(estimate(low, high), users) == verdict


@pytest.fixture
def balanced(pair):
    """Forty pairs on two topics, each mirrored for another user; every user writes about what they choose."""
    rows = []
    for n in range(40):
        sides = [f"Think of {topic} number {n}." for topic in ("thrift", "craft ")]
        for which, topic in enumerate(("thrift", "craft")):
            rows.append(
                pair(2 * n + which, question=f"What of {n}?", profile=[{"id": "p", "text": f"All about {topic}"}])
                | {"chosen": sides[which], "rejected": sides[1 - which]}
            )
    return rows


def test_mirrored_pairs_leave_every_rule_but_matching_at_one_half(balanced, open_rows) -> None:
    found = check(open_rows(balanced), TopicEncoder())
    for name in ("the longer response", "the shorter response", "words of the question"):
        assert (found[name].verdict, found[name].values["accuracy"]["value"]) == (GOOD, 0.5)
    for name in ("responses alone, by words", "responses alone, by meaning"):
        assert (found[name].verdict, found[name].values["accuracy"]["value"]) == (GOOD, 0.5)
    for name in ("words of the profile", "meaning of the profile"):
        assert (found[name].verdict, found[name].values["accuracy"]["value"]) == (BAD, 1.0)
        assert found[name].remedy
    assert found["meaning of the profile"].values["encoder"] == "topics"


def test_a_longer_chosen_response_is_bad_for_both_rules_of_length(pair, open_rows) -> None:
    found = check(open_rows([pair(n, chosen=f"Take a very long alpha{n} and beta{n} together.") for n in range(30)]))
    assert found["the longer response"].values["accuracy"]["value"] == 1.0
    assert found["the shorter response"].values["accuracy"]["value"] == 0.0
    assert {found["the longer response"].verdict, found["the shorter response"].verdict} == {BAD}


def test_echoes_of_the_question_are_bad(pair, open_rows) -> None:
    found = check(open_rows([pair(n, chosen=f"On question{n}: alpha{n}.") for n in range(30)]))
    assert (found["words of the question"].verdict, found["words of the question"].values["accuracy"]["value"]) == (
        BAD,
        1.0,
    )


def test_a_marking_word_is_bad_and_named(pair, open_rows) -> None:
    rows = [pair(n, chosen=f"Certainly alpha{n} and beta{n} together.") for n in range(40)]
    finding = check(open_rows(rows))["responses alone, by words"]
    assert (finding.verdict, finding.values["accuracy"]["value"]) == (BAD, 1.0)
    assert "certainly" in finding.values["telling"]["chosen"]
    assert "certainly" in finding.figure


def test_a_marking_topic_is_bad_for_the_encoder(pair, open_rows) -> None:
    rows = [
        pair(n, chosen=f"Mind thrift{n}.", rejected=f"Mind {('craft', 'nature')[n % 2]}{n}.", profile=[])
        for n in range(40)
    ]
    found = check(open_rows(rows), TopicEncoder())
    assert (found["responses alone, by meaning"].verdict, found["words of the profile"].verdict) == (BAD, SKIPPED)
    assert found["meaning of the profile"].figure == "no row has a profile"


def test_a_learned_rule_below_chance_is_worth_a_look_at_most() -> None:
    below, above = estimate(0.1, 0.2), estimate(0.8, 0.9)
    judge = floors._judged
    assert judge(floors.WORDS_ALONE, below, {}, 10, learned=True).verdict == LOOK
    assert judge(floors.WORDS_ALONE, above, {}, 10, learned=True).verdict == BAD
    assert judge(floors.CONTROLS[0], below, {}, 10).verdict == BAD


def test_without_an_encoder_two_checks_are_skipped_with_the_reason(balanced, open_rows) -> None:
    found = check(open_rows(balanced), "Install it.")
    skipped = {name: finding.remedy for name, finding in found.items() if finding.verdict == SKIPPED}
    assert skipped == {"responses alone, by meaning": "Install it.", "meaning of the profile": "Install it."}


def test_large_sets_are_sampled_in_whole_groups_and_say_so(
    balanced, open_rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "MOST_ENCODED", 21)
    monkeypatch.setattr(floors, "MOST_COUNTED", 31)
    found = check(open_rows(balanced), TopicEncoder())
    assert "a sample of 30 rows" in found["responses alone, by words"].figure
    for name in ("responses alone, by meaning", "meaning of the profile"):
        assert "a sample of 20 rows" in found[name].figure
        assert found[name].values["sampled"] is True
    assert found["responses alone, by meaning"].values["accuracy"]["value"] == 0.5


def test_a_single_pair_of_responses_cannot_be_cross_validated(pair, open_rows) -> None:
    found = check(open_rows([pair(0)]))
    assert found["responses alone, by words"].verdict == SKIPPED


def test_label_position_counts_the_coin_of_the_run(pair, open_rows) -> None:
    rows = [pair(n) for n in range(200)]
    share = np.mean([chosen_comes_first(row["id"], seed=3) for row in rows])
    finding = check_position(open_rows(rows), seed=3)
    assert (finding.verdict, finding.values["chosen_first"]["value"]) == (GOOD, pytest.approx(share))
    one_side = [row for row in rows if chosen_comes_first(row["id"], seed=3)]
    finding = check_position(open_rows(one_side), seed=3)
    assert (finding.verdict, finding.values["chosen_first"]["value"]) == (BAD, 1.0)


def test_the_real_encoder(balanced) -> None:
    pytest.importorskip("torch", reason="pip install 'prbench[hf]'")
    audit = check_dataset(balanced)
    found = {finding.check: finding for finding in audit.findings}
    meaning = found["floor: meaning of the profile"]
    if meaning.verdict == SKIPPED:
        pytest.skip(meaning.remedy)
    assert meaning.values["encoder"] == "minilm"
    assert meaning.values["accuracy"]["value"] > 0.8
    assert found["floor: responses alone, by meaning"].values["accuracy"]["value"] == 0.5
    assert re.fullmatch(r"[0-9a-f]{64}", audit.hash)
