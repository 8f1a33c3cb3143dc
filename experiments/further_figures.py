"""Figures that the research pages quote and that no other script writes: differences, counts and two checks.

    python experiments/rows.py fetch && python experiments/further_figures.py   # all; or: further_figures.py train

Written: `results/train/differences.json` and `results/folds/differences.json` (paired, item by item, with intervals
over users or topics), `results/lab/counts.json` (how many questions, sentences and posts the test pairs are made of),
`results/ppo/verbatim.json` (how much of a policy's answers are the lab's own sentences), `results/meta/at_kl_2.json`
(PPO at nearly equal distance), `results/meta/six_models.json` (all orders of six) and `results/meta/null.json` (the
correlation that models without any text have, whatever the spread of a board).
"""

import argparse
import gzip
import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table
from lab_halves import BENCHMARK, DOWNSTREAM
from meta_report import BENCHMARKS, FAR_NATS, board, kept_policies, of_half
from train_figures import Points, read_points

from prbench.insight.meta.board import BoardPair, board_of_scores
from prbench.insight.meta.intervals import models_needed
from prbench.insight.meta.statistics import Choices, measure
from prbench.insight.meta.structural import band_of, simulate_boards
from prbench.lab import DEFAULT_SIZES, make_split
from prbench.lab.population import load_library
from prbench.metrics.correlation import coefficient
from prbench.metrics.estimate import clustered_ratios

RESULTS = Path(__file__).parents[1] / "results"
SEEDS = (0, 1, 2)
MODELS, DRAWS = 30, 400  # of the simulation
NATS = 2.0
SENTENCE = re.compile(r"(?<=[.!?])\s+")


def train() -> None:
    """Compare methods of training pair by pair, and count equal plans."""
    read = {arm: [read_points(RESULTS / "train" / f"{arm}-{seed}.csv.gz") for seed in SEEDS] for arm in
            ("blend", "encoder", "head", "planner", "rubric-chain", "summary", "bt_accumulate=1")}  # fmt: skip
    others = [arm for arm in read if not arm.startswith("bt")]
    plans: dict[str, set[str]] = {}
    rows = {row["id"]: row for row in read_table(RESULTS / "lm_planner" / "lora-0.csv.gz")}
    for item, row in rows.items():
        plans.setdefault(item[:-1], set()).add(row["planned"])
    whole = [pair for pair in plans if f"{pair}a" in rows and f"{pair}b" in rows]
    write(
        "train/differences.json",
        {
            "test, own posts": {"blend - encoder": paired(read["blend"], read["encoder"], ("test", "own"))},
            "test_population, no posts": {
                f"{arm} - bt": paired(read[arm], read["bt_accumulate=1"], ("test_population", "none"))
                for arm in others
            },
            "lm-planner with LoRA": {
                "mirrored pairs of people": len(whole),
                "with the same plan": sum(len(plans[pair]) == 1 for pair in whole),
            },
        },
    )


def paired(first: list[Points], second: list[Points], asked: tuple[str, str]) -> dict[str, float]:
    """Return the difference of two methods, of means over seeds, with an interval over users."""
    items = sorted(first[0][asked])
    values = np.array(
        [[np.mean([points[asked][item] for points in side]) for side in (first, second)] for item in items]
    )
    return difference(values, [user for _, user in items])


def difference(values: Any, clusters: list[str]) -> dict[str, float]:
    """Return the mean of the first column minus that of the second."""
    found = clustered_ratios(values, np.ones_like(values), clusters).estimate(0, minus=1)
    return {"value": round(found.value, 6), "low": round(found.low, 6), "high": round(found.high, 6)}


def folds() -> None:
    """Compare with and without posts on text of others."""
    found: dict[str, Any] = {}
    for name in ("personamem", "prefeval"):
        for arm in ("bt-profile", "blend of bt and match", "match"):
            path = RESULTS / "folds" / f"{name}_{arm.replace(' ', '_')}.csv.gz"
            points: dict[tuple[str, str], dict[str, list[float]]] = {}
            for row in read_table(path):
                worth = {"chosen": 1.0, "tie": 0.5}.get(row["verdict"], 0.0)
                points.setdefault((row["id"], row["group"]), {}).setdefault(row["probe"], []).append(worth)
            items = sorted(points)
            values = np.array([[np.mean(points[item][probe]) for probe in ("own", "none")] for item in items])
            found.setdefault(name, {})[f"{arm}: own posts - none"] = difference(values, [unit for _, unit in items])
    write("folds/differences.json", found)


def lab() -> None:
    """Count what the test pairs are made of."""
    rows = list(make_split("test", DEFAULT_SIZES["test"]))
    sentences = [text for row in rows for answer in (row.chosen, row.rejected) for text in SENTENCE.split(answer)]
    posts = [post.text for profile in {row.user.id: row.user.profile for row in rows}.values() for post in profile]
    neutral = set(load_library().neutral)
    write(
        "lab/counts.json",
        {
            "pairs": len(rows),
            "users": len({row.user.id for row in rows}),
            "questions": len({row.question for row in rows}),
            "subjects": len({row.meta["subject"] for row in rows}),
            "sentences": {"different": len(set(sentences)), "used": len(sentences)},
            "posts": {"different": len(set(posts)), "used": len(posts), "neutral": len(set(posts) & neutral)},
        },
    )


def ppo() -> None:
    """Tell how much of the answers of SmolLM2's starting policies are sentences of the lab."""
    library = load_library()
    known = {point for subject in library.subjects for aspect in subject.aspects for point in aspect.points}
    found = {}
    for sitting in ("first", "second"):
        path = RESULTS / "ppo" / sitting / "pool" / "samples.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as file:
            answers = [each["text"] for line in file for each in json.loads(line)["samples"]]
        split = [SENTENCE.split(answer.strip()) for answer in answers]
        found[sitting] = {
            "answers": len(answers),
            "sentences that are the lab's own": share(text in known for answer in split for text in answer),
            "answers of such sentences alone": share(all(text in known for text in answer) for answer in split),
            "different sentences": len({text for answer in split for text in answer if text in known}),
        }
    write("ppo/verbatim.json", found)


