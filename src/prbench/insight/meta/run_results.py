"""What our own commands leave behind: runs of `prbench eval`, pools of `prbench bon`, policies of `prbench ppo`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prbench.errors import DataError, RunError
from prbench.insight.meta.board import BoardSource, ModelBoard, board_of_items, tabulate
from prbench.reward_models.view import board_name, context_of
from prbench.runs import MANIFEST, SUMMARY, ItemValue, StoredRun, find_runs, item_values
from prbench.runs.files import BON, EVAL, EVALUATION, PPO, read_json
from prbench.schema import Json

ACCURACY, LEAST, VALUE, GOLD = "accuracy", "min_category_accuracy", "value", "gold"
FLOOR_AND_CEILING = ("random", "oracle")  # selectors of every Best-of-N, and no models
CEILING = "oracle"  # a context that shows the gold rubric: never ranked
DEFAULT_CONTEXT = "profile"
COMPARISON = "comparison"  # runs of PPO side by side
ROW_FACTS = ("majority",)  # that figures of rows need


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResult:
    """One model's score, where a file tells about one model, or a few."""

    board: str
    model: str
    source: Path
    value: float
    low: float = float("nan")
    high: float = float("nan")
    items: tuple[ItemValue, ...] = ()
    may_repeat: bool = False  # several seeds of one model are averaged
    group: str = ""  # models of other groups are on another board, though its name may be the same


def is_prbench_result(content: Json) -> bool:
    """True if a JSON file came from one of our commands."""
    if isinstance(content, list):
        return bool(content) and all(_kind_of(each) == EVAL for each in content)
    return bool(_kind_of(content))


def read_result_file(source: BoardSource, content: Json) -> list[ModelResult]:
    """Return the models of the JSON that a command printed or wrote; beside its run, with the rows behind it."""
    path = source.path
    if (path.parent / MANIFEST).exists() and path.name in (SUMMARY, EVALUATION):
        (run,) = find_runs([path.parent], groups=ROW_FACTS).runs
        return read_run(run, source)
    with _picking(path):
        if isinstance(content, list):
            return [_of_summary(path, each, source) for each in content]
        kind = _kind_of(content)
        if kind == EVAL:
            return [_of_summary(path, content, source)]
        if kind == BON:
            return _of_bon(path, content, None, source)
        if kind == COMPARISON:
            found = []
            for run in content["runs"]:
                value, low, high = _estimate(run["gold"])
                manifest = Path(run["run"]) / MANIFEST
                model = _rewarded_by(read_json(manifest)) if manifest.exists() else str(run["run"])
                board = source.name or f"PPO {GOLD} at {content['kl']:g} nats"
                found.append(
                    ModelResult(
                        board=board, model=model, source=path, value=value, low=low, high=high, may_repeat=True
                    )
                )
            return found
        return _of_ppo(path, content["summary"]["reward_model"], content["evaluation"], None, source)


def read_run(run: StoredRun, source: BoardSource) -> list[ModelResult]:
    """Return the models of a run, with the rows behind their figure where it is a mean of rows."""
    with _picking(run.folder):
        if run.kind == EVAL:
            plain = _of_summary(run.folder, run.summary(), source, run.manifest["data"].get("split") or "")
            return [replace(plain, items=tuple(item_values(run, source.column or ACCURACY)))]
        if run.kind == BON:
            return _of_bon(run.folder, run.summary(), run, source)
        if run.kind == PPO:
            if not (run.folder / EVALUATION).exists():
                raise RunError(f"{run.folder}: was not evaluated yet. Run `prbench ppo` with --eval-split first.")
            evaluation = read_json(run.folder / EVALUATION)
            return _of_ppo(run.folder, _rewarded_by(run.manifest), evaluation, run, source)
        raise RunError(f"{run.folder}: made by `prbench {run.kind}`, which ranks no models.")


