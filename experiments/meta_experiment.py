"""Ask models of graded quality about pairs, let them pick from pools, and keep every row: does one predict the other?

    python experiments/meta_experiment.py --models models/meta/models.json --policy lab --out results/meta
    python experiments/meta_experiment.py --models models/meta/models.json --policy hf:models/sft --out results/meta \
        --policy-context plan --planner models/planner-0

Benchmarks: personalised pairs of the lab (each with the own and with another user's profile, by how plainly posts
tell), and general pairs. Downstream: the expected gold of the best of 4, 16 and 64 answers of a policy. Both are drawn
from the lab's test texts, for different people and about different questions (`lab_halves.py`). Written to `--out`:
`pairs.csv.gz` and `bon_POLICY.csv.gz`, one line per model, seed and item; models and seeds that are there already are
not asked again. `--pool-only` samples, which alone gains by a GPU, and stops; `--pool` takes such a pool elsewhere,
without the policy.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kept_rows import read_table, write_table
from lab_halves import BENCHMARK, DOWNSTREAM, one_each, rows_of_half

from prbench.context import KINDS
from prbench.data import DataSettings, open_data
from prbench.downstream.best_of_n.pool import (
    Pool,
    PoolQuestion,
    RewardModelEntry,
    grade_pool,
    kept_pool,
    make_pool,
    score_pool,
    select_questions,
)
from prbench.downstream.best_of_n.summary import best_of_each
from prbench.downstream.policies import load_policy
from prbench.evaluation import EvalSettings, context_maker, evaluate
from prbench.judging import LabJudge
from prbench.reward_models import ModelSettings, load_reward_model
from prbench.schema import POINTS, Example, Probe, Row

POSTS = 30
POOL = 64
SIZES = (1, 4, 16, 64)
ASKED = 1600  # pairs of each benchmark
ANSWERED = 300  # questions downstream
PAIR_COLUMNS = ("seed", "model", "benchmark", "probe", "id", "user_id", "category", "level", "majority", "points")
BEFORE = ("seed", "model", "id", "user_id", "majority")
AFTER = ("oracle", "variance", "pairs_right", "length_correlation")
BON_COLUMNS = (*BEFORE, *(f"best_of_{n}" for n in SIZES), *AFTER)


def main() -> None:
    """Ask what was not asked yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="models.json of meta_models.py")
    parser.add_argument("--policy", default="lab")
    parser.add_argument("--policy-context", default="none", choices=KINDS)
    parser.add_argument("--planner", default="", help="folder of a planner, for --policy-context plan")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--dtype", default="auto", help="of an hf: policy")
    parser.add_argument("--batch-size", type=int, help="answers that an hf: policy samples together")
    parser.add_argument("--name", help="of the policy in the names of files")
    parser.add_argument("--leave-out", nargs="+", default=[], help="names of models that are too slow for a pool")
    parser.add_argument("--pool-only", action="store_true")
    parser.add_argument("--pool", type=Path, help="folder of a pool that was sampled before")
    parser.add_argument("--answered", type=int, default=ANSWERED, help="questions downstream, one per person")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/meta"))
    parser.add_argument("--work", type=Path, default=Path("runs/meta"), help="folder for pools")
    parser.add_argument("--tiny", action="store_true", help="rehearse with few rows")
    asked = parser.parse_args()
    if asked.pool and not asked.name:
        parser.error("--pool needs the --name of its policy.")
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.pool_only:
        sample(asked)
        return
    listed = json.loads(asked.models.read_text(encoding="utf-8"))
    ask_pairs(listed, asked)
    ask_pools(listed, asked)


def ask_pairs(listed: Any, asked: argparse.Namespace) -> None:
    """Ask every model about the pairs of both benchmarks."""
    path = asked.out / "pairs.csv.gz"
    kept = [list(row.values()) for row in read_table(path)] if path.exists() else []
    done = {(row[0], row[1]) for row in kept}
    size = 80 if asked.tiny else ASKED
    benchmarks = {
        "personal": rows_of_half("test", BENCHMARK)[:size],
        "general": rows_of_half("test_general", BENCHMARK)[:size],
    }
    for seed in asked.seeds:
        for name, model in listed[str(seed)].items():
            if (str(seed), name) in done:
                continue
            for benchmark, rows in benchmarks.items():
                kept += [[seed, name, benchmark, *cells] for cells in about(rows, model, benchmark, seed)]
            write_table(path, PAIR_COLUMNS, kept)
            print(f"pairs: {name} {seed}", flush=True)


def say_what(path: Path, pool: Pool, asked: argparse.Namespace) -> None:
    """Note which pool the rows are about; rows of another pool under the same name are refused."""
    facts = {
        "policy": asked.policy,
        "policy_context": asked.policy_context,
        "temperature": asked.temperature,
        "pool": pool.id,
        "answers": POOL,
    }
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != facts:
        raise SystemExit(f"{path} tells of another pool. Give this one another --name.")
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def rows_of_first_seed(kept: Sequence[list[Any]], name: str, model: Any, seed: int) -> list[list[Any]]:
    """Return the picks that a control without chance has for another seed, with this one; none for other models."""
    if not model["spec"].startswith("control:") or model["spec"] == "control:random":
        return []
    there = [row for row in kept if row[1] == name]
    return [[seed, *row[1:]] for row in there if str(row[0]) == str(there[0][0])]


