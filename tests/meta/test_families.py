"""Families: who is of which, intervals that resample them, and tests inside and between them."""

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from scipy.stats import t as student

from prbench.errors import DataError, UsageError
from prbench.insight.meta import Choices, NullSettings, meta
from prbench.insight.meta.board import BoardPair, board_of_scores
from prbench.insight.meta.families import (
    between_families,
    each_its_own,
    families_of,
    family_by_rule,
    family_draws,
    family_interval,
    seeds_drawn,
    within_families,
)
from prbench.insight.meta.predictors import compare_spearman, recommend
from prbench.insight.meta.read import read_boards
from prbench.insight.meta.statistics import measure

FAST = Choices(draws=200, permutations=500, null=NullSettings(draws=0))


def boards(x: np.ndarray, y: np.ndarray, families: list[str]) -> BoardPair:
    names = [f"m{place}" for place in range(len(x))]
    told = dict(zip(names, families, strict=True))
    one, two = (board_of_scores(name, dict(zip(names, each, strict=True))) for name, each in (("b", x), ("d", y)))
    object.__setattr__(one, "families", told)
    return BoardPair(benchmark=one, downstream=two)


@pytest.mark.parametrize(
    "model,kind,name",
    [
        ("head:models/head-1000", "head", "head:models/head"),
        ("head:models/head/seed-2?context=none", "head", "head:models/head"),
        ("control:overlap", "control", "control:overlap"),
        ("head-1000", "head-1000", "head"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1"),
        ("Skywork-V2-Qwen3-0.6B", "Skywork-V2-Qwen3-0.6B", "Skywork-V2-Qwen3"),
        ("rm_step_400", "rm_step_400", "rm"),
        ("8B", "8B", "8B"),
    ],
)
def test_rules_on_names(model: str, kind: str, name: str) -> None:
    assert family_by_rule(model, "kind") == kind
    assert family_by_rule(model, "name") == name


def test_the_method_is_read_from_the_folder_of_a_trained_model(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    assert family_by_rule(f"head:{folder}", "method") == "head"
    (folder / "manifest.json").write_text(json.dumps({"kind": "train", "config": {"method": "summary"}}))
    assert family_by_rule(f"head:{folder}", "method") == "summary"


def test_families_and_seeds_of_a_table(table) -> None:
    rows = [("a", 0, 1.0, "x", "o"), ("a", 1, 3.0, "x", "o"), ("b", 0, 5.0, "x", "p"), ("c", 0, 4.0, "", "p")]
    path = table("board.csv", "model,seed,score,family,org", *rows)
    (board,) = read_boards([str(path)])
    assert dict(zip(board.models, board.scores, strict=True)) == {"a": 2.0, "b": 5.0, "c": 4.0}
    assert (dict(board.families), dict(board.seeds)) == ({"a": "x", "b": "x"}, {"a": (1.0, 3.0)})
    (by_org,) = read_boards([str(path)], family_by="org")
    assert dict(by_org.families) == {"a": "o", "b": "p", "c": "p"}
    pair = BoardPair(benchmark=board, downstream=board)
    assert pair.families is not None
    assert (pair.families.count, pair.families.sizes.tolist()) == (2, [1, 2])  # "c" is its own


def test_a_model_of_two_families_is_refused(table) -> None:
    path = table("board.csv", "model,item,score,family", ("a", 1, 1.0, "x"), ("a", 2, 3.0, "y"))
    with pytest.raises(DataError, match="is of two families, 'x' and 'y'"):
        read_boards([str(path)])


def test_a_rule_serves_tables_and_an_unknown_column_is_refused(table) -> None:
    rows = [(f"{name}-{size}b", place) for place, (name, size) in enumerate([("a", 1), ("a", 7), ("b", 1), ("c", 1)])]
    path = str(table("board.csv", "model,score", *rows))
    (board,) = read_boards([path], family_by="name")
    assert list(board.families.values()) == ["a", "a", "b", "c"]
    with pytest.raises(UsageError, match="--family-by org: no source tells a family there"):
        meta([path], [path], choices=Choices(family_by="org"))


def test_where_every_model_is_its_own_family_the_interval_is_the_one_over_models() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 9))
    own = boards(x, y, [f"f{place}" for place in (3, 1, 2, 0, 8, 4, 5, 7, 6)])
    plain = boards(x, y, [""] * 9)
    object.__setattr__(plain.benchmark, "families", {})
    with_families, without = measure(own, FAST), measure(plain, FAST)
    for name, figure in with_families.items():
        same = without[name]
        assert (figure.value, figure.low, figure.high, figure.p) == (same.value, same.low, same.high, same.p)
        assert figure.bootstrap_families == same.bootstrap_models
        assert figure.leave_one_out == same.leave_one_out


