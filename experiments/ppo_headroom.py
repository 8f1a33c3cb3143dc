"""How much of what Best-of-N could give does PPO with the truth as reward give? Both on the same held-out questions.

    python experiments/ppo_headroom.py --pool runs/pool_first --ppo results/ppo/first/ppo_smollm2_long.csv.gz

The headroom is the gold of the best of all answers of a pool, as the truth picks, minus that of the starting policy's
held-out answers before PPO; the share of it is what PPO adds to the latter. The mean of the pool's answers is printed
too: the same policy, so about the same. 95 % intervals resample users, and with them both pool and policies. Gold is
the mean over seeds. A pool that was not sampled to the end counts for its questions alone, of PPO's rows too. Whether
the pool is of the policy that PPO started from is yours to know.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from kept_rows import read_table
from lab_halves import DOWNSTREAM, one_each, rows_of_half

from prbench.data import DataSettings, open_data
from prbench.downstream.best_of_n.pool import SAMPLES, grade_pool, kept_pool, select_questions
from prbench.judging import LabJudge
from prbench.metrics.estimate import RatioDraws, ratio_draws

SPAN = (-1.0, 1.0)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--ppo", type=Path, required=True, help="rows of ppo_rows.py")
    parser.add_argument("--model", default="control:gold")
    asked = parser.parse_args()
    rows = [row for row in read_table(asked.ppo) if row["model"] == asked.model]
    last = max(int(row["step"]) for row in rows)
    golds: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for row in rows:
        if int(row["step"]) in (0, last):
            golds[row["id"], row["step"] != "0"].append(float(row["gold"]))
    users = {row["id"]: row["user_id"] for row in rows}
    best, one = of_pool(asked.pool, len(users))
    if not best or not set(best) <= set(users):
        raise SystemExit("The pool and the runs are about different questions.")
    items = sorted(best)
    print(f"{len(items)} of the {len(users)} held-out questions are in the pool")
    table = np.array([[np.mean(golds[i, False]), np.mean(golds[i, True]), best[i], one[i]] for i in items])
    draws = ratio_draws(table, np.ones_like(table), [users[i] for i in items], span=SPAN)
    for column, name in enumerate(("before PPO", f"after {last} updates", "the best of the pool", "one of the pool")):
        print(f"{name}: {told(draws, column)}")
    first, then, most = draws.samples[:, :3].T
    before, after, top, _ = table.mean(axis=0)
    low, high = np.quantile((then - first) / (most - first), (0.025, 0.975))
    print(
        f"share of the headroom: {100 * (after - before) / (top - before):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    )


def of_pool(folder: Path, questions: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return for every question the gold of its best answer and the mean gold of all."""
    with open_data(DataSettings(), one_each(rows_of_half("test", DOWNSTREAM), questions)) as store:
        lines = (folder / SAMPLES).read_text(encoding="utf-8").split("\n")[:-1]  # what a kill tore is no line
        sampled = {json.loads(line)["id"] for line in lines}
        asked = [question for question in select_questions(store) if question.id in sampled]
        pool = kept_pool(folder, asked, data_hash=store.content_hash)
    worth = grade_pool(pool, asked, LabJudge()).values
    return (
        {item: float(np.max(values)) for item, values in worth.items()},
        {item: float(np.mean(values)) for item, values in worth.items()},
    )


def told(draws: RatioDraws, column: int) -> str:
    """Return a figure with its interval."""
    found = draws.estimate(column)
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


if __name__ == "__main__":
    main()
