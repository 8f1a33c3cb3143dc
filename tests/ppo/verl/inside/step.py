"""Two steps of verl's trainer on a CPU, up to the advantages. All is verl's own, but that a script writes the answers.

Dataset, agent loop, reward workers (Ray actors), TransferQueue, replay buffer, padding and advantages are those of a
real run; log-probabilities and values are zeros. Runs in verl's environment: python step.py [what `launch.sh` gives to
`verl.trainer.main_ppo`]. The last line that it prints is JSON.
"""

import asyncio
import faulthandler
import json
import threading

import ray
import torch
import transfer_queue as tq
import verl.trainer.main_ppo as entry
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.experimental.reward_loop import RewardLoopManager
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.skip import SkipManager
from verl.workers.rollout.replica import TokenOutput


class Script:
    """Answers every prompt with some of its own tokens."""

    def __init__(self, eos):
        self.eos = eos
        self.prompts = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **others):
        self.prompts.append(list(prompt_ids))
        tokens = [*prompt_ids[-12 - len(self.prompts) : -8], self.eos]
        return TokenOutput(token_ids=tokens, log_probs=[-1.0] * len(tokens), extra_fields={"global_steps": 1})


class Manager:
    """Runs verl's agent loop in a thread of its own, as its workers do in processes."""

    def __init__(self, worker):
        self.worker = worker
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def generate_sequences(self, batch):
        asyncio.run_coroutine_threadsafe(self.worker.generate_sequences(batch), self.loop).result(120)


def run(config, task_runner_class):
    OmegaConf.resolve(config)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init(config.transfer_queue)
    SkipManager.init(config)
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config=config)
    trainer._init_tokenizer()
    trainer._init_dataloader()
    rewards = RewardLoopManager(config)
    script = Script(trainer.tokenizer.eos_token_id)
    trainer.agent_loop_manager = Manager(
        AgentLoopWorkerTQ.__ray_metadata__.modified_class(
            config, script, reward_loop_worker_handles=rewards.reward_loop_worker_handles
        )
    )
    found = {"buffer": type(trainer.replay_buffer).__name__, "steps": []}
    try:
        for number in (1, 2):
            trainer.global_steps = number
            found["steps"].append(step(trainer))
    except RuntimeError as error:
        found["ended"] = str(error)
    found["prompts"] = script.prompts
    tq.close()
    ray.shutdown()
    print("\n" + json.dumps(found))


def step(trainer):
    """Do what the trainer does in a step, up to the advantages."""
    trainer._add_batch_to_generate()
    size = trainer.config.data.train_batch_size
    batch, metrics = trainer.replay_buffer.sample(
        global_steps=trainer.global_steps, partition_id="train", batch_size=size
    )
    real = len(batch.keys)
    multiple = trainer._get_required_batch_multiple(1)
    batch = upsample_batch_to_divisible_size(batch, multiple, trainer.tokenizer.eos_token_id)
    data = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["response_mask", "rm_scores"])
    masks, scores = data["response_mask"].unbind(), data["rm_scores"].unbind()
    zeros = torch.nested.as_nested_tensor([torch.zeros(len(mask)) for mask in masks], layout=torch.jagged)
    made_up = {"old_log_probs": zeros, "ref_log_prob": zeros, "values": zeros}
    tq.kv_batch_put(keys=batch.keys, partition_id="train", fields=TensorDict(made_up, batch_size=len(batch.keys)))
    trainer._compute_advantage(batch, {})
    after = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["advantages"])["advantages"].unbind()
    found = {
        "real": real,
        "rows": len(batch.keys),
        "is_padding": [bool(tag.get("is_padding")) for tag in batch.tags],
        "tokens": [int(mask.sum()) for mask in masks],
        "scores": [float(each.sum()) for each in scores],
        "in_loss": [float((each * mask).abs().sum()) for each, mask in zip(after, masks, strict=True)],
        "metrics": {key: float(value) for key, value in metrics.items()},
    }
    tq.kv_clear(keys=batch.keys, partition_id="train")
    return found


faulthandler.dump_traceback_later(200)
entry.run_ppo = run
entry.main()
