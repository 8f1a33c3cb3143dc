"""OpenRLHF's own arguments, dataset, executor and experiences, over an export; vLLM and FlashAttention are not there.

Runs in the trainers' environment: python openrlhf_run.py SERVER FLAGS... The last line that it prints is JSON.
"""

import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

ABSENT = ("vllm", "flash_attn", "deepspeed", "bitsandbytes", "pylatexenc", "torchmetrics", "optree")
ROOT = Path(importlib.util.find_spec("openrlhf").origin).parent
DOWN = "http://127.0.0.1:9/get_reward"


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for packages that need a GPU; nothing of theirs is called here."""

    def find_spec(self, name, path=None, target=None):
        wanted = name.partition(".")[0] in ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Absent())
for package in ("utils", "datasets", "trainer", "trainer.ppo_utils", "trainer.ray"):  # not what their __init__ imports
    made = types.ModuleType(f"openrlhf.{package}")
    made.__path__ = [str(ROOT.joinpath(*package.split(".")))]
    sys.modules[made.__name__] = made

from openrlhf.datasets.prompts_dataset import PromptDataset  # noqa: E402
from openrlhf.datasets.utils import blending_datasets  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.utils.agent import SingleTurnAgentExecutor  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402


def read_arguments(flags):
    """Return the arguments as OpenRLHF's command line reads them, without starting anything."""
    text = (ROOT / "cli" / "train_ppo_ray.py").read_text()
    found = []
    text = text.rpartition("train(args)")[0] + "FOUND.append(args)"
    sys.argv = ["train_ppo_ray", *flags]
    sys.modules["openrlhf.trainer.ray"] = MagicMock()
    for name in ("launcher", "vllm_engine", "ppo_actor", "ppo_critic"):
        sys.modules[f"openrlhf.trainer.ray.{name}"] = MagicMock()
    sys.modules["openrlhf.utils"].get_strategy = None
    exec(compile(text, "train_ppo_ray.py", "exec"), {"__name__": "__main__", "FOUND": found})
    return found[0]


class Engine:
    """Writes one answer to everything."""

    def __init__(self, ids):
        self.ids = ids

    async def generate(self, prompt_ids, params, multi_modal_data=None):
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=self.ids, text="", finish_reason="stop", logprobs=None)]
        )


def write(executor, tokenizer, prompt, label, answer):
    """Let OpenRLHF write the answer to a prompt, and fetch its reward."""
    ids = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    params = SimpleNamespace(max_tokens=64, logprobs=None)
    return asyncio.run(executor.execute(prompt, label, params, 4096, tokenizer, Engine(ids)))


def main():
    server = sys.argv[1]
    args = read_arguments(sys.argv[2:])
    tokenizer = AutoTokenizer.from_pretrained(args.actor.model_name_or_path)
    strategy = SimpleNamespace(args=args, is_rank_0=lambda: True, print=lambda *_: None)
    rows = blending_datasets(args.data.prompt_dataset, None, strategy, dataset_split=args.data.prompt_split)
    prompts = PromptDataset(rows, tokenizer, strategy)
    answer = "Sow cheap seeds of thrift, and write down the beans."
    generator = SamplesGenerator.__new__(SamplesGenerator)
    found = {}
    for name, endpoint in (("function", args.reward.remote_url), ("server", [f"{server}/get_reward"])):
        executor = SingleTurnAgentExecutor(endpoint)
        outputs = [write(executor, tokenizer, prompts[i][1], prompts[i][2], answer) for i in range(3)]
        experiences = [
            generator._process_response_into_experience(each, max_len=args.data.max_len) for each in outputs
        ]
        batch = Experience.concat_experiences(experiences, tokenizer.pad_token_id)
        found[name] = {
            "rewards": batch.rewards.reshape(-1).tolist(),
            "scores": batch.scores.reshape(-1).tolist(),
            "raw": batch.info["raw_score"].reshape(-1).tolist(),
        }

    async def once(*_):
        return None

    patched, asyncio.sleep = asyncio.sleep, once
    down = write(SingleTurnAgentExecutor([DOWN]), tokenizer, prompts[0][1], prompts[0][2], answer)
    asyncio.sleep = patched
    found["down"] = down["reward"]
    found["answer"] = answer
    found["ids"] = [tokenizer(text=prompts[i][1], add_special_tokens=False)["input_ids"] for i in range(len(prompts))]
    found["arguments"] = {
        "estimator": args.algo.advantage.estimator,
        "clip": list(args.reward.clip_range),
        "batch": args.train.batch_size,
        "learning_rate": args.actor.adam.lr,
        "evaluation": args.eval.dataset,
    }
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
