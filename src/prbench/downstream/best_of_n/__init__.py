"""Best-of-N: one pool of answers per question and user, chosen from by every reward model, graded once."""
