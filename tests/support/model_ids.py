"""Ids of models, asked for and answered: the tests hold `is_same_model` and the documentation to this table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ids:
    """What was asked for, what answered, and whether that counts as the same model."""

    asked: str
    answered: str
    same: bool
    note: str = ""


MODEL_IDS: tuple[Ids, ...] = (
    Ids("Qwen2.5-7B", "qwen2.5-7b", True, "any case"),
    Ids("gpt-4o", "gpt-4o-2024-08-06", True, "a date or a number of three digits or more after the id asked for"),
    Ids("gpt-4", "gpt-4-0613", True),
    Ids("llama3", "llama3:latest", True, "a tag after it"),
    Ids("gemini-1.5-pro-latest", "gemini-1.5-pro-002", True, "`latest` is no part of an id"),
    Ids("llama3:latest", "llama3", True),
    Ids("meta-llama/Llama-3.1-8B", "Llama-3.1-8B", True, "the last part of the other's path, on either side"),
    Ids("gpt-4o", "openai/gpt-4o-2024-08-06", True),
    Ids("m", "/models/m.gguf", True, "a file by its name, with `.gguf` or without"),
    Ids("/models/m.gguf", "m.gguf", True),
    Ids("smollm2", "/models/SmolLM2-135M-Instruct.Q4_1.gguf", True, "its name may add size and precision"),
    Ids("m", "", True, "a server that names no model says nothing against it"),
    Ids("gpt-4o", "gpt-4o-mini", False, "another word after it"),
    Ids("gpt-4o-mini", "gpt-4o", False),
    Ids("gpt-4o-2024-08-06", "gpt-4o-2024-05-13", False, "another date than the one asked for"),
    Ids("gpt-4o-2024-08-06", "gpt-4o", False),
    Ids("llama3:8b", "llama3:70b", False, "another tag"),
    Ids("llama-3", "llama-3-70b", False, "a size is no date"),
    Ids("llama-3", "org/llama-3-70b", False),
    Ids("claude-3", "claude-3-5", False, "one digit is a version of its own"),
    Ids("org/name", "other/name", False, "another vendor"),
    Ids("judge", "Qwen2.5-7B", False, "an alias: say `?answers_as=Qwen2.5-7B`"),
)


def model_ids_table() -> str:
    """Return the table in Markdown, as the documentation shows it."""
    lines = ["| asked | answered | same | note |", "| --- | --- | --- | --- |"]
    for ids in MODEL_IDS:
        answered = f"`{ids.answered}`" if ids.answered else "(none)"
        lines.append(f"| `{ids.asked}` | {answered} | {'yes' if ids.same else 'no'} | {ids.note} |")
    return "\n".join(lines)
