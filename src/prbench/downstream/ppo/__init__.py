"""PPO on one device: a policy learns from text-level rewards, and gold says what that was worth."""
