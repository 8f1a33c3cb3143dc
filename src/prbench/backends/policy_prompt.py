"""How a policy is asked: one template for sampling, fine-tuning, PPO and exports."""

from functools import cache

from prbench.backends.llm.client import Message
from prbench.backends.policy import Prompt
from prbench.prompts import Template, load_template


@cache
def answer_template() -> Template:
    """Return the template; its hash belongs into the identity of whatever uses it."""
    return load_template("answer").require("question", "context", answer="text")


def messages_of(prompt: Prompt) -> tuple[Message, ...]:
    """Return the chat messages of a prompt."""
    filled = answer_template().fill(question=prompt.question, context=prompt.context)
    return tuple(Message(role, text) for role, text in filled)
