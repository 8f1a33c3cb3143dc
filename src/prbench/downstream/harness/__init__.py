"""What other evaluation harnesses run: tasks and scorers for inspect_ai, tasks for lm-evaluation-harness.

They ask with our prompts, read with our readers and get our contexts, so that a figure there is the figure of
`prbench eval`. What each harness cannot express is in docs/how-to/harnesses.md.
"""