def share(claims: Any) -> float:
    """Return the share of claims that hold."""
    return round(float(np.mean([bool(claim) for claim in claims])), 5)


def at_kl() -> None:
    """Compare personalized accuracy with PPO at nearly equal distance from the start."""
    pairs = of_half(BENCHMARK, read_table(RESULTS / "meta" / "pairs.csv.gz"))
    bench = board("personalized", [row for row in pairs if BENCHMARKS["personalised"](row)], "points")
    rows = read_table(RESULTS / "meta" / "ppo_sentences.csv.gz")
    kept = list(kept_policies(rows, NATS))
    ppo = board("PPO", of_half(DOWNSTREAM, kept), "gold")
    both = [model for model in bench.models if model in ppo.models]
    found = measure(BoardPair(benchmark=bench.of(both), downstream=ppo.of(both)), Choices())["spearman"]
    kls: dict[tuple[str, str], list[float]] = {}
    for row in kept:
        kls.setdefault((row["seed"], row["model"]), []).append(float(row["kl"]))
    write(
        "meta/at_kl_2.json",
        {
            "at_kl": NATS,
            "n_models": len(both),
            "spearman": {"value": found.value, "low": found.low, "high": found.high, "p": found.p},
            "runs": len(kls),
            "runs more than half a nat away": sum(abs(float(np.mean(kl)) - NATS) > FAR_NATS for kl in kls.values()),
        },
    )


# NDCG and Spearman as they are quoted for Personalized RewardBench (arXiv 2604.07343), to four digits.
QUOTED = {"Best-of-N": (0.9180, 0.2571), "PPO": (0.9265, 0.3714)}


def six() -> None:
    """Find the orders of six models that give the published figures, and ask what they can show."""
    names = [f"m{number}" for number in range(6)]
    bench = board_of_scores("benchmark", {name: 6.0 - number for number, name in enumerate(names)})
    found: dict[str, Any] = {"orders": 0}
    quick = Choices()
    for places in itertools.permutations(range(1, 7)):
        found["orders"] += 1
        ndcg, rho = ndcg_of(places), 1 - 6 * sum((one - two) ** 2 for one, two in enumerate(places, 1)) / (6 * 35)
        for downstream, quoted in QUOTED.items():
            if (round(ndcg, 4), round(rho, 4)) != quoted:
                continue
            pair = BoardPair(
                benchmark=bench,
                downstream=board_of_scores(
                    downstream, dict(zip(names, (7.0 - place for place in places), strict=True))
                ),
            )
            measured = measure(pair, quick)
            entry = found.setdefault(downstream, {"orders that give both": 0})
            entry["orders that give both"] += 1
            entry["places"] = list(places)
            entry["models_needed"] = models_needed(rho)
            for name in ("spearman", "ndcg"):
                each = measured[name]
                entry[name] = {"value": each.value, "low": each.low, "high": each.high, "p": each.p}
    write("meta/six_models.json", found)


def ndcg_of(places: tuple[int, ...]) -> float:
    """Return NDCG with the exponential gain of a place of six."""
    gains = [2 ** (7 - place) - 1 for place in places]
    ideal = sorted(gains, reverse=True)
    discounted = [sum(gain / np.log2(rank + 2) for rank, gain in enumerate(each)) for each in (gains, ideal)]
    return float(discounted[0] / discounted[1])


def null() -> None:
    """Simulate models that read no text and learn nothing, but know users' wants more or less well.

    A third of 30 models know no wants; the others know them with a weight between 0 and 1. Each adds a weight of 0
    to 1 for what most users want, and noise of its own for every answer. They are asked about 1,600 pairs of one
    wanted and one unwanted sentence, and pick the best of 64 answers of three sentences for 300 users.
    """
    generator = np.random.default_rng(0)
    wants = np.where(np.arange(MODELS) < MODELS // 3, 0.0, generator.uniform(0, 1, (DRAWS, MODELS)))
    follows = generator.uniform(0, 1, (DRAWS, MODELS))
    accuracy, gold = simulate_boards(generator, wants, follows, users=300)
    rhos: dict[str, list[float]] = {"all models": [], "models at 60 % or less": []}
    for x, y in zip(accuracy, gold, strict=True):
        for name, chosen in (("all models", x > 0), ("models at 60 % or less", x <= 0.6)):
            found = coefficient(x[chosen], y[chosen], "spearman") if chosen.sum() > 2 else None
            if found is not None:
                rhos[name].append(found)
    shown = {}
    for name, values in rhos.items():
        band = band_of(np.array(values))
        assert band is not None
        shown[name] = {end: round(value, 4) for end, value in asdict(band).items()}
    write("meta/null.json", {"draws": DRAWS, "models": MODELS, "range": "5 to 95 %", **shown})


def read_json(name: str) -> Any:
    """Read a file of results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def write(name: str, found: Mapping[str, Any]) -> None:
    """Write a file of results."""
    content = {"command": "python experiments/further_figures.py", **found}
    text = json.dumps(content, indent=1) + "\n"
    (RESULTS / name).write_text(text, encoding="utf-8")
    print(name, text)


PARTS: dict[str, Callable[[], None]] = {
    "train": train, "folds": folds, "lab": lab, "ppo": ppo,
    "at_kl": at_kl, "six": six, "null": null,
}  # fmt: skip


def main() -> None:
    """Write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"of: {', '.join(PARTS)}")
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
