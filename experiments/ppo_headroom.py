"""How much of what Best-of-N could give does PPO with gold as reward give? Both on the same held-out questions.

    python experiments/ppo_headroom.py --pool runs/pool_first --ppo results/ppo/first/ppo_smollm2_long.csv.gz

The headroom is the gold of the best of all answers of a pool, picked by gold, minus that of the starting policy's
held-out answers before PPO; the share of it is what PPO adds to the latter. The mean of the pool's answers is printed
too: the same policy, so about the same. 95 % intervals resample users, and with them both pool and policies. Gold is
the mean over seeds. A pool that was not sampled to the end counts for its questions alone, of PPO's rows too, and
`--first N` takes the first N questions of any pool. Whether the pool is of the policy that PPO started from is for you
to know. With `--out FILE` the figures are also written as JSON.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table
from lab_halves import DOWNSTREAM, one_each, rows_of_half

from prbench.downstream.best_of_n.pool import SAMPLES
from prbench.judging import LabJudge
from prbench.metrics.estimate import ClusteredRatios, clustered_ratios

SPAN = (-1.0, 1.0)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--ppo", type=Path, required=True, help="rows of ppo_rows.py")
    parser.add_argument("--model", default="oracle", help="whose runs, as the rows name it")
    parser.add_argument("--first", type=int, help="of the pool's questions, count so many")
    parser.add_argument("--out", type=Path, help="a JSON file of the figures")
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
    items = sorted(list(best)[: asked.first])
    table = np.array([[np.mean(golds[i, False]), np.mean(golds[i, True]), best[i], one[i]] for i in items])
    draws = clustered_ratios(table, np.ones_like(table), [users[i] for i in items], span=SPAN)
    first, then, most = draws.samples()[:, :3].T
    before, after, top, _ = table.mean(axis=0)
    low, high = np.quantile((then - first) / (most - first), (0.025, 0.975))
    found: dict[str, Any] = {"questions": len(items), "updates": last}
    for column, name in enumerate(("before", "after", "best of the pool", "mean of the pool")):
        found[name] = as_figure(draws, column)
    share = (after - before) / (top - before)
    found["share of the headroom"] = {"value": float(share), "low": float(low), "high": float(high)}
    print(json.dumps(found, indent=1))
    if asked.out:
        command = f"python experiments/ppo_headroom.py --pool {asked.pool} --ppo {asked.ppo}"
        command += f" --first {asked.first}" * bool(asked.first)
        asked.out.write_text(json.dumps({"command": command, **found}, indent=1) + "\n", encoding="utf-8")


def of_pool(folder: Path, questions: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return for every question the gold of its best answer and the mean gold of all."""
    asked = {row.id: row for row in one_each(rows_of_half("test", DOWNSTREAM), questions)}
    judge = LabJudge()
    best, mean = {}, {}
    for line in (folder / SAMPLES).read_text(encoding="utf-8").split("\n")[:-1]:  # what a kill tore is no line
        sampled = json.loads(line)
        question = asked[sampled["id"]]
        assert question.user.id == sampled["user_id"], "the pool is about another lab"
        grades = judge.grade(question, [each["text"] for each in sampled["samples"]])
        values = [grade.value for grade in grades if grade.value is not None]
        best[question.id], mean[question.id] = float(np.max(values)), float(np.mean(values))
    return best, mean


def as_figure(draws: ClusteredRatios, column: int) -> dict[str, float]:
    """Return a figure with its interval."""
    found = draws.estimate(column)
    return {"value": found.value, "low": found.low, "high": found.high}


if __name__ == "__main__":
    main()
