"""What the YAML files beside this name: the pairs as multiple choice, and how likelihoods become accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any

from prbench.downstream.harness.pairs import prepared_pairs, read_options
from prbench.errors import DataError, UsageError, needs
from prbench.evaluation.score import chosen_comes_first
from prbench.metrics.estimate import clustered_ratios
from prbench.prompts import load_template
from prbench.schema import POINTS, Json, Score, decide

OPTIONS = "prbench"  # our key in `--metadata`, which also holds what others put there
PROMPT = "turn"  # what a reward model with a chat template is shown as the user's turn


def dataset(probe: str, **metadata: Json) -> dict[str, Any]:
    """Return the split `test`: a prompt, two choices in an order that a coin per pair decides, and the right one."""
    given = metadata.get(OPTIONS, {})
    where = f"--metadata {OPTIONS}"
    if not isinstance(given, Mapping) or "probes" in given:
        raise UsageError(f'{where}: give options such as {{"data": "lab", "limit": 100}}; each probe is a task.')
    options = read_options({**given, "probes": [probe]}, where)
    turn = load_template(PROMPT)
    rows = []
    for item in prepared_pairs(options):
        if item.user.problem:
            raise DataError(f"{item.example.id}: has no context: {item.user.detail or item.user.problem.value}.")
        comes_first = chosen_comes_first(item.example.id, seed=options.seed)
        ((_, prompt),) = turn.fill(question=item.example.question, context=item.user.text)
        rows.append(
            {
                "id": item.example.id,
                "user_id": item.example.user.id,
                "prompt": prompt,
                "choices": list(item.responses if comes_first else item.responses[::-1]),
                "gold": 0 if comes_first else 1,
            }
        )
    with needs("hf", "A task of lm-eval"):
        from datasets import Dataset
    return {"test": Dataset.from_list(rows)}


def process_results(doc: Mapping[str, Json], results: Sequence[tuple[float, bool]]) -> dict[str, Json]:
    """Return the points of one pair: 1 where the chosen response is likelier, 0.5 for a tie.

    `acc` compares log-probabilities, `acc_norm` those per byte of a response, as lm-eval's own metrics of these names.
    """
    raw = [likelihood for likelihood, _ in results]
    per_byte = [value / len(choice.encode()) for value, choice in zip(raw, doc["choices"], strict=True)]
    points, points_norm = (_points(values, doc["gold"]) for values in (raw, per_byte))
    owned = (doc["user_id"], points)
    return {"acc": points, "acc_norm": points_norm, "error_by_user": owned}


def error_by_user(items: Sequence[tuple[str, float]]) -> float:
    """Return the standard error of `acc` clustered by users, which lm-eval's own takes as independent."""
    users, points = zip(*items, strict=True)
    return clustered_ratios(points, [1.0] * len(points), users).spread(0).error


def _points(values: Sequence[float], gold: int) -> float:
    chosen, rejected = Score(value=values[gold]), Score(value=values[1 - gold])
    return POINTS[decide(chosen, rejected)]
