"""verifiers loads the taskset of `examples/personal_answers.py` and scores answers by it.

Runs in the trainers' environment, with prbench and the folder of examples on the path: python verifiers_score.py MODEL
ANSWER. The last line that it prints is JSON.
"""

import asyncio
import json
import sys

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import import_taskset


def scored(task, answer):
    data = vf.TraceTask(type=type(task).__name__, data=task.data)
    agent = vf.AgentInfo(config=vf.AgentConfig())
    trace = vf.Trace[type(task.data), vf.State, vf.AgentConfig](task=data, agent=agent, root_reply=answer)
    try:
        asyncio.run(task.score(trace))
    except vf.TaskError as error:
        return {"error": str(error), "rewards": dict(trace.rewards)}
    return {"reward": trace.reward, "rewards": {name: value.score for name, value in trace.rewards.items()}}


def main():
    module = import_taskset("personal_answers")
    name = {"reward_model": sys.argv[1], "posts": 3}
    config = module.PersonalConfig(id="personal_answers", limit=4, task=module.PersonalTaskConfig(**name))
    tasks = list(module.PersonalTaskset(config))
    broken = module.PersonalTaskConfig(reward_model="control:overlap?fail=1")
    found = {
        "prompts": [task.data.prompt for task in tasks],
        "ids": [task.data.id for task in tasks],
        "scored": [scored(task, sys.argv[2]) for task in tasks],
        "failed": scored(module.PersonalTask(tasks[0].data, broken), "beans"),
    }
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
