"""What our own commands leave behind: runs of `prbench eval`, pools of `prbench bon`, policies of `prbench ppo`."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prbench.errors import DataError, RunError
from prbench.folders import read_json
from prbench.meta.board import Board, board_of_items, tabulate
from prbench.reward_models.view import board_name, context_of
from prbench.runs import MANIFEST, SUMMARY, read_rows
from prbench.runs.names import PPO
from prbench.schema import POINTS, Json, Probe, Row

ACCURACY, LEAST, VALUE, GOLD = "accuracy", "min_category_accuracy", "value", "gold"
FLOOR_AND_CEILING = ("random", "oracle")  # selectors of every Best-of-N, and no models
CEILING = "oracle"  # a context that shows the gold rubric: never ranked
EVALUATION, EVALUATION_ROWS = "evaluation.json", "evaluation.jsonl"
DEFAULT_CONTEXT = "profile"
ItemRow = tuple[str, str, float]  # item, user, value


@dataclass(frozen=True, slots=True, kw_only=True)
class OneModel:
    """One model's score, where a file tells about one model, or a few."""

    board: str
    model: str
    source: Path
    value: float
    low: float = float("nan")
    high: float = float("nan")
    items: tuple[ItemRow, ...] = ()
    may_repeat: bool = False  # several seeds of one model are averaged
    group: str = ""  # models of other groups are on another board, though its name may be the same


def is_ours(content: Json) -> bool:
    """True if a JSON file came from one of our commands."""
    if isinstance(content, list):
        return bool(content) and all(_is_summary(each) for each in content)
    return isinstance(content, dict) and (
        _is_summary(content) or _is_bon(content) or _is_ppo(content) or _is_comparison(content)
    )


def read_ours(path: Path, content: Json, *, column: str, at_kl: float | None, name: str) -> list[OneModel]:
    """Return the models of a run folder, or of the JSON that a command printed or wrote."""
    folder = path if path.is_dir() else path.parent
    if (folder / MANIFEST).exists() and (content is None or path.name in (SUMMARY, EVALUATION)):
        return _of_folder(folder, column=column, at_kl=at_kl, name=name)
    if isinstance(content, list):
        return [_of_summary(path, each, column, name) for each in content]
    if _is_summary(content):
        return [_of_summary(path, content, column, name)]
    if _is_bon(content):
        return _of_bon(path, content, None, column, name)
    if _is_comparison(content):
        return _of_comparison(path, content, name)
    return _of_ppo(path, content["summary"]["reward_model"], content["evaluation"], [], column, at_kl, name)


def not_measured(folder: Path, kind: str) -> str:
    """Say why a run has nothing to put on a board; nothing where it has."""
    if kind != PPO or (folder / EVALUATION).exists():
        return ""
    return f"{folder}: was not evaluated yet. Run `prbench ppo` with --eval-split first."


def boards_of_models(found: Sequence[OneModel]) -> list[Board]:
    """Put the models of many files together into boards, in the order of the files."""
    by_board: dict[tuple[str, str], list[OneModel]] = {}
    for each in found:
        by_board.setdefault((each.board, each.group), []).append(each)
    for (name, _), models in by_board.items():
        if all(_is_ceiling(each) for each in models):
            raise DataError(f"{name}: all models saw the gold rubric (context oracle), so none is ranked. Add others.")
        if all(math.isnan(each.value) for each in models):
            raise DataError(f"{models[0].source}: has no such figure: {name}. Choose another with #FIGURE.")
    return [_board(name, models) for (name, _), models in by_board.items()]


def _board(name: str, models: Sequence[OneModel]) -> Board:
    by_model: dict[str, list[OneModel]] = {}
    known = [each for each in models if not math.isnan(each.value)]
    ranked = [each for each in known if not _is_ceiling(each)]
    for each in ranked:
        by_model.setdefault(each.model, []).append(each)
    notes = [
        f"{name}: {count} runs {why} are left out."
        for count, why in (
            (len(models) - len(known), "without this figure"),
            (len(known) - len(ranked), "that saw the gold rubric"),
        )
        if count
    ]
    for model, several in by_model.items():
        if len(several) > 1 and not all(each.may_repeat for each in several):
            places = " and ".join(str(each.source) for each in several[:2])
            raise DataError(f"{name}: {model} is there twice, in {places}. Give one of them.")
        if len(several) > 1:
            notes.append(f"{name}: {model} is the mean of {len(several)} runs.")
    if all(each.items for each in ranked):
        rows = [(model, *row) for model, several in by_model.items() for row in _mean_rows(several)]
        names, items = tabulate(rows)
        return board_of_items(name, names, items, notes=tuple(notes))
    alone = {model: several[0] if len(several) == 1 else None for model, several in by_model.items()}
    return Board(
        name=name,
        models=tuple(by_model),
        scores=np.array([np.mean([each.value for each in several]) for several in by_model.values()]),
        low=np.array([each.low if each else np.nan for each in alone.values()]),
        high=np.array([each.high if each else np.nan for each in alone.values()]),
        notes=tuple(notes),
    )


