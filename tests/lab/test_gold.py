"""The gold instrument: exact on the lab's own sentences, measured on others."""

import importlib.util
import json
from pathlib import Path

import pytest

from prbench.backends.encoders import Encoder
from prbench.errors import UsageError
from prbench.lab.gold import GoldInstrument, aspect_traits
from prbench.lab.population import load_library

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
COOKING = next(subject for subject in load_library().subjects if subject.subject == "home_cooking_weeknights")
POINTS = {aspect.trait: aspect.points for aspect in COOKING.aspects}
WALKING = next(subject for subject in load_library().subjects if subject.subject == "weekend_walking_trips")


def no_encoder() -> Encoder:
    raise AssertionError("the lab's own sentences need no encoder")


def test_the_labs_own_sentences_are_known_without_an_encoder() -> None:
    instrument = GoldInstrument(no_encoder)
    for subject in load_library().subjects:
        for aspect in subject.aspects:
            for points in instrument.read(aspect.points, subject.subject):
                assert [(point.subject, point.trait) for point in points] == [(subject.subject, aspect.trait)]


def test_case_and_spaces_do_not_matter_and_other_subjects_count_nothing() -> None:
    instrument = GoldInstrument(no_encoder)
    (known,) = instrument.read([f"  {POINTS['thrift'][0].upper()}"], COOKING.subject)
    assert [point.trait for point in known] == ["thrift"]
    assert instrument.read([POINTS["thrift"][0]], WALKING.subject) == [()]


def test_a_text_is_worth_its_wanted_points_minus_the_unwanted_ones_per_sentence() -> None:
    value = GoldInstrument(no_encoder).value
    thrift, other_thrift, time = POINTS["thrift"][0], POINTS["thrift"][1], POINTS["time"][0]
    wanted = {"thrift"}
    assert value(f"{thrift} {other_thrift} {time}", COOKING.subject, wanted) == pytest.approx((2 - 1) / 3)
    assert value(f"{thrift} {thrift} {thrift}", COOKING.subject, wanted) == pytest.approx(1 / 3)
    assert value(f"{thrift} {WALKING.aspects[0].points[0]}", COOKING.subject, wanted) == pytest.approx(1 / 3)
    assert value(" ".join([*POINTS["thrift"][:4], time]), COOKING.subject, wanted) == pytest.approx((4 - 1) / 5)
    assert value("", COOKING.subject, wanted) == 0


def test_neither_brevity_nor_lists_nor_long_sentences_pay() -> None:
    value = GoldInstrument(no_encoder).value
    three = POINTS["thrift"][:3]
    assert value(three[0], COOKING.subject, {"thrift"}) == pytest.approx(1 / 3)
    assert value("\n".join(f"{n}. {point}" for n, point in enumerate(three, 1)), COOKING.subject, {"thrift"}) == 1
    joined = GoldInstrument().value("; ".join(point.rstrip(".") for point in three) + ".", COOKING.subject, {"thrift"})
    assert joined <= 1


def test_an_unknown_subject_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'tea' is no subject of the lab\. They are: balcony_gardening"):
        GoldInstrument(no_encoder).read(["Any sentence."], "tea")


def test_aspects_are_known_by_their_names() -> None:
    assert len(aspect_traits()) == 18 * 6
    for aspect in COOKING.aspects:
        assert aspect_traits()[aspect.name] == (COOKING.subject, aspect.trait)


def test_the_recorded_confusion_holds_and_meets_its_bars() -> None:
    path = EXPERIMENTS / "gold.py"
    spec = importlib.util.spec_from_file_location("benchmark_gold", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    measured = benchmark.measure()
    recorded = json.loads((EXPERIMENTS.parent / "results" / "lab" / "gold.json").read_text(encoding="utf-8"))
    for part, kinds in recorded.items():
        for kind, shares in kinds.items():
            assert measured[part][kind] == pytest.approx(shares, abs=0.02), (part, kind)  # one probe of 54
    held_out = measured["measured on"]
    assert held_out["lab"]["right"] == 1
    assert held_out["edited"]["right"] >= 0.97
    assert held_out["merged"]["right"] >= 0.95
    assert held_out["neutral"]["wrong"] <= 0.02
    assert held_out["foreign"]["wrong"] <= 0.02
