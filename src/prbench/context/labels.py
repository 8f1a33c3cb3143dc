"""Pairs that a user has compared before, as a part of what a model may know of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from prbench.context.posts import Ask, rendering_hash
from prbench.data import ExampleStore
from prbench.errors import UsageError
from prbench.schema import ContextKind, Example, Json, LabeledPair, RatedExample, UserContext

if TYPE_CHECKING:
    from prbench.context import ContextMaker

LABELS_OF = "_labels"  # the split `test_labels` holds pairs that the users of `test` compared before
SHOTS = 10  # pairs of a user that are shown, unless another number is asked for


def leak_keys(item: Example | RatedExample) -> frozenset[str]:
    """What an item under test goes by: its id, and its question with either response.

    A label that compares one of the two with a third response would tell how it fared.
    """
    responses = (item.response,) if isinstance(item, RatedExample) else (item.chosen, item.rejected)
    names = [("id", item.id), *(("text", item.question, response) for response in responses)]
    # The spacing of words does not matter.
    plain = ("\n".join(" ".join(text.split()) for text in parts) for parts in names)
    return frozenset(sha256(text.encode()).hexdigest()[:32] for text in plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LabeledItem:
    """A pair as it was handed in, and the items under test that must not see it."""

    pair: LabeledPair
    leak_keys: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labeled pairs by user, in the order in which they were given."""

    of_user: Mapping[str, Sequence[_LabeledItem]]
    name: str  # where they come from
    digest: str
    shots: int  # how many of a user's pairs are shown

    @property
    def identity(self) -> dict[str, Json]:
        """All that changes the texts; goes into a run's id."""
        rendering = rendering_hash(ContextKind.NONE, has_labels=True)
        return {"hash": self.digest, "shots": self.shots, "rendering": rendering, "rule": 2}

    def pairs_for(self, ask: Ask) -> tuple[LabeledPair, ...]:
        """The user's first pairs, without the item under test.

        Of another user no more are shown than there are of the item's own: else a swap would also compare few labels
        with many.
        """
        shown, own = (
            [one.pair for one in self.of_user.get(user, ()) if not one.leak_keys & ask.excluded_keys]
            for user in (ask.user.id, ask.owner or ask.user.id)
        )
        return tuple(shown[: min(self.shots, len(own))])


def read_labels(store: ExampleStore, *, shots: int = SHOTS) -> Labels:
    """Take the pairs of a dataset as labeled pairs of their users."""
    if shots < 1:
        raise UsageError(f"--shots {shots} shows no labeled pair. Give 1 or more, or leave --labels out.")
    if store.kind != "pairs":
        raise UsageError(f"--labels {store.name}: holds rated responses, and labels are pairs. Give a file of pairs.")
    of_user: dict[str, list[_LabeledItem]] = {}
    for example in store:
        if isinstance(example, Example):
            pair = LabeledPair(question=example.question, chosen=example.chosen, rejected=example.rejected)
            of_user.setdefault(example.user.id, []).append(_LabeledItem(pair=pair, leak_keys=leak_keys(example)))
    return Labels(of_user=of_user, name=store.name, digest=store.content_hash, shots=shots)


def check_labels_overlap(labels: Labels, items: Iterable[Example | RatedExample]) -> None:
    """Stop if nobody under test has a labeled pair."""
    if not any(item.user.id in labels.of_user for item in items):
        raise UsageError(
            f"--labels {labels.name}: none of its {len(labels.of_user)} users is in the data. "
            "Give pairs whose user_id is that of a user under test."
        )


def check_labels_shown(labels: Labels, examples: Sequence[Example]) -> None:
    """Stop if there is nothing to show for any example: its user is a stranger, or has compared this pair alone."""
    check_labels_overlap(labels, examples)
    asks = (Ask(user=each.user, question=each.question, excluded_keys=leak_keys(each)) for each in examples)
    if not any(labels.pairs_for(ask) for ask in asks):
        raise UsageError(
            f"--labels {labels.name}: of every user it holds the pair in question alone, which is not shown. "
            "Give other pairs of the same users."
        )


class LabeledContext:
    """Any context with labeled pairs of the same user before it."""

    def __init__(self, inner: "ContextMaker", labels: Labels) -> None:
        if inner.kind == ContextKind.ORACLE:
            raise UsageError("--labels adds nothing to --context oracle, which knows all. Tell the model less.")
        self._inner = inner
        self._labels = labels
        self.kind = inner.kind
        heading = rendering_hash(inner.kind, has_labels=True)
        self.identity: Mapping[str, Json] = {**inner.identity, "labels": {**labels.identity, "heading": heading}}

    def contexts(self, asks: Sequence[Ask]) -> list[UserContext]:
        found = self._inner.contexts(asks)
        return [replace(user, labels=self._labels.pairs_for(ask)) for ask, user in zip(asks, found, strict=True)]
