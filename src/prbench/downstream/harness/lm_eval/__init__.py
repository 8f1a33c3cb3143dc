"""lm-evaluation-harness: the group `prbench` of three tasks, one a probe. `python -m` of this package prints its path.

A task is a YAML file that names functions of `likelihoods.py` beside it.
"""
