"""`prbench bench parity`: how far two models are apart, and an exit code for scripts."""

from pathlib import Path

MODELS = ("--model", "fake:length", "--model", "fake:keyword=thrift")


def test_equal_models_differ_by_nothing(prbench, pairs: Path) -> None:
    ended = prbench(
        "bench", "parity", "--model", "fake:length", "--model", "fake:length", "--data", str(pairs), "--tolerance", "0"
    )
    assert ended.code == 0
    assert "24 of 24 responses" in ended.out
    assert "max 0, mean 0" in ended.out


def test_different_models_end_with_1_when_a_tolerance_is_given(prbench, pairs: Path) -> None:
    ended = prbench("bench", "parity", *MODELS, "--data", str(pairs), "--limit", "1", "--json", "--tolerance", "0.1")
    assert ended.code == 1
    # Row 0: chosen "Sow cheap seeds of thrift number 0." has 35 characters and the word; rejected has 48 and not.
    assert ended.json["max_abs"] == 48.0
    assert ended.json["mean_abs"] == (34 + 48) / 2
    assert ended.json["verdicts_agree"] == 0.0
    assert [row["side"] for row in ended.json["worst"]] == ["rejected", "chosen"]
    assert prbench("bench", "parity", *MODELS, "--data", str(pairs)).code == 0


def test_it_takes_exactly_two_models(prbench, pairs: Path) -> None:
    ended = prbench("bench", "parity", "--model", "fake:length", "--data", str(pairs))
    assert ended.code == 2
    assert "given 1 times" in ended.err


def test_the_truth_has_no_rubric_to_read(prbench) -> None:
    ended = prbench("bench", "parity", "--model", "control:gold", "--model", "control:longest", "--limit", "2")
    assert ended.code == 2
    assert "reads the rubric, and parity passes none" in ended.err