def test_the_interval_by_hand() -> None:
    # Four families of two; z of Spearman without each in turn.
    x = np.array([1, 2, 3, 5, 4, 6, 8, 7.0])
    y = np.array([2, 1, 3, 6, 5, 4, 7, 8.0])
    families = families_of(list("aabbccdd"))
    value = float(spearmanr(x, y).statistic)
    z = [np.arctanh(spearmanr(x[families.codes != k], y[families.codes != k]).statistic) for k in range(4)]
    error = np.sqrt(3 / 4 * sum((each - np.mean(z)) ** 2 for each in z))
    found = family_interval(value, lambda kept: float(spearmanr(x[kept], y[kept]).statistic), families)
    assert found is not None
    half = student.ppf(0.975, 3) * error
    assert (found.low, found.high) == pytest.approx(
        (np.tanh(np.arctanh(value) - half), np.tanh(np.arctanh(value) + half))
    )
    assert found.p == pytest.approx(2 * student.sf(np.arctanh(value) / error, 3))
    figure = measure(boards(x, y, list("aabbccdd")), FAST)["spearman"]
    assert (figure.low, figure.high, figure.p) == pytest.approx((found.low, found.high, found.p))
    assert (figure.p < 0.05) == (figure.low > 0)


def test_unequal_families_count_as_fewer() -> None:
    assert families_of(list("aaaabc")).effective == pytest.approx(36 / 18)
    assert families_of(list("aabbcc")).effective == pytest.approx(3)
    assert each_its_own(5).effective == pytest.approx(5)


def test_three_families_tell_nothing() -> None:
    x = np.arange(9.0)
    figure = measure(boards(x, x + np.array([0, 2, 0] * 3), list("aaabbbccc")), FAST)["spearman"]
    assert figure.value is not None
    assert (figure.low, figure.high, figure.p) == (None, None, None)


def test_a_perfect_order_is_as_sure_as_that_many_families() -> None:
    x = np.arange(12.0)
    figure = measure(boards(x, x, list("aabbccddeeff")), FAST)["spearman"]
    six = measure(boards(x[:6], x[:6], list("abcdef")), FAST)["spearman"]
    assert (figure.low, figure.high) == (six.low, six.high)


def test_permuting_within_families_by_hand() -> None:
    # Of a: benchmark 1 2, downstream 1 2. Of b: benchmark 1 2 3, downstream 1 3 2. Centered ranks: 0.5 * 2 * 0.5 and
    # (-1, 0, 1) with (-1, 1, 0): 0.5 + 1 = 1.5 of 0.5 + 2 = 2.5.
    x, y = np.array([1, 2, 11, 12, 13.0]), np.array([5, 6, 1, 3, 2.0])
    found = within_families(x, y, families_of(list("aabbb")))
    assert found is not None
    assert found.value == pytest.approx(1.5 / 2.5)
    null = [
        (0.5 * sign + sum(a * b for a, b in zip((-1, 0, 1), order, strict=True))) / 2.5
        for sign in (1, -1)
        for order in permutations((-1, 0, 1))
    ]
    # 2 · 3! = 12 orders: ±2.5 one each, ±1.5 three each, ±0.5 two each (over 2.5): eight of 12 are as far from 0.
    assert (sum(abs(each) >= 0.6 - 1e-9 for each in null), len(null)) == (8, 12)
    assert (found.p, found.exact, found.families, found.models) == (pytest.approx(8 / 12), True, 2, 5)


def test_families_that_differ_alone_show_nothing_within() -> None:
    generator = np.random.default_rng(3)
    worth = np.repeat(np.arange(10.0), 3)
    families = families_of([str(place) for place in np.repeat(np.arange(10), 3)])
    x, y = worth + 0.1 * generator.normal(size=(2, 30))
    within, between = within_families(x, y, families, draws=2_000), between_families(x, y, families, draws=2_000)
    assert within is not None
    assert between is not None
    assert not within.exact  # 6^10 orders
    assert within.p > 0.05
    assert (between.value, between.families) == (pytest.approx(1.0), 10)
    assert between.p < 0.001


def test_the_p_within_is_level() -> None:
    generator = np.random.default_rng(0)
    families = families_of(list("aaabbbccc"))
    small = [
        (found := within_families(*generator.normal(size=(2, 9)), families)) is not None and found.p <= 0.05
        for _ in range(400)
    ]
    assert np.mean(small) < 0.09


