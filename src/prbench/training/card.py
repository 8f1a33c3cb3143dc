"""The model card: `card.json` for machines, `README.md` for people."""

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from prbench.reward_models.view import take_apart
from prbench.runs.files import write_json, write_text
from prbench.schema import Json
from prbench.specs import kind_of
from prbench.training.data import TrainingData
from prbench.training.folder import CARD, README, Config, Trained, weights_named_by

POSTS, RECENT = 30, "recent"  # how a method that has no settings for it is asked
# What the card takes of a run's summary, and how it is called there.
FIGURES = {
    "accuracy": "accuracy",
    "macro_user_accuracy": "mean over users",
    "worst_decile_accuracy": "worst tenth of users",
    "minority_accuracy": "against the majority",
    "majority_accuracy": "with the majority",
    "swap": "lost with another user's posts (swap gap)",
    "personalization_gain": "gained by knowing the user",
    "calibration": "calibration error of the margins as they are (ECE)",
}


def held_out_figures(summary: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of a run's summary that a card shows."""
    figures = {name: summary[name] for name in FIGURES}
    if figures["calibration"]:
        named = ("ece", "ece_as_scored", "brier", "temperature")
        figures["calibration"] = {name: figures["calibration"][name] for name in named}
    return {"pairs": summary["n_items"], "users": summary["data"]["users"], **figures}


def write_card(
    folder: Path, method: str, config: Config, data: TrainingData, trained: Trained, figures: Mapping[str, Json]
) -> dict[str, Json]:
    """Write both cards of a reward model, and return the one for machines."""
    card = {**_card(method, config, data, trained), "validation": dict(figures)}
    write_json(folder / CARD, card)
    spec = take_apart(trained.spec, folder).at(Path(folder.resolve().name))
    write_text(folder / README, _readme(card, trained, f"{spec} {usage(trained, config)}"))
    return card


def write_policy_card(
    folder: Path, method: str, config: Config, data: TrainingData, trained: Trained
) -> dict[str, Json]:
    """Write both cards of a policy, which is not measured by pairs, and return the one for machines."""
    card = _card(method, config, data, trained)
    write_json(folder / CARD, card)
    spec = take_apart(trained.spec, folder).at(Path(folder.resolve().name))
    write_text(folder / README, _policy_readme(card, trained, f"{spec} {policy_usage(trained, config)}"))
    return card


def _card(method: str, config: Config, data: TrainingData, trained: Trained) -> dict[str, Json]:
    return {
        "method": method,
        "kind": "policy" if trained.is_policy else kind_of(trained.spec),
        "context": trained.context,
        "config": asdict(config),
        "data": {"name": data.name, "digest": data.digest},
        "weights": weights_named_by(config),
        **trained.facts,
        "versions": {"prbench": version("prbench"), "python": platform.python_version()},
    }


def usage(trained: Trained, config: Config) -> str:
    """Return the options under which the model was measured, and should be asked."""
    options = [f"--context {trained.context}"]
    if trained.context == "profile":
        options.append(f"--posts {getattr(config, 'posts', POSTS)}")
        options += [f"--rank {config.rank}"] if getattr(config, "rank", RECENT) != RECENT else []
    options += [f"--labels FILE --shots {trained.shots}"] if trained.shots else []
    return " ".join(options)


def policy_usage(trained: Trained, config: Config) -> str:
    """Return the options under which a policy is asked as it was taught."""
    posts = f" --posts {config.posts}" if trained.context in ("profile", "plan") else ""
    planner = " --planner DIR" if trained.context == "plan" else ""
    return f"--policy-context {trained.context}{posts}{planner}"


def figure_lines(figures: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return the figures with their names, as a card or a terminal shows them, without those that do not apply."""
    lines = []
    for name, label in FIGURES.items():
        found = figures[name]
        if found is None:
            continue
        if name == "calibration":
            lines.append((label, f"{found['ece_as_scored']:.3f}"))
            continue
        lines.append((label, _points(found["gap"] if name == "swap" else found)))
    return lines


def _points(estimate: Mapping[str, float]) -> str:
    value, low, high = (100 * estimate[part] for part in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def _readme(card: Mapping[str, Json], trained: Trained, asked_as: str) -> str:
    figures = card["validation"]
    table = "\n".join(f"| {label} | {value} |" for label, value in figure_lines(figures))
    return f"""# A reward model trained by `prbench train --method {card["method"]}`

It scores responses to a person; a higher score means that this person would like the response more. It was trained for
the context `{card["context"]}`. Use it, from this folder's parent, as

    prbench eval --model {asked_as}

## Held-out users

{figures["pairs"]} pairs of {figures["users"]} users of `{card["data"]["name"]}` who are not in the training rows.
Points of 100 with a 95 % interval that resamples users. The best epoch and the temperature were chosen on the same
users, so expect a little less on new ones.

| figure | value |
| --- | --- |
{table}

{_how_made(card, trained)}

## What it is not

It knows people only by the texts that it is shown, repeats what the training rows prefer, and has no idea whether a
response is true or safe. Do not decide about people with it.
"""


def _policy_readme(card: Mapping[str, Json], trained: Trained, asked_as: str) -> str:
    return f"""# A policy trained by `prbench train --method {card["method"]}`

It writes answers to a person like those of `{card["data"]["name"]}`; it scores none. Use it, from this folder's
parent, as

    prbench bon --policy {asked_as} --model ...

{_how_made(card, trained)}

## What it is not

It repeats how the answers in the training rows are written, and has no idea whether what it says is true or safe.
"""


def _how_made(card: Mapping[str, Json], trained: Trained) -> str:
    settings = "\n".join(f"- `{name}`: {value}" for name, value in card["config"].items())
    facts = "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in trained.facts.items())
    return f"## How it was made\n\n{settings}\n\n{facts}"