def about(rows: Sequence[Example], model: Any, benchmark: str, seed: int) -> Iterator[list[Any]]:
    """Yield what one model says of every pair."""
    probes = (Probe.OWN, Probe.SWAP) if benchmark == "personal" else (Probe.OWN,)
    how = EvalSettings(context=model["context"], posts=POSTS, seed=seed, probes=probes)
    group_by = ("level",) if benchmark == "personal" else ()
    for row in evaluate(rows, model["spec"], settings=how, group_by=group_by).items:
        assert isinstance(row, Row)
        level, majority = (row.groups.get(name, "") for name in ("level", "majority"))
        yield [row.probe.value, row.id, row.user_id, row.category, level, majority, POINTS[row.verdict]]


def ask_pools(listed: Any, asked: argparse.Namespace) -> None:
    """Let every model pick from the pools of one policy."""
    name = asked.name or ("lab" if asked.policy == "lab" else Path(asked.policy.partition(":")[2]).name)
    path = asked.out / f"bon_{name}.csv.gz"
    kept = [list(row.values()) for row in read_table(path)] if path.exists() else []
    done = {(row[0], row[1]) for row in kept}
    questions, pool = sample(asked)
    say_what(path.with_name(f"bon_{name}.json"), pool, asked)
    if not pool.answers:
        raise SystemExit(f"{name}: no question has answers: {next(iter(pool.incomplete.values()))}.")
    worth = grade_pool(pool, questions, LabJudge()).values
    questions = [question for question in questions if question.id in pool.answers and question.id in worth]
    print(f"{name}: {len(pool.incomplete)} questions without answers are left out", flush=True)
    for seed in asked.seeds:
        for model, how in listed[str(seed)].items():
            if (str(seed), model) in done or model in asked.leave_out:
                continue
            if same := rows_of_first_seed(kept, model, how, seed):
                kept += same
                write_table(path, BON_COLUMNS, kept)
                continue
            maker = context_maker(EvalSettings(context=how["context"], posts=POSTS, seed=seed), None)
            loaded = load_reward_model(how["spec"], ModelSettings(seed=seed))
            scores = score_pool(
                pool, questions, RewardModelEntry(name=how["spec"], loaded=loaded, maker=maker), seed=seed
            )
            own = scores.values[Probe.OWN]
            kept += [
                [seed, model, *picked(question, worth[question.id], own[question.id], pool.answers[question.id])]
                for question in questions
                if question.id in own
            ]
            write_table(path, BON_COLUMNS, kept)
            print(f"{name}: {model} {seed}", flush=True)


def sample(asked: argparse.Namespace) -> tuple[list[PoolQuestion], Pool]:
    """Return the questions downstream and the policy's answers to them, sampled unless they are there."""
    rows = one_each(rows_of_half("test", DOWNSTREAM), 20 if asked.tiny else asked.answered)
    told = context_maker(EvalSettings(context=asked.policy_context, posts=POSTS, planner=asked.planner), None)
    with open_data(DataSettings(), rows) as store:
        questions = list(select_questions(store))
        if asked.pool:
            kept = kept_pool(asked.pool, questions, data_hash=store.content_hash)
            if kept.n != POOL:
                raise SystemExit(f"{asked.pool}: has {kept.n} answers to a question, not {POOL}.")
            return questions, kept
        policy = load_policy(
            asked.policy,
            temperature=asked.temperature,
            max_tokens=asked.max_tokens,
            batch_size=asked.batch_size,
            dtype=asked.dtype,
        )
        pool = make_pool(questions, policy, told, asked.work, n=POOL, seed=0, data_hash=store.content_hash)
    return questions, pool


def picked(
    question: PoolQuestion, worth: Sequence[float], scores: Sequence[float], answers: Sequence[str]
) -> list[Any]:
    """Return what one model's picks are worth, and what may predict it."""
    values, given, lengths = np.array(worth), np.array(scores), np.array([len(answer) for answer in answers])
    curve, best = best_of_each(values, given), best_of_each(values, values)
    one, two = np.triu_indices(len(values), k=1)
    differ = values[one] != values[two]
    told = (np.sign(given[one] - given[two]) * np.sign(values[one] - values[two]))[differ]
    varies = given.std() > 0 and lengths.std() > 0
    return [
        question.id,
        question.example.user.id,
        question.example.meta.get("majority", ""),
        *(round(float(curve[n - 1]), 6) for n in SIZES),
        round(float(best[-1]), 6),
        round(float(given.var()), 6),
        round(float(np.mean(told) + 1) / 2, 6) if len(told) else "",
        round(float(np.corrcoef(given, lengths)[0, 1]), 6) if varies else "",
    ]


if __name__ == "__main__":
    main()
