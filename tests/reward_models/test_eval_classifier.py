"""A classifier through the whole command: its scores are those of plain transformers on the same text."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOPICS = ("tomatoes", "a very long walk along the river with two dogs and no map", "tea")


def rows() -> list[dict[str, Any]]:
    return [
        {
            "id": f"item-{number}",
            "user_id": f"user-{number % 4}",
            "question": f"What about {TOPICS[number % 3]} in week {number}?",
            "profile": [
                {"id": f"p{number % 4}", "category": "", "text": f"Person {number % 4} likes {TOPICS[number % 3]}."}
            ],
            "rubric_aspects": [],
            "narrative": "",
            "category": "garden",
            "chosen": f"Try it slowly, {number}. " * (1 + number % 3),
            "rejected": f"Leave it, {number}.",
        }
        for number in range(10)
    ]


def plain_scores(folder: Path, row: dict[str, Any]) -> tuple[float, float]:
    """Score both responses one at a time with transformers alone, on the documented text."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    post = row["profile"][0]["text"]
    asked = f"The question that this person asks now:\n\n{row['question']}"
    turn = f"Posts that this person wrote before:\n\n- {post}\n\n{asked}"
    values = []
    for response in (row["chosen"], row["rejected"]):
        messages = [{"role": "user", "content": turn}, {"role": "assistant", "content": response}]
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt")[
            "input_ids"
        ]
        with torch.inference_mode():
            values.append(float(model.model(ids).last_hidden_state[0, -1] @ model.score.weight[0]))
    return values[0], values[1]


@pytest.mark.slow
def test_eval_scores_equal_plain_transformers_for_any_batch_size_and_order(
    llama_classifier: Path, tmp_path: Path
) -> None:
    data = rows()
    expected = {row["id"]: plain_scores(llama_classifier, row) for row in data}
    for batch_size, shuffle in ((1, False), (3, True), (16, False)):
        if shuffle:
            random.Random(1).shuffle(data)
        path = tmp_path / f"pairs-{batch_size}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in data))
        out = tmp_path / f"runs-{batch_size}"
        command = ["eval", "--model", f"classifier:{llama_classifier}", "--data", str(path), "--context", "profile"]
        options = [
            "--probes",
            "own,none,swap",
            "--batch-size",
            str(batch_size),
            "--dtype",
            "float32",
            "--out",
            str(out),
        ]
        subprocess.run([sys.executable, "-m", "prbench", *command, *options], check=True, stdout=subprocess.DEVNULL)
        found = [json.loads(line) for line in next(out.glob("*/items.jsonl")).read_text().splitlines()]
        assert len(found) == 30
        for row in found:
            if row["probe"] == "own":
                assert row["score_chosen"] == pytest.approx(expected[row["id"]][0], abs=1e-4)
                assert row["score_rejected"] == pytest.approx(expected[row["id"]][1], abs=1e-4)
