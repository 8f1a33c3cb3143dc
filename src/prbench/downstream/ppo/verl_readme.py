"""The README of an export for verl: what is in it, and what verl does otherwise than our own loop."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from prbench.downstream.ppo.settings import PpoSettings
from prbench.downstream.ppo.verl_config import PATIENCE_SECONDS

README = "README.md"


def make_readme(settings: PpoSettings, facts: Mapping[str, Any]) -> str:
    """Return the text that explains an export, from what `export.json` says of it."""
    from jinja2 import Environment, StrictUndefined

    template = files("prbench.downstream.ppo").joinpath("verl_files", README).read_text(encoding="utf-8")
    words = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # Markdown
    return words.from_string(template).render(
        **{key: facts[key] for key in facts if key not in ("settings", "files")},
        reward=facts["model"].rpartition("#")[0],
        version=facts["versions"]["prbench"],
        verl_version=facts["versions"]["verl"],
        max_failed=f"{settings.max_failed:.0%}",
        patience=f"{PATIENCE_SECONDS:g}",
        prompts=_prompts_line(facts),
        moments=_moments_line(facts),
        differences=_differences(settings),
    )


def _prompts_line(facts: Mapping[str, Any]) -> str:
    dropped = facts["posts_dropped"]
    shared = f" {facts['users_in_both']} users stand in both files." if facts["users_in_both"] else ""
    if not facts["prompts_with_posts_dropped"]:
        return f"All posts fit.{shared}"
    return (
        f"In {facts['prompts_with_posts_dropped']} prompts the last posts did not fit a window: {dropped['policy']} "
        f"posts are not shown to the policy, {dropped['reward']} not to the reward model.{shared}"
    )


def _moments_line(facts: Mapping[str, Any]) -> str:
    reward = facts["reward_moments"]
    if not reward["measured"]:
        return "PPO maximises the model's raw score."
    return (
        f"PPO maximises (raw score - {reward['centre']:.6g}) / {reward['spread']:.6g}: mean and standard deviation of "
        f"{reward['measured']} scores of responses to the training questions, measured at the export. So "
        "`algorithm.kl_ctrl.kl_coef` is in units of the reward's own spread. The raw score is logged beside it."
    )


def _differences(settings: PpoSettings) -> list[str]:
    """Return what verl does otherwise than our own loop, under these settings."""
    lines = [
        "The critic is a model of its own, and not a head on the policy: `value_learning_rate` "
        f"({settings.value_learning_rate:g}) moves all of its weights, and `value_coefficient` has no part in it. "
        "Where it is unsteady, lower `critic.optim.lr`.",
        "Sampling depends on vLLM's batches, so equal seeds give like runs and not equal ones.",
        "Each pass leaves out the rows that do not fill a step; the order changes with every pass.",
        "An empty answer is sent to the reward model like any other.",
    ]
    if settings.algorithm != "ppo":
        lines[0] = f"`{settings.algorithm}` needs no critic."
    if settings.truncated != "score":
        lines.append(
            f"An answer that was cut off is scored as it stands (`truncated={settings.truncated}` has no counterpart)."
        )
    if settings.kl_budget is not None:
        lines.append(
            f"There is no KL budget: verl would not stop at {settings.kl_budget:g} nats. Watch "
            "`actor/reward_kl_penalty`, which is per token."
        )
    if settings.whiten_rewards:
        lines.append("Rewards are scaled by moments that were measured once, not by running ones.")
    if not settings.whiten_advantages and settings.algorithm == "ppo":
        lines.append("Advantages are whitened all the same; verl always does.")
    return lines
