"""What a build would take, before anything is sent: real prompts, with stand-ins for texts that are to be written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prbench.backends.llm import ChatRequest
from prbench.backends.llm.asking import Task, Value
from prbench.backends.llm.spending import Forecast, estimate
from prbench.construction.build import draw, generate, parity, rubric, verify
from prbench.construction.build.draft import CHOSEN, REJECTED, SIDES, PairDraft, Side
from prbench.construction.build.folder import REPLIES
from prbench.construction.build.item import Item
from prbench.construction.build.models import ClientOptions, Models, make_clients
from prbench.construction.build.pipeline import make_asker
from prbench.construction.build.rank import rank
from prbench.construction.build.settings import BuildSettings, Stage
from prbench.construction.build.sources import POSTS, read_items
from prbench.construction.privacy import Pseudonyms, find_pseudonyms
from prbench.schema import NOTHING, Aspect, Json

NOBODY = Pseudonyms(b"a dry run keeps no names")  # ids of the right length, for a folder that has no key yet
_QUESTION = "What would you advise somebody in my place to look at first, and what to do then?"
_NARRATIVE = " ".join(["I have thought about this for some time and should like to do it in my own way."] * 5)
_ASPECT = Aspect(
    aspect="advice that fits the way I live",
    evidence="I should like to do it in my own way.",
    reason="They say that they want to do it in their own way and not as others do.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageForecast:
    """What one stage would take."""

    stage: Stage
    once: Forecast  # where nothing has to be asked again
    times_at_most: int  # so often may each request come, in rounds and because of replies that cannot be read

    def as_json(self) -> dict[str, Json]:
        """Return it as `--json` prints it."""
        return {"stage": self.stage.value, **self.once.as_dict(), "times_at_most": self.times_at_most}


def forecast(
    settings: BuildSettings, out: Path, last: Stage, *, limit: int | None = None, means: ClientOptions | None = None
) -> list[StageForecast]:
    """Return what each stage would take. Nothing is sent, and nothing is written."""
    how = means or ClientOptions()
    names = (find_pseudonyms(out) or NOBODY) if settings.pseudonyms else None
    source = read_items(settings, names, limit)
    requests = _requests(settings, source.items, source.kind == POSTS)
    kept = (out / REPLIES).exists()
    models = Models(make_clients(settings, how, NOTHING), out, how) if kept else None
    try:
        return [
            StageForecast(
                stage=stage,
                once=estimate(some, models.of(stage) if models else None, how.price),
                times_at_most=(settings.retries + 1) ** (2 if stage in (Stage.VERIFY, Stage.PARITY) else 1),
            )
            for stage, some in requests.items()
            if last.reaches(stage)
        ]
    finally:
        if models:
            models.close()


def _requests(settings: BuildSettings, items: Sequence[Item], draws: bool) -> dict[Stage, list[ChatRequest]]:
    """Return the requests of one clean pass, stage by stage."""
    found: dict[Stage, list[ChatRequest]] = {}

    def ask(stage: Stage, tasks: Iterable[Task[Value]]) -> None:
        asker = make_asker(stage, settings)
        found.setdefault(stage, []).extend(asker.request(task, 0, "") for task in tasks)

    if draws:
        items = [item for item in items if item.held_out]
        ask(Stage.DRAW, map(draw.task, items))
        items = [replace(item, question=_QUESTION, narrative=_NARRATIVE) for item in items]
    items, _ = rank(items, settings)
    ask(Stage.RUBRIC, (rubric.task(item, settings.aspects) for item in items if not item.rubric))
    stand_in = tuple(replace(_ASPECT, aspect=f"{_ASPECT.aspect} {n}") for n in range(settings.aspects))
    side = Side(text=" ".join(["sentence"] * settings.words))
    for item in items:
        empty = PairDraft(item=replace(item, rubric=item.rubric or stand_in))
        half, full = replace(empty, chosen=side), replace(empty, chosen=side, rejected=side)
        both = (generate.task(empty, CHOSEN, settings.words), generate.task(half, REJECTED, settings.words))
        ask(Stage.GENERATE, both)
        for name in SIDES:
            ask(Stage.VERIFY, verify.tasks_for(full, name, batched=settings.batched_verification))
        ask(Stage.PARITY, (parity.task(full, chosen_first=first) for first in (True, False)))
    return found