@contextmanager
def _picking(place: Path) -> Iterator[None]:
    """Turn what is missing in a result of a command, or is of another type, into an error with its place."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"{place}: its results are damaged ({type(error).__name__}: {error}). Run its command again."
        raise RunError(message) from error


def boards_of_models(found: Sequence[ModelResult]) -> list[ModelBoard]:
    """Put the models of many files together into boards, in the order of the files."""
    by_board: dict[tuple[str, str], list[ModelResult]] = {}
    for each in found:
        by_board.setdefault((each.board, each.group), []).append(each)
    for (name, _), models in by_board.items():
        if all(_is_ceiling(each) for each in models):
            raise DataError(f"{name}: all models saw the gold rubric (context oracle), so none is ranked. Add others.")
        if all(math.isnan(each.value) for each in models):
            raise DataError(f"{models[0].source}: has no such figure: {name}. Choose another with #FIGURE.")
    return [_board(name, models) for (name, _), models in by_board.items()]


def _board(name: str, models: Sequence[ModelResult]) -> ModelBoard:
    by_model: dict[str, list[ModelResult]] = {}
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
    seeds = {model: tuple(each.value for each in several) for model, several in by_model.items() if len(several) > 1}
    if all(each.items for each in ranked):
        rows = [(model, *row) for model, several in by_model.items() for row in _mean_rows(several)]
        names, items = tabulate(rows)
        return board_of_items(name, names, items, seeds=seeds, notes=tuple(notes))
    alone = {model: several[0] if len(several) == 1 else None for model, several in by_model.items()}
    return ModelBoard(
        name=name,
        models=tuple(by_model),
        scores=np.array([np.mean([each.value for each in several]) for several in by_model.values()]),
        low=np.array([each.low if each else np.nan for each in alone.values()]),
        high=np.array([each.high if each else np.nan for each in alone.values()]),
        seeds=seeds,
        notes=tuple(notes),
    )


def _is_ceiling(each: ModelResult) -> bool:
    return each.model.endswith(f"context={CEILING}")


def _mean_rows(several: Sequence[ModelResult]) -> Iterator[ItemValue]:
    """Yield one row per item: its mean over runs."""
    values: dict[tuple[str, str], list[float]] = {}
    for each in several:
        for item, user, value in each.items:
            values.setdefault((item, user), []).append(value)
    for (item, user), found in values.items():
        yield ItemValue(item, user, sum(found) / len(found))


def _of_summary(path: Path, summary: Mapping[str, Json], source: BoardSource, split: str = "") -> ModelResult:
    figure = source.column or ACCURACY
    found = _lookup(summary, figure)
    if figure == LEAST:  # the accuracy in the category that is hardest for this model
        by_category = _dict(summary.get("accuracy_by_category"))
        found = min(by_category.values(), key=lambda each: each["value"]) if by_category else None
    value, low, high = _estimate(found)
    data = _dict(summary.get("data"))
    return ModelResult(
        board=source.name or " ".join(part for part in (str(data.get("name", "")), split, figure) if part),
        group=str(data.get("hash", "")),
        model=board_name(str(summary["model"]), str(summary.get("context") or DEFAULT_CONTEXT), DEFAULT_CONTEXT),
        source=path,
        value=value,
        low=low,
        high=high,
    )


def _of_bon(path: Path, summary: Mapping[str, Json], run: StoredRun | None, source: BoardSource) -> list[ModelResult]:
    """Return what each model's picks are worth at the largest n, or another figure."""
    last = str(summary["n"])
    figure = source.column or VALUE
    size = figure.removeprefix("value_at.") if figure.startswith("value_at.") else last if figure == VALUE else ""
    found = []
    for spec, figures in summary["models"].items():
        if spec in FLOOR_AND_CEILING:
            continue
        figure = f"value_at.{size}" if size else figure
        value, low, high = _estimate(_lookup(figures, figure))
        items = () if run is None else tuple(item_values(run, figure, spec))
        found.append(
            ModelResult(
                board=source.name or (f"best of {size}" if size else f"best of {last} {figure}"),
                model=board_name(spec, figures.get("context") or DEFAULT_CONTEXT, DEFAULT_CONTEXT),
                source=path,
                value=value,
                low=low,
                high=high,
                items=items if len(items) == figures["questions"] else (),  # some went, if a person was forgotten
            )
        )
    return found


def _of_ppo(
    path: Path, model: str, evaluation: Mapping[str, Json] | None, run: StoredRun | None, source: BoardSource
) -> list[ModelResult]:
    """Return what the policy gives its users: the last one that was kept, or the one nearest to a KL."""
    policies = (evaluation or {}).get("policies")
    if not policies:
        raise RunError(f"{path}: has no evaluated policies. Run `prbench ppo` with --eval-split first.")
    at_kl = source.at_kl
    last = max(policies, key=lambda each: each["step"])
    entry = last if at_kl is None else min(policies, key=lambda each: (abs(each["kl"] - at_kl), each["step"]))
    figure = source.column or GOLD
    value, low, high = _estimate(_lookup(entry, figure))
    items = () if run is None else tuple(item_values(run, figure, entry["step"]))
    where = "at the end" if at_kl is None else f"at {at_kl:g} nats"
    return [
        ModelResult(
            board=source.name or f"PPO {figure} {where}",
            model=model,
            source=path,
            value=value,
            low=low,
            high=high,
            items=items,
            may_repeat=True,
        )
    ]


def _rewarded_by(manifest: Mapping[str, Json]) -> str:
    """Return the name of the model whose scores a policy of PPO learned from."""
    settings = manifest["config"]["settings"]
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


def _dict(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _kind_of(content: Json) -> str:
    """Return which command's result a JSON value is, or "" for what came from elsewhere."""
    if not isinstance(content, dict):
        return ""
    if {"run_id", "model", "accuracy", "context"} <= content.keys():
        return EVAL
    if {"n", "sizes", "models", "differences"} <= content.keys():
        return BON
    if {"kl", "questions", "runs"} <= content.keys():
        return COMPARISON
    is_ppo = {"summary", "evaluation"} <= content.keys() and "reward_model" in _dict(content["summary"])
    return PPO if is_ppo else ""