def _is_ceiling(each: OneModel) -> bool:
    return each.model.endswith(f"context={CEILING}")


def _mean_rows(several: Sequence[OneModel]) -> Iterator[ItemRow]:
    """Yield one row per item: its mean over runs."""
    values: dict[tuple[str, str], list[float]] = {}
    for each in several:
        for item, user, value in each.items:
            values.setdefault((item, user), []).append(value)
    for (item, user), found in values.items():
        yield item, user, sum(found) / len(found)


def _of_folder(folder: Path, *, column: str, at_kl: float | None, name: str) -> list[OneModel]:
    manifest = read_json(folder / MANIFEST)
    if manifest.get("kind") == "bon":
        return _of_bon(folder, read_json(folder / SUMMARY), folder, column, name)
    if "reward" in _dict(_dict(manifest.get("config")).get("settings")):
        if why := not_measured(folder, PPO):
            raise RunError(why)
        settings = manifest["config"]["settings"]
        model = _name_in_ppo(settings)
        rows = _lines(folder / EVALUATION_ROWS)
        return _of_ppo(folder, model, read_json(folder / EVALUATION), rows, column, at_kl, name)
    return [_of_run(folder, column, name)]


def _of_run(folder: Path, column: str, name: str) -> OneModel:
    """Return an evaluation, with the rows behind the figure where it is a mean of rows."""
    manifest = read_json(folder / MANIFEST)
    split = manifest["data"].get("split") or ""
    plain = _of_summary(folder, read_json(folder / SUMMARY), column, name, split)
    points = _POINTS.get(column or ACCURACY)
    if points is None:
        return plain
    rows = [row for row in read_rows(folder, groups=("majority",)) if isinstance(row, Row)]
    return replace(plain, items=tuple(points(rows)))


def _own_points(rows: Sequence[Row]) -> Iterator[ItemRow]:
    return ((row.id, row.user_id, POINTS[row.verdict]) for row in rows if row.probe is Probe.OWN)


def _side_points(rows: Sequence[Row], *, majority: bool) -> Iterator[ItemRow]:
    return _own_points([row for row in rows if row.groups.get("majority") is majority])


def _swap_points(rows: Sequence[Row]) -> Iterator[ItemRow]:
    swapped = {row.id: POINTS[row.verdict] for row in rows if row.probe is Probe.SWAP}
    return ((item, user, own - swapped[item]) for item, user, own in _own_points(rows) if item in swapped)


_POINTS: Mapping[str, Callable[[Sequence[Row]], Iterator[ItemRow]]] = {
    ACCURACY: _own_points,
    "swap.gap": _swap_points,
    "minority_accuracy": lambda rows: _side_points(rows, majority=False),
    "majority_accuracy": lambda rows: _side_points(rows, majority=True),
}


def _of_summary(path: Path, summary: Mapping[str, Json], column: str, name: str, split: str = "") -> OneModel:
    figure = column or ACCURACY
    found = _least(summary) if figure == LEAST else _lookup(summary, figure)
    value, low, high = _estimate(found)
    data = _dict(summary.get("data"))
    return OneModel(
        board=name or " ".join(part for part in (str(data.get("name", "")), split, figure) if part),
        group=str(data.get("hash", "")),
        model=board_name(str(summary["model"]), str(summary.get("context") or DEFAULT_CONTEXT), DEFAULT_CONTEXT),
        source=path,
        value=value,
        low=low,
        high=high,
    )


def _least(summary: Mapping[str, Json]) -> Json:
    """Return the accuracy in the category that is hardest for this model."""
    found = _dict(summary.get("accuracy_by_category"))
    return min(found.values(), key=lambda each: each["value"]) if found else None


def _of_bon(path: Path, summary: Mapping[str, Json], folder: Path | None, column: str, name: str) -> list[OneModel]:
    """Return what each model's picks are worth at the largest n, or another figure."""
    last = str(summary["n"])
    figure = column or VALUE
    size = figure.removeprefix("value_at.") if figure.startswith("value_at.") else last if figure == VALUE else ""
    rows = {} if folder is None or not size else _bon_rows(folder, summary, int(size))
    found = []
    for spec, figures in summary["models"].items():
        if spec in FLOOR_AND_CEILING:
            continue
        value, low, high = _estimate(_lookup(figures, f"value_at.{size}" if size else figure))
        found.append(
            OneModel(
                board=name or (f"best of {size}" if size else f"best of {last} {figure}"),
                model=board_name(spec, figures.get("context") or DEFAULT_CONTEXT, DEFAULT_CONTEXT),
                source=path,
                value=value,
                low=low,
                high=high,
                items=tuple(rows.get(spec, ())),
            )
        )
    return found


