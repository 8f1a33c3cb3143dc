"""verl's reward loop asks `/classify`, as it would ask its own reward model.

Runs in the trainers' environment: python verl_classify.py POLICY SERVER MESSAGES. The last line is JSON.
"""

import asyncio
import json
import sys

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopWorker

AS_JSON = "{{ messages | tojson }}"


def main():
    policy, server, messages = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    chat, answer = messages[:-1], messages[-1]["content"]
    worker = RewardLoopWorker.__new__(RewardLoopWorker)
    worker.config = OmegaConf.create(
        {"reward": {"reward_model": {"model_path": "overlap", "rollout": {"name": "vllm"}}}}
    )
    worker.reward_router_address = server.removeprefix("http://")
    worker.input_tokenizer = AutoTokenizer.from_pretrained(policy)
    worker.reward_model_tokenizer = AutoTokenizer.from_pretrained(policy)
    worker.reward_model_tokenizer.chat_template = AS_JSON
    ids = torch.tensor([[*worker.input_tokenizer(answer)["input_ids"], worker.input_tokenizer.eos_token_id]])
    batch = TensorDict({"responses": ids, "attention_mask": torch.ones_like(ids)}, batch_size=[1])
    raw = np.empty(1, dtype=object)
    raw[0] = chat
    data = DataProto(batch=batch, non_tensor_batch={"raw_prompt": raw})
    print("\n" + json.dumps(asyncio.run(worker.compute_score_disrm(data))))


if __name__ == "__main__":
    main()
