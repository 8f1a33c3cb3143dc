"""verl's own configuration, dataset, reward loader and reward managers, over an export.

Runs in verl's environment: python parts.py [what `launch.sh` gives to `verl.trainer.main_ppo`]. The last line that it
prints is JSON.
"""

import asyncio
import json

import numpy as np
import torch
import verl.trainer.main_ppo as entry
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopWorker
from verl.trainer.ppo.metric_utils import process_validation_metrics
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import create_rl_dataset, need_critic, need_reference_policy
from verl.utils import hf_tokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

ANSWERS = ("User 0 wrote about thrift and beans.", "Zebras.")
DOWN = "http://127.0.0.1:9"


def run(config, task_runner_class):
    OmegaConf.resolve(config)
    tokenizer = hf_tokenizer(config.actor_rollout_ref.model.path)
    rows = {name: read(config, tokenizer, name) for name in ("train_files", "val_files")}
    found = {
        "config": OmegaConf.to_container(config, resolve=True),
        "critic": need_critic(config),
        "reference": need_reference_policy(config),
        "rows": rows,
        "short": len(read_with(config, tokenizer, filter_overlong_prompts=True, max_prompt_length=80)),
        "filtered": len(read_with(config, tokenizer, filter_overlong_prompts=True)),
        "reward": asyncio.run(rewards(config, tokenizer)),
        "down": {name: asyncio.run(when_down(config, tokenizer, name)) for name in ("naive", "rate_limited")},
        "validation": validation(),
    }
    print("\n" + json.dumps(found))


def read(config, tokenizer, name):
    """Return the rows as verl's loader gives them to the rollout, and the tokens that they are laid out to."""
    dataset = create_rl_dataset(config.data[name], config.data, tokenizer, None, is_train=name == "train_files")
    batch = collate_fn([dataset[place] for place in range(len(dataset))])
    return [
        {
            "ids": list(
                tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
            ),
            "extra_info": extra,
            "ground_truth": reward["ground_truth"],
            "data_source": source,
        }
        for prompt, extra, reward, source in zip(
            batch["raw_prompt"], batch["extra_info"], batch["reward_model"], batch["data_source"], strict=True
        )
    ]


def read_with(config, tokenizer, **changes):
    return RLHFDataset(config.data.train_files, tokenizer, OmegaConf.merge(config.data, changes))


def answered(config, tokenizer):
    """Return two answers to the first question, as the agent loop hands them to the reward workers."""
    dataset = create_rl_dataset(config.data.train_files, config.data, tokenizer, None, is_train=False)
    row = dataset[0]
    prompt = torch.tensor([1, 2, 3])
    answers = [torch.tensor([*tokenizer(text)["input_ids"], tokenizer.eos_token_id]) for text in ANSWERS]
    width = max(map(len, answers))
    padded = torch.stack([torch.nn.functional.pad(each, (0, width - len(each))) for each in answers])
    shown = torch.stack([(torch.arange(width) < len(each)).long() for each in answers])
    prompts = prompt.repeat(2, 1)
    batch = TensorDict(
        {
            "prompts": prompts,
            "responses": padded,
            "attention_mask": torch.cat([torch.ones_like(prompts), shown], dim=1),
        },
        batch_size=2,
    )
    others = {
        key: np.array([dict(row[key]) if isinstance(row[key], dict) else row[key]] * 2, dtype=object)
        for key in ("data_source", "reward_model", "extra_info")
    }
    others["extra_info"] = np.array([dict(row["extra_info"]), dict(row["extra_info"])], dtype=object)
    return DataProto(batch=batch, non_tensor_batch=others)


async def rewards(config, tokenizer):
    """Let verl's reward worker score two answers."""
    function = get_custom_reward_fn(config)
    worker = RewardLoopWorker(config)
    data = answered(config, tokenizer)
    outputs = await worker.compute_score_batch(data)
    scores = [output["reward_score"] for output in outputs]
    placed = worker.reward_manager.assemble_rm_scores(data, scores)
    return {
        "function": function.args[0].__name__,
        "manager": type(worker.reward_manager).__name__,
        "is_async": worker.reward_manager.is_async_reward_score,
        "scores": scores,
        "extra": [sorted(output["reward_extra_info"]) for output in outputs],
        "raw": [output["reward_extra_info"]["raw_score"] for output in outputs],
        "sums": placed.sum(dim=1).tolist(),
    }


async def when_down(config, tokenizer, manager):
    """Say what comes of an answer whose server is down."""
    changed = config.copy()
    changed.reward.reward_manager.name = manager
    kwargs = changed.reward.custom_reward_function.reward_kwargs
    kwargs.server, kwargs.patience_seconds = DOWN, 0.1
    worker = RewardLoopWorker(changed)
    try:
        output = await worker.compute_score(answered(changed, tokenizer)[:1])
    except RuntimeError as error:
        return {"raised": str(error)}
    return {"paid": output["reward_score"]}


def validation():
    """Return what verl reports where one of two answers has no score, for our form and for a bare number."""
    expected = {("prbench", "a"): 1, ("prbench", "b"): 1}
    ours = {"reward": [3.0], "score": [3.0], "raw_score": [7.0]}
    bare = {"reward": [3.0], "acc": [3.0]}
    return {
        name: process_validation_metrics(["prbench"], ["a"], infos, expected_acc_counts=expected)["prbench"]
        for name, infos in (("ours", ours), ("bare", bare))
    }


entry.run_ppo = run
entry.main()