def _bon_rows(folder: Path, summary: Mapping[str, Json], n: int) -> dict[str, list[ItemRow]]:
    """Return the expected value of the best of n, question by question, if the pool is still there."""
    from prbench.bon.estimator import best_of_each

    config = read_json(folder / MANIFEST)["config"]
    pool = folder.parent / "pools" / config["pool"]
    grades = {row["id"]: row for row in _lines(pool / "grades" / config["grades"] / "grades.jsonl")}
    found: dict[str, list[ItemRow]] = {}
    for spec, scores in config["scores"].items():
        own = [row for row in _lines(pool / "scores" / scores / "scores.jsonl") if row.get("probe") == Probe.OWN]
        found[spec] = [
            (
                row["id"],
                grades[row["id"]]["user_id"],
                float(best_of_each(grades[row["id"]]["values"], row["scores"])[n - 1]),
            )
            for row in own
            if row["id"] in grades and None not in row["scores"] and None not in grades[row["id"]]["values"]
        ]
    counts = {spec: figures["questions"] for spec, figures in summary["models"].items()}
    return {spec: rows for spec, rows in found.items() if len(rows) == counts.get(spec)}


def _of_ppo(
    path: Path,
    model: str,
    evaluation: Mapping[str, Json] | None,
    rows: Sequence[Mapping[str, Json]],
    column: str,
    at_kl: float | None,
    name: str,
) -> list[OneModel]:
    """Return what the policy gives its users: the last one that was kept, or the one nearest to a KL."""
    policies = (evaluation or {}).get("policies")
    if not policies:
        raise RunError(f"{path}: has no evaluated policies. Run `prbench ppo` with --eval-split first.")
    last = max(policies, key=lambda each: each["step"])
    entry = last if at_kl is None else min(policies, key=lambda each: (abs(each["kl"] - at_kl), each["step"]))
    figure = column or GOLD
    value, low, high = _estimate(_lookup(entry, figure))
    sides = {"gold": (True, False, None), "gold_majority": (True,), "gold_minority": (False,)}.get(figure, ())
    items = [
        (row["id"], row["user_id"], float(row["gold"]))
        for row in rows
        if row["step"] == entry["step"] and row.get("majority") in sides
    ]
    where = "at the end" if at_kl is None else f"at {at_kl:g} nats"
    return [
        OneModel(
            board=name or f"PPO {figure} {where}",
            model=model,
            source=path,
            value=value,
            low=low,
            high=high,
            items=tuple(items),
            may_repeat=True,
        )
    ]


def _of_comparison(path: Path, content: Mapping[str, Json], name: str) -> list[OneModel]:
    """Return the runs that `prbench ppo --compare` set side by side, named after their folders or their models."""
    found = []
    for run in content["runs"]:
        value, low, high = _estimate(run["gold"])
        manifest = Path(run["run"]) / MANIFEST
        settings = _dict(_dict(read_json(manifest).get("config")).get("settings")) if manifest.exists() else {}
        model = _name_in_ppo(settings) if "reward" in settings else str(run["run"])
        board = name or f"PPO {GOLD} at {content['kl']:g} nats"
        found.append(OneModel(board=board, model=model, source=path, value=value, low=low, high=high, may_repeat=True))
    return found


def _name_in_ppo(settings: Mapping[str, Json]) -> str:
    usual = settings.get("reward_context") or settings.get("context") or DEFAULT_CONTEXT
    return board_name(settings["reward"], context_of(settings["reward"], usual), DEFAULT_CONTEXT)


def _lookup(content: Mapping[str, Json], dotted: str) -> Json:
    """Return what stands at `a.b`, or `None`."""
    found: Json = content
    for key in dotted.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _estimate(found: Json) -> tuple[float, float, float]:
    if isinstance(found, dict) and isinstance(found.get("value"), int | float):
        return float(found["value"]), float(found.get("low", "nan")), float(found.get("high", "nan"))
    if isinstance(found, int | float) and not isinstance(found, bool):
        return float(found), float("nan"), float("nan")
    return math.nan, math.nan, math.nan  # does not apply to this model


def _lines(path: Path) -> list[dict[str, Json]]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError:
        raise RunError(f"{path}: is damaged. Make it again, or restore it.") from None


def _dict(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _is_summary(content: Json) -> bool:
    return isinstance(content, dict) and {"run_id", "model", "accuracy", "context"} <= content.keys()


def _is_bon(content: Mapping[str, Json]) -> bool:
    return {"n", "sizes", "models", "differences"} <= content.keys()


def _is_ppo(content: Mapping[str, Json]) -> bool:
    return {"summary", "evaluation"} <= content.keys() and "reward_model" in _dict(content["summary"])


def _is_comparison(content: Mapping[str, Json]) -> bool:
    return {"kl", "questions", "runs"} <= content.keys()
