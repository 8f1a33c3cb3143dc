"""What the files of a run are called, and the kinds of runs."""

MANIFEST, ITEMS, SUMMARY, TIMING = "manifest.json", "items.jsonl", "summary.json", "timing.json"
EVALUATION, EVALUATION_ROWS = "evaluation.json", "evaluation.jsonl"  # of the policies of a PPO run
FRESH = ".fresh"  # a run that is to take the place of a finished one; hidden, so that no fingerprint counts it
EVAL, BON, PPO, TRAIN, BUILD, PLANNER = "eval", "bon", "ppo", "train", "build", "planner"
POOL, GRADES, SCORES = "pool", "grades", "scores"  # what a Best-of-N is made of, each in a folder of its own
RUN_KINDS = (EVAL, BON, PPO, TRAIN, BUILD, PLANNER)  # what a command calls a run
KINDS = (*RUN_KINDS, POOL, GRADES, SCORES)  # all that a store writes
