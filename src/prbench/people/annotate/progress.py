"""How far the people are, and how far they agree so far."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from prbench.metrics.agreement import Label, krippendorff_alpha, label_table, raw_agreement
from prbench.metrics.estimate import ratio_estimates
from prbench.people.agreement.answers import QUALITIES
from prbench.people.annotate.records import Annotator, Mode, SavedAnswer, Status
from prbench.people.annotate.store import Store
from prbench.schema import POINTS, Estimate, Json, Verdict

CHOICES = (Verdict.CHOSEN, Verdict.REJECTED, Verdict.TIE)
DRAWS = 200  # for intervals on a page; `prbench annotate agreement` draws more


@dataclass(frozen=True, kw_only=True)
class AnnotatorProgress:
    """How far one annotator is."""

    annotator: Annotator
    planned: int
    done: int
    drafts: int
    skipped: int
    flagged: int
    median_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class ItemProgress:
    """How far one item is."""

    number: int
    id: str
    question: str
    wanted: int
    done: int
    skipped: int
    flagged: int
    choices: dict[str, int]

    @property
    def is_split(self) -> bool:
        return len(self.choices) > 1


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far the answers that are done agree; `None` where it cannot be told yet."""

    with_label: Estimate | None  # share of answers that pick the chosen response; "cannot tell" is half
    raw: Estimate | None
    alpha: Estimate | None
    rating_alphas: dict[str, Estimate | None]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Everything the owner's page and `progress` show."""

    planned: int
    done: int
    skipped: int
    flagged: int
    people: tuple[AnnotatorProgress, ...]
    items: tuple[ItemProgress, ...]
    agreement: Agreement

    def as_json(self) -> dict[str, Json]:
        """Return the figures for machines."""
        whole, people = asdict(self), []
        for person in whole["people"]:
            annotator = person.pop("annotator")
            people.append({"name": annotator["name"], "paused": annotator["is_paused"], **person})
        return whole | {"people": people}


def measure(store: Store) -> Figures:
    """Read everything off a project."""
    answers = store.answers()
    people, items = _people(store, answers), _items(store, answers)
    return Figures(
        planned=sum(item.wanted for item in items),
        done=sum(person.done for person in people),
        skipped=sum(person.skipped for person in people),
        flagged=sum(person.flagged for person in people),
        people=people,
        items=items,
        agreement=_agreement([saved for saved in answers if saved.status is Status.DONE], store.project.mode),
    )


def _people(store: Store, answers: Sequence[SavedAnswer]) -> tuple[AnnotatorProgress, ...]:
    planned, people = store.planned(), []
    for annotator in store.people.all():
        own = [saved for saved in answers if saved.annotator == annotator.id]
        count = Counter(saved.status for saved in own)
        seconds = [saved.seconds for saved in own if saved.status is Status.DONE and saved.seconds > 0]
        people.append(
            AnnotatorProgress(
                annotator=annotator,
                planned=len(planned.get(annotator.id, [])),
                done=count[Status.DONE],
                drafts=count[Status.DRAFT],
                skipped=count[Status.SKIPPED],
                flagged=sum(saved.answer.is_flagged for saved in own),
                median_seconds=round(median(seconds), 1) if seconds else None,
            )
        )
    return tuple(people)


def _items(store: Store, answers: Sequence[SavedAnswer]) -> tuple[ItemProgress, ...]:
    by_item: dict[str, list[SavedAnswer]] = {}
    for saved in answers:
        by_item.setdefault(saved.item, []).append(saved)
    states = []
    for number, item in enumerate(store.items(), 1):
        found = by_item.get(item.id, [])
        done = [saved.answer for saved in found if saved.status is Status.DONE]
        count = Counter(answer.choice for answer in done)
        states.append(
            ItemProgress(
                number=number,
                id=item.id,
                question=item.question,
                wanted=store.project.overlap,
                done=len(done),
                skipped=sum(saved.status is Status.SKIPPED for saved in found),
                flagged=sum(saved.answer.is_flagged for saved in found),
                choices={choice.value: count[choice] for choice in CHOICES if count[choice]},
            )
        )
    return tuple(states)


def _agreement(done: Sequence[SavedAnswer], mode: Mode) -> Agreement:
    choices = [(str(saved.annotator), saved.item, saved.answer.choice) for saved in done if saved.answer.choice]
    if not choices:
        return Agreement(with_label=None, raw=None, alpha=None, rating_alphas={})
    hits = [POINTS[choice] for _, _, choice in choices]
    categories = [choice.value for choice in CHOICES]
    table = label_table([(rater, item, choice.value) for rater, item, choice in choices], categories=categories)
    rating_alphas: dict[str, Estimate | None] = {}
    for quality in QUALITIES if mode is Mode.VALIDATE else ():
        labels: list[tuple[str, str, Label | None]] = [
            (str(saved.annotator), f"{saved.item} {name}", getattr(ratings, quality))
            for saved in done
            for name, ratings in (("chosen", saved.answer.chosen), ("rejected", saved.answer.rejected))
        ]
        rating_alphas[quality] = None
        if any(label is not None for _, _, label in labels):
            rated = label_table(labels, categories=range(1, 6))
            # Both responses of an item are rated, and stay together when items are drawn.
            clusters = [item.rpartition(" ")[0] for item in rated.items]
            rating_alphas[quality] = krippendorff_alpha(rated, "ordinal", clusters=clusters, draws=DRAWS)
    return Agreement(
        with_label=ratio_estimates(hits, [1.0] * len(hits), [item for _, item, _ in choices])[0],
        raw=raw_agreement(table),
        # Which response is called the chosen one is a matter of order to somebody who does not know.
        alpha=krippendorff_alpha(table, exchange=(Verdict.CHOSEN.value, Verdict.REJECTED.value), draws=DRAWS),
        rating_alphas=rating_alphas,
    )
