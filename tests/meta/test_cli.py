"""`prbench meta`: a verdict in words, JSON for machines, a page, and one line for what is wrong."""

from pathlib import Path

import numpy as np
import pytest

MODELS = "ABCDEF"


@pytest.fixture
def six(table) -> tuple[Path, Path]:
    """The case of six models under Best-of-N."""
    places = (1, 5, 3, 4, 6, 2)
    benchmark = table("bench.csv", "model,score", *[(m, 6 - n) for n, m in enumerate(MODELS)])
    downstream = table("down.csv", "model,score", *[(m, 7 - place) for m, place in zip(MODELS, places, strict=True)])
    return benchmark, downstream


def options(six: tuple[Path, Path], *more: str) -> list[str]:
    return ["meta", "--benchmark", str(six[0]), "--downstream", str(six[1]), *more]


def test_it_says_that_six_models_cannot_tell(prbench, six) -> None:
    ended = prbench(*options(six))
    assert (ended.code, ended.err) == (0, "")
    assert "bench → down: 6 models" in ended.out
    assert "0.9180" in ended.out
    assert "Too few models to tell" in ended.out


def test_json(prbench, six) -> None:
    found = prbench(*options(six, "--json")).json
    assert found["n_models"] == 6
    assert list(found["statistics"]) == ["spearman", "kendall", "pearson", "weighted_tau", "ndcg", "rbo"]
    for figure in found["statistics"].values():
        assert figure["low"] <= figure["value"] <= figure["high"]
        assert 0 < figure["p"] <= 1
    assert round(found["statistics"]["ndcg"]["value"], 4) == 0.9180
    assert round(found["statistics"]["spearman"]["p"], 2) == 0.66
    assert found["verdict"].startswith("Too few models to tell")
    assert (found["outcome"], found["models_needed"]) == ("too few models to tell", 124)


def test_the_same_command_prints_the_same(prbench, six) -> None:
    assert prbench(*options(six, "--json")).out == prbench(*options(six, "--json")).out


def test_choices_are_stated(prbench, six) -> None:
    found = prbench(*options(six, "--json", "--ndcg-gain", "linear", "--rbo-p", "0.8", "--top-k", "2")).json
    assert found["choices"] | {"gain": "linear", "rbo_p": 0.8, "top_k": 2} == found["choices"]
    assert sorted(found["regret"]) == ["top_1", "top_2"]


def test_two_benchmarks_items_and_resolution(prbench, table) -> None:
    generator = np.random.default_rng(0)
    worth = generator.normal(size=8)
    rows = [
        (f"m{m}", f"i{i}", f"u{i // 2}", round(worth[m] + generator.normal(), 3)) for m in range(8) for i in range(30)
    ]
    bench = table("bench.csv", "model,item,user,score", *rows)
    other = table("other.csv", "model,score", *[(f"m{m}", generator.normal()) for m in range(8)])
    down = table("down.csv", "model,score", *[(f"m{m}", worth[m]) for m in range(8)])
    found = prbench(
        "meta", "--benchmark", str(bench), "--benchmark", str(other), "--downstream", str(down), "--json"
    ).json
    (difference,) = found["differences"]
    assert (difference["first"], difference["second"]) == ("bench", "other")
    assert found["statistics"]["spearman"]["bootstrap_items"] is not None
    assert found["corrected_for_item_noise"]["reliability_benchmark"] < 1
    assert found["recommendations"][0]["predictors"][0]["name"] == "bench"
    alone = prbench("meta", "--benchmark", str(bench), "--resolution")
    assert (alone.code, alone.err) == (0, "")
    assert "8 models, 30 items of 15 users" in alone.out
    assert "A reliability of 0.9 takes" in alone.out


def test_a_map_and_what_is_left_over(prbench, six, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("model,score\nA,1\nB,2\nmodel-C,3\nZZ,4\n")
    ended = prbench("meta", "--benchmark", str(six[0]), "--downstream", str(other))
    assert "only benchmark: C, D, E, F" in ended.out
    assert "only downstream: model-C, ZZ" in ended.out
    names = tmp_path / "map.csv"
    names.write_text("from,to\nmodel-C,C\n")
    found = prbench("meta", "--benchmark", str(six[0]), "--downstream", str(other), "--map", str(names), "--json").json
    assert found["n_models"] == 3
    assert found["unmatched"] == {"benchmark": ["D", "E", "F"], "downstream": ["ZZ"]}


def test_the_page_is_written_and_named(prbench, six) -> None:
    ended = prbench(*options(six, "--html", "pages/meta.html"))
    assert "page: pages/meta.html" in ended.err
    assert Path("pages/meta.html").read_text().lstrip().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "more,message",
    [
        (("--rbo-p", "1"), "persistence of RBO is 1.0"),
        (("--ndcg-gain", "cubic"), "--ndcg-gain cubic: unknown"),
        (("--min-correlation", "1"), "--min-correlation 1: give a correlation between 0 and 1"),
        (("--map", "nowhere.csv"), "nowhere.csv: there is no such file"),
        (("--html", "."), "is a folder"),
        (("--benchmark", "nowhere.csv"), "nowhere.csv: there is no such file"),
        (("--resolution",), "bench: has no item rows"),
    ],
)
def test_bad_input_is_one_line(prbench, six, more: tuple[str, ...], message: str) -> None:
    ended = prbench(*options(six, *more))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err


def test_nothing_to_compare(prbench, six, tmp_path: Path) -> None:
    ended = prbench("meta", "--benchmark", str(six[0]))
    assert ended.code == 2
    assert "Name what policies got with --downstream" in ended.err
    other = tmp_path / "other.csv"
    other.write_text("model,score\nGemma-RM-2B,1\n")
    near = tmp_path / "near.csv"
    near.write_text("model,score\nGemma-RM-7B,1\n")
    ended = prbench("meta", "--benchmark", str(near), "--downstream", str(other))
    assert ended.code == 2
    assert "have no model in common. Did you mean 'Gemma-RM-7B' = 'Gemma-RM-2B'? Say so with --map." in ended.err
    ended = prbench("meta", "--benchmark", str(six[0]), "--downstream", str(other))
    assert "Give files about the same models" in ended.err


def test_families_and_the_design_are_said_beside_the_figures(prbench, table) -> None:
    rows = [(f"m{place}-{size}b", 0.5 + 0.03 * place + 0.01 * size) for place in range(6) for size in (1, 3)]
    benchmark = str(table("bench.csv", "model,score", *rows))
    downstream = str(table("down.csv", "model,score", *[(model, score**2) for model, score in reversed(rows)]))
    command = ["meta", "--benchmark", benchmark, "--downstream", downstream, "--null-draws", "20"]
    ended = prbench(*command, "--family-by", "name")
    assert ended.code == 0
    assert "over families: the 12 models are of 6 families" in ended.out
    assert "95 % over families" in ended.out
    assert "within families" in ended.out
    assert "By design: 5 to 95 % of 20 simulated boards of 12 models (6 families)" in ended.out
    bare = prbench(*command)
    assert "over models: each of the 12 is taken as drawn by itself, since families are not known" in bare.out
    found = prbench(*command, "--family-by", "name", "--json", "--null-traits", "5", "--null-items", "300").json
    assert (found["structural_null"]["traits"], found["structural_null"]["pairs"]) == (5, 300)
    assert found["choices"]["family_by"] == "name"
    refused = prbench(*command, "--family-by", "org")
    assert refused.code == 2
    assert "--family-by org: no source tells a family there" in refused.err
