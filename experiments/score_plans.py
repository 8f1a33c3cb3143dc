"""Measure plans that a language model wrote on a machine that is gone: what `train_lm_planner.py` would have measured.

    python experiments/score_plans.py models/lmp --seeds 0 1 2 --rows 1000 --out results/lm_planner

`models/lmp` holds, per seed, `lm-planner-SEED` (its criteria scorer; the language model itself is not needed) and
`lm-planner-SEED-plans`: `planner_rows.jsonl` where the planner was asked to the end, else `cache/llm.sqlite`, the
replies that were kept as they came. Such a reply belongs to the row of its user whose prompt has as many tokens; where
there are several, to the one whose subject has aspects that it names. One that fits none or several is left out and
counted. The longest prompts were asked first, so what is missing is of people with few posts.
Written per seed: `full-SEED.csv.gz`, one line per row, and `full.json`, figures of each seed and of all seeds on the
rows that all of them have, with 95 % intervals over users.
"""

import argparse
import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import write_table

from prbench.backends.encoders import load_encoder
from prbench.context.aspect_planner import aspect_text
from prbench.context.plan import plan_messages
from prbench.context.posts import Ask, rank_recent
from prbench.lab import DEFAULT_SIZES, SEED, make_split
from prbench.lab.population import load_library
from prbench.metrics.estimate import clustered_ratios
from prbench.prompts.replies import read_aspects
from prbench.reward_models.planner import CriteriaScorer, CriteriaWeights, Criterion
from prbench.schema import Example
from prbench.training.backbones import backbone_place
from prbench.training.lm_planner import LmPlannerConfig
from prbench.training.lm_trainer import SftTokenizer

COLUMNS = ("id", "user_id", "wanted", "planned", "verdict", "score_chosen", "score_rejected")
Found = dict[str, dict[str, Any]]  # by the id of a row


def main() -> None:
    """Find every plan's row, score both responses, and write rows and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/lm_planner"))
    asked = parser.parse_args()
    rows = list(make_split("test", DEFAULT_SIZES["test"], seed=SEED))[: asked.rows]
    places = places_of(rows)
    kept = {seed: read_plans(asked.folder / f"lm-planner-{seed}-plans", places) for seed in asked.seeds}
    found = {seed: score(rows, plans, scorer_of(asked.folder, seed)) for seed, (plans, _) in kept.items()}
    shared = sorted(set.intersection(*(set(each) for each in found.values())))
    figures: dict[str, Any] = {"rows": len(rows), "shared": len(shared), "seeds": {}}
    for seed, plans in found.items():
        write_table(asked.out / f"full-{seed}.csv.gz", COLUMNS, [line_of(each) for each in plans.values()])
        trained = json.loads((asked.folder / f"lm-planner-{seed}" / "summary.json").read_text(encoding="utf-8"))
        figures["seeds"][seed] = {
            "facts": trained["facts"],
            "rows": len(plans),
            "replies_without_a_row": kept[seed][1],
            "all": estimates([list(plans.values())]),
            "shared": estimates([[plans[item] for item in shared]]),
        }
    figures["all_seeds_shared"] = estimates([[plans[item] for item in shared] for plans in found.values()])
    (asked.out / "full.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for name, each in [*figures["seeds"].items(), ("all", {"shared": figures["all_seeds_shared"]})]:
        print(name, json.dumps({part: each[part] for part in ("all", "shared") if part in each}))


def places_of(rows: Sequence[Example]) -> dict[tuple[str, int], list[Example]]:
    """Return the rows by user and by the tokens of the planner's prompt."""
    from transformers import AutoTokenizer

    config = LmPlannerConfig(lora_rank=0)
    layout = SftTokenizer(AutoTokenizer.from_pretrained(backbone_place(config.backbone)), config)
    found: dict[tuple[str, int], list[Example]] = defaultdict(list)
    for row in rows:
        (posts,) = rank_recent([Ask(user=row.user, question=row.question)])
        prompt = layout.prompt(plan_messages(row.question, [post.text for post in posts[: config.posts]]))
        found[row.user.id, len(prompt)].append(row)
    return found


Plans = dict[str, list[tuple[str, str]]]  # aspects with their reasons, by the id of a row


