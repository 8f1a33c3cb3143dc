"""What users get from a reward model: policies, Best-of-N, PPO."""
