"""A reward model by TRL, trained on what prbench shows of the users, and back as `classifier:` for an evaluation.

pip install 'prbench[hf,train]', then:  python examples/trl_reward_trainer.py --backbone Qwen/Qwen3-0.6B
"""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from trl import RewardConfig, RewardTrainer

import prbench
from prbench.context import contexts_of, make_context
from prbench.data.export import to_trl_row

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--backbone", required=True, help="folder or hub id of a model with a chat template")
parser.add_argument("--data", default="lab")
parser.add_argument("--posts", type=int, default=10, help="posts of a user that the model sees")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--limit", type=int, default=None, help="first N pairs only")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--out", type=Path, default=Path("reward-model"))
given = parser.parse_args()

rows_read = prbench.load_dataset(given.data, split="train", limit=given.limit)
examples = [row for row in rows_read if isinstance(row, prbench.Example)]  # pairs; others are rated
known = contexts_of(make_context("profile", given.posts), examples)
# With the context as text, the prompt is the turn that an evaluation asks reward models with, word for word.
rows = [to_trl_row(example, user.text) for example, user in zip(examples, known, strict=True)]

trainer = RewardTrainer(
    model=AutoModelForSequenceClassification.from_pretrained(given.backbone, num_labels=1),
    processing_class=AutoTokenizer.from_pretrained(given.backbone),
    train_dataset=Dataset.from_list(rows),
    args=RewardConfig(
        output_dir=str(given.out),
        max_steps=given.steps,
        per_device_train_batch_size=given.batch,
        max_length=None,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
    ),
)
trainer.train()
trainer.save_model(str(given.out))
print(prbench.evaluate(given.data, f"classifier:{given.out}", posts=given.posts, split="test", limit=given.limit))
