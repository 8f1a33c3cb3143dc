"""Measure a planner: plan for every example, compare with its rubric, keep the rows, sum up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from prbench.backends.llm import LLM, CachedLLM, load_llm
from prbench.context import Ask, ContextMaker, Planner, load_planner, make_context
from prbench.data import DataSettings, ExampleStore, open_data
from prbench.errors import UsageError
from prbench.insight.planner import judge as judging
from prbench.insight.planner.records import Matching, PlanRow
from prbench.insight.planner.summary import summarise_plans
from prbench.insight.planner.truth import TraitReader, match, subject_of, wanted_traits
from prbench.judging import knows_truth
from prbench.prompts import load_template
from prbench.runs import ITEMS, SUMMARY, Keys, Layout, RunConfig, RunStore
from prbench.runs.files import PLANNER
from prbench.schema import Example, Json, Progress, UserContext

PLANNED = "planner"  # the folder of the figures, beside the replies or within the folder of a run
LAYOUT = Layout(kind=PLANNER, made=(ITEMS, SUMMARY))
AT_ONCE = 32  # examples between two looks at the progress


@dataclass(frozen=True, kw_only=True)
class PlannerSettings:
    """Who plans, from what, and who judges."""

    planner: str
    judge: str = ""  # "": only by the lab's truth
    posts: int = 10
    rank: str = "recent"
    encoder: str = "minilm"
    seed: int = 0

    KEYS: ClassVar[Keys] = Keys("planner", judge="", posts=10, rank="recent", encoder="minilm", seed=0)

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)


def measure_planner(
    settings: PlannerSettings,
    which: DataSettings,
    out: Path,
    *,
    models: Mapping[str, LLM] | None = None,
    reader: TraitReader | None = None,
    fresh: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Json]:
    """Write figures and the rows behind them to the folder `planner` in another one, and return the figures.

    Replies are kept in the folder, so that the same call again asks nothing twice. `models` are clients from Python
    (`planner`, `judge`), instead of those that the settings name.
    """
    given = models or {}
    out.mkdir(parents=True, exist_ok=True)
    cache = out / "cache" / "llm.sqlite"
    planner = _planner(settings, given, cache)
    judge = _judge(settings, given, cache)
    maker = make_context("plan", posts=settings.posts, rank=settings.rank, planner=planner, encoder=settings.encoder)
    with open_data(which) as store:
        examples = _examples(store)
        has_truth, content_hash = knows_truth(store.named_judge), store.content_hash
    if judge is None and not has_truth:
        raise UsageError("Only the lab knows the truth about plans. Name a judge with --judge for other data.")
    prompts = {name: load_template(name).hash for name in ("plan", judging.TEMPLATE)}
    asked = RunConfig(
        config={
            "settings": settings.to_config(),
            "data": content_hash,
            "prompts": prompts,
            "context": dict(maker.identity),
            "judge": judge and {"name": judge.name, "fingerprint": judge.fingerprint},
            "truth": has_truth,
        },
        data=which.to_config(),
        command=command,
    )
    # Before the first request: whoever is refused has paid for nothing.
    with RunStore.open(out / PLANNED, LAYOUT, asked, fresh=fresh) as run:
        trait_reader = (reader or TraitReader()) if has_truth else None
        rows: list[PlanRow] = []
        for start in range(0, len(examples), AT_ONCE):
            rows += _measure(examples[start : start + AT_ONCE], maker, judge, trait_reader)
            if progress:
                progress(len(rows), len(examples))
        summary: dict[str, Json] = {
            "settings": PlannerSettings.KEYS.values(settings),
            "data": {**DataSettings.KEYS.values(which), "hash": content_hash},
            "prompts": prompts,
            **summarise_plans(rows, seed=settings.seed),
        }
        run.write_lines(ITEMS, (row.as_json() for row in rows))
        run.finish(summary)
    return summary


def _planner(settings: PlannerSettings, given: Mapping[str, LLM], cache: Path) -> Planner:
    if "planner" in given:
        return CachedLLM(given["planner"], cache)
    return load_planner(settings.planner, seed=settings.seed, cache=cache)


def _judge(settings: PlannerSettings, given: Mapping[str, LLM], cache: Path) -> CachedLLM | None:
    if "judge" in given:
        return CachedLLM(given["judge"], cache)
    return CachedLLM(load_llm(settings.judge, seed=settings.seed), cache) if settings.judge else None


def _examples(store: ExampleStore) -> list[Example]:
    examples = [example for example in store if isinstance(example, Example) and example.rubric]
    if not examples:
        raise UsageError("No row has rubric aspects to compare plans with. Choose data with `rubric_aspects`.")
    return examples


def _measure(
    examples: Sequence[Example], maker: ContextMaker, judge: LLM | None, reader: TraitReader | None
) -> list[PlanRow]:
    """Plan for some examples, and compare the plans by all means there are: a judge, the lab's truth."""
    plans = maker.contexts([Ask(user=example.user, question=example.question) for example in examples])
    rows = [_row(example, plan) for example, plan in zip(examples, plans, strict=True)]
    if judge is not None:
        rows = _judged(examples, rows, judge)
    if reader is None:
        return rows
    return [_with_truth(example, row, reader) for example, row in zip(examples, rows, strict=True)]


def _row(example: Example, plan: UserContext) -> PlanRow:
    problem = plan.problem or ("" if plan.segments else "nothing_known")
    return PlanRow(
        id=example.id,
        user_id=example.user.id,
        category=example.category,
        wanted=tuple(aspect.aspect for aspect in example.rubric),
        planned=plan.segments,
        problem=str(problem),
        detail=plan.detail,
    )


def _judged(examples: Sequence[Example], rows: Sequence[PlanRow], judge: LLM) -> list[PlanRow]:
    """Have the plans judged; where there is none, there is nothing to ask."""
    asked = [place for place, row in enumerate(rows) if row.planned]
    requests = [
        (
            judging.request(
                examples[place].question, examples[place].rubric, rows[place].planned, rows[place].user_id
            ),
            len(rows[place].planned),
            len(rows[place].wanted),
        )
        for place in asked
    ]
    found = dict(zip(asked, judging.ask(judge, requests), strict=True))
    return [replace(row, judged=found.get(place, Matching(pairs=()))) for place, row in enumerate(rows)]


def _with_truth(example: Example, row: PlanRow, reader: TraitReader) -> PlanRow:
    wanted = wanted_traits(example)
    if wanted is None:
        return row
    read = tuple(reader.read(row.planned, subject_of(example)))
    return replace(row, read=read, truth=match(read, wanted))
