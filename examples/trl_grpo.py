"""GRPO by TRL: a policy is paid by a reward model that knows who asks.

pip install 'prbench[hf,train]', then:  python examples/trl_grpo.py --policy HuggingFaceTB/SmolLM2-135M-Instruct
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import prbench

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--policy", required=True, help="folder or hub id of an instruction-tuned model")
parser.add_argument("--data", default="lab")
parser.add_argument("--model", default="head:lab-user", help="any reward model that scores, as prbench eval takes it")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--limit", type=int, default=None, help="first N questions only")
parser.add_argument("--answers", type=int, default=8, help="answers to each question that are compared")
parser.add_argument("--tokens", type=int, default=128, help="most tokens of an answer")
parser.add_argument("--out", type=Path, default=Path("grpo"))
given = parser.parse_args()

# The policy is told nothing of the user here; policy_context="profile" would tell it what the reward model knows.
rows = prbench.prompt_rows(given.data, split="train", limit=given.limit)
reward = prbench.reward_function(given.model, context="profile", posts=10)

trainer = GRPOTrainer(
    model=given.policy,
    reward_funcs=reward,
    train_dataset=Dataset.from_list(rows),
    args=GRPOConfig(
        output_dir=str(given.out),
        max_steps=given.steps,
        per_device_train_batch_size=given.answers,
        num_generations=given.answers,
        max_completion_length=given.tokens,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=1,
        save_strategy="no",
        report_to="none",
    ),
)
trainer.train()
trainer.save_model(str(given.out))
steps = [{"step": row["step"], "reward": row["reward"]} for row in trainer.state.log_history if "reward" in row]
print(json.dumps(steps))