def read_plans(folder: Path, places: Mapping[Any, list[Example]]) -> tuple[Plans, int]:
    """Return the plans of one seed, and how many kept replies fit no row, or several."""
    if (whole := folder / "planner_rows.jsonl").exists():
        rows = [json.loads(line) for line in whole.read_text(encoding="utf-8").splitlines()]
        return {row["id"]: [split(each) for each in row["planned"]] for row in rows}, 0
    subjects = {subject.subject: {aspect.name for aspect in subject.aspects} for subject in load_library().subjects}
    replies = sqlite3.connect(folder / "cache" / "llm.sqlite").execute(
        "select reply, user from replies join owners using (key)"
    )
    plans: Plans = {}
    lost = 0
    for text, user in replies:
        reply = json.loads(text)
        named = list(read_aspects(reply["text"]))
        fitting = places.get((user, reply["prompt_tokens"]), [])
        if len({row.question for row in fitting}) > 1:
            fitting = [row for row in fitting if {aspect for aspect, _ in named} & subjects[row.meta["subject"]]]
        if len({row.question for row in fitting}) == 1:
            plans |= {row.id: named for row in fitting}  # the same question of the same user has the same plan
        else:
            lost += 1
    return plans, lost


def split(planned: str) -> tuple[str, str]:
    """Return aspect and reason of one line of a plan."""
    aspect, _, reason = planned.partition(": ")
    return aspect, reason


def scorer_of(folder: Path, seed: int) -> CriteriaScorer:
    """Return the criteria scorer that was trained beside the planner."""
    return CriteriaScorer(CriteriaWeights.load(folder / f"lm-planner-{seed}"), load_encoder())


def score(rows: Sequence[Example], plans: Plans, scorer: CriteriaScorer) -> Found:
    """Score both responses of every row that has a plan, as `planner:FOLDER` does."""
    planned = [row for row in rows if row.id in plans]
    criteria = [[Criterion(aspect_text(*each), 1.0) for each in plans[row.id]] for row in planned for _ in range(2)]
    values = scorer.score(criteria, [text for row in planned for text in (row.chosen, row.rejected)])
    return {
        row.id: {
            "row": row,
            "planned": [aspect for aspect, _ in plans[row.id]],
            "wanted": [each.aspect for each in row.rubric],
            "scores": (values[2 * place], values[2 * place + 1]),
        }
        for place, row in enumerate(planned)
    }


def points(one: Mapping[str, Any]) -> float:
    """Return 1 where the chosen response wins, 0.5 for a tie."""
    chosen, rejected = one["scores"]
    return 1.0 if chosen > rejected else 0.5 if chosen == rejected else 0.0


def estimates(seeds: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return precision of the plans, what guessing gives, and accuracy; means over seeds, intervals over users."""
    first = seeds[0]
    right = np.mean([[len(set(one["planned"]) & set(one["wanted"])) for one in rows] for rows in seeds], axis=0)
    planned = np.mean([[len(one["planned"]) for one in rows] for rows in seeds], axis=0)
    won = np.mean([[points(one) for one in rows] for rows in seeds], axis=0)
    aspects = {subject.subject: len(subject.aspects) for subject in load_library().subjects}
    guessed = [len(one["wanted"]) / aspects[one["row"].meta["subject"]] for one in first]
    values = np.stack([right, won, np.array(guessed)], axis=1)
    weights = np.stack([planned, np.ones(len(first)), np.ones(len(first))], axis=1)
    draws = clustered_ratios(values, weights, [one["row"].user.id for one in first])
    names = ("precision", "accuracy", "precision_by_guessing")
    return {name: asdict(draws.estimate(place)) for place, name in enumerate(names)}


def line_of(one: Mapping[str, Any]) -> list[Any]:
    """Return the cells of one row."""
    chosen, rejected = one["scores"]
    verdict = "chosen" if chosen > rejected else "tie" if chosen == rejected else "rejected"
    listed = ("; ".join(one[name]) for name in ("wanted", "planned"))
    return [one["row"].id, one["row"].user.id, *listed, verdict, f"{chosen:.5g}", f"{rejected:.5g}"]


if __name__ == "__main__":
    main()