def test_draws_keep_families_together() -> None:
    families = families_of(list("aaabbc"))
    for rows in family_draws(families, 50, np.random.default_rng(0)):
        for row in rows:
            counts = np.bincount(families.codes[row], minlength=3)
            assert (counts % families.sizes == 0).all()
            assert (counts // families.sizes).sum() == 3


def test_drawn_seeds_are_those_of_the_model() -> None:
    drawn = np.array([[0, 1, 1]])
    found = seeds_drawn({"b": (1.0, 3.0)}, ("a", "b"), np.array([7.0, 2.0]), drawn, np.random.default_rng(0))
    assert found[0, 0] == 7.0
    assert set(found[0, 1:]) <= {1.0, 2.0, 3.0}


def test_a_mix_is_judged_on_families_that_it_did_not_see() -> None:
    # Downstream is a number of each family's own; a predictor that names the family knows it inside the family alone.
    generator = np.random.default_rng(1)
    codes = np.repeat(np.arange(8), 4)
    worth = generator.normal(size=8)[codes] + 0.01 * generator.normal(size=32)
    names = [f"m{place}" for place in range(32)]
    columns = {
        "near": generator.normal(size=8)[codes] + 0.01 * generator.normal(size=32),
        "noise": generator.normal(size=32),
    }
    down = board_of_scores("down", dict(zip(names, worth, strict=True)))
    pairs = [
        BoardPair(benchmark=board_of_scores(name, dict(zip(names, each, strict=True))), downstream=down)
        for name, each in columns.items()
    ]
    alone = recommend(pairs)
    for pair in pairs:
        object.__setattr__(pair.benchmark, "families", {m: str(c) for m, c in zip(names, codes, strict=True)})
    by_family = recommend(pairs)
    assert alone is not None
    assert by_family is not None
    assert max(way.skill for way in by_family.ways) < max(way.skill for way in alone.ways)


def test_the_population_is_said(table) -> None:
    rows = [(f"m{place}", place, f"f{place // 2}") for place in range(12)]
    told, bare = (
        str(table("told.csv", "model,score,family", *rows)),
        str(table("bare.csv", "model,score", *[r[:2] for r in rows])),
    )
    known = meta([told], [bare], choices=FAST).predictions[0].as_json()
    assert known["population"]["over"] == "families"
    assert known["population"]["families"] == 6
    assert "over families: the 12 models are of 6 families" in known["population"]["sentence"]
    assert known["by_family"]["within"]["families"] == 6
    assert known["statistics"]["spearman"]["p_if"] == "no correlation among families"
    assert known["statistics"]["spearman"]["bootstrap_models"] is None
    assert "12 models of 6 families" in known["verdict"]
    unknown = meta([bare], [bare], choices=FAST).predictions[0].as_json()
    assert unknown["population"]["over"] == "models"
    assert "families are not known" in unknown["population"]["sentence"]
    assert unknown["by_family"] is None


@pytest.mark.parametrize("inside,between,within", [(0.8, 0.5, 0.5), (0.9, 0.97, 0.9), (0.0, 0.0, 0.5)])
def test_coverage_of_ten_families_of_three(inside: float, between: float, within: float) -> None:
    generator = np.random.default_rng(0)
    codes = np.repeat(np.arange(10), 3)
    families = families_of([str(code) for code in codes])
    truth = 6 / np.pi * np.arcsin((inside * between + (1 - inside) * within) / 2)
    held = []
    for _ in range(300):
        a, c = generator.normal(size=(2, 10))
        e, w = generator.normal(size=(2, 30))
        x = np.sqrt(inside) * a[codes] + np.sqrt(1 - inside) * e
        y = np.sqrt(inside) * (between * a + np.sqrt(1 - between**2) * c)[codes]
        y += np.sqrt(1 - inside) * (within * e + np.sqrt(1 - within**2) * w)
        ranks = [each.argsort().argsort().astype(float) for each in (x, y)]
        found = family_interval(
            float(np.corrcoef(*ranks)[0, 1]),
            lambda kept, x=x, y=y: float(np.corrcoef(*[v[kept].argsort().argsort() for v in (x, y)])[0, 1]),  # type: ignore[misc]
            families,
        )
        assert found is not None
        held.append(found.low <= truth <= found.high)
    assert 0.91 <= np.mean(held) <= 0.99


def test_a_difference_swaps_and_draws_families() -> None:
    generator = np.random.default_rng(5)
    first, second, downstream = generator.normal(size=(3, 12))
    families = families_of(list("aaabbbcccddd"))
    found = compare_spearman(first, second, downstream, families=families)
    plain = compare_spearman(first, second, downstream)
    assert found is not None
    assert plain is not None
    assert found.value == plain.value
    assert (found.low, found.high) != (plain.low, plain.high)
    assert (16 * found.p) % 1 == 0  # four families can be swapped in 2^4 ways
    assert compare_spearman(first, second, downstream, families=each_its_own(12)) == plain
    assert compare_spearman(first, second, downstream, families=families_of(list("aaaabbbbcccc"))) is None
