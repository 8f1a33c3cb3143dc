"""Pairs that a user has compared before, as a part of what a model may know of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from textwrap import indent
from typing import TYPE_CHECKING

from prbench.context.choose import Ask
from prbench.context.render import LABEL, Material, listed_in, pieces_of, rendering_hash, unescaped
from prbench.data import ExampleStore
from prbench.errors import UsageError
from prbench.schema import Example, Json, RatedExample

if TYPE_CHECKING:
    from prbench.context import ContextMaker

SHOTS = 10  # pairs of a user that are shown, unless another number is asked for
_FIELDS = ("Question: ", "Preferred: ", "Turned down: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Two answers that a user compared. It has no field for a rubric or a narrative, so none can leak."""

    question: str
    preferred: str
    turned_down: str

    @property
    def text(self) -> str:
        """The pair in words; further lines of each part are indented, so that no part can pose as the next one."""
        parts = (self.question, self.preferred, self.turned_down)
        return "\n".join(
            [LABEL, *(name + indent(part.strip(), "  ")[2:] for name, part in zip(_FIELDS, parts, strict=True))]
        )


def labels_of(context: str) -> tuple[Label, ...]:
    """The labelled pairs in a rendered context. No post can pass for one: `render` escapes what looks alike."""
    return tuple(label for label in map(_read, listed_in(context)) if label)


def posts_of(context: str) -> tuple[str, ...]:
    """The pieces of a context that are no labelled pairs, as they were written."""
    labelled = bool(listed_in(context))
    return tuple(unescaped(piece) for piece in pieces_of(context) if not (labelled and _read(piece)))


def _read(piece: str) -> Label | None:
    first, *lines = piece.split("\n")
    parts: list[list[str]] = []
    for line in lines if first == LABEL else ():
        name = _FIELDS[len(parts)] if len(parts) < len(_FIELDS) else None
        if name and line.startswith(name):
            parts.append([line.removeprefix(name)])
        elif parts and (line.startswith("  ") or not line.strip()):
            parts[-1].append(line.removeprefix("  "))
        else:
            return None
    if len(parts) != len(_FIELDS):
        return None
    question, preferred, turned_down = ("\n".join(part) for part in parts)
    return Label(question=question, preferred=preferred, turned_down=turned_down)


def names_of(item: Example | RatedExample) -> frozenset[str]:
    """What an item under test goes by: its id, and its question with either response.

    A label that compares one of the two with a third response would tell how it fared.
    """
    responses = (item.response,) if isinstance(item, RatedExample) else (item.chosen, item.rejected)
    return frozenset({_name("id", item.id), *(_name("text", item.question, response) for response in responses)})


def _name(kind: str, *texts: str) -> str:
    """A digest in which the spacing of words does not matter."""
    return sha256("\n".join((kind, *(" ".join(text.split()) for text in texts))).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A pair as it was handed in: its words, and the items under test that must not see it."""

    text: str
    names: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labelled pairs by user, in the order in which they were given."""

    of_user: Mapping[str, Sequence[_Given]]
    name: str  # where they come from
    digest: str
    shots: int  # how many of a user's pairs are shown

    @property
    def identity(self) -> dict[str, Json]:
        """All that changes the texts; goes into a run's id."""
        sample = Label(question="first line\nsecond line", preferred="one", turned_down="two").text
        return {"hash": self.digest, "shots": self.shots, "rendering": rendering_hash("none", (sample,)), "rule": 2}

    def shown_to(self, ask: Ask) -> tuple[str, ...]:
        """The user's first pairs, without the item under test.

        Of another user no more are shown than there are of the item's own: else a swap would also compare few labels
        with many.
        """
        shown = self._apart_from(ask, ask.user.id)
        own = self._apart_from(ask, ask.owner) if ask.owner else shown
        return tuple(shown[: min(self.shots, len(own))])

    def _apart_from(self, ask: Ask, user: str) -> list[str]:
        return [one.text for one in self.of_user.get(user, ()) if not one.names & ask.under_test]


def read_labels(store: ExampleStore, *, shots: int = SHOTS) -> Labels:
    """Take the pairs of a dataset as labelled pairs of their users."""
    if shots < 1:
        raise UsageError(f"--shots {shots} shows no labelled pair. Give 1 or more, or leave --labels out.")
    if store.kind != "pairs":
        raise UsageError(f"--labels {store.name}: holds rated responses, and labels are pairs. Give a file of pairs.")
    of_user: dict[str, list[_Given]] = {}
    for example in store:
        if isinstance(example, Example):
            of_user.setdefault(example.user.id, []).append(_given(example))
    return Labels(of_user=of_user, name=store.name, digest=store.content_hash, shots=shots)


def _given(example: Example) -> _Given:
    label = Label(question=example.question, preferred=example.chosen, turned_down=example.rejected)
    return _Given(text=label.text, names=names_of(example))


def refuse_strangers(labels: Labels, items: Iterable[Example | RatedExample]) -> None:
    """Stop if nobody under test has a labelled pair."""
    if not any(item.user.id in labels.of_user for item in items):
        raise UsageError(
            f"--labels {labels.name}: none of its {len(labels.of_user)} users is in the data. "
            "Give pairs whose user_id is that of a user under test."
        )


def refuse_unshown(labels: Labels, examples: Sequence[Example]) -> None:
    """Stop if there is nothing to show for any example: its user is a stranger, or has compared this pair alone."""
    refuse_strangers(labels, examples)
    asks = (Ask(user=each.user, question=each.question, under_test=names_of(each)) for each in examples)
    if not any(labels.shown_to(ask) for ask in asks):
        raise UsageError(
            f"--labels {labels.name}: of every user it holds the pair in question alone, which is not shown. "
            "Give other pairs of the same users."
        )


class LabelledContext:
    """Any context with labelled pairs of the same user before it."""

    def __init__(self, inner: "ContextMaker", labels: Labels) -> None:
        if inner.kind == "oracle":
            raise UsageError("--labels adds nothing to --context oracle, which knows all. Tell the model less.")
        self._inner = inner
        self._labels = labels
        self.kind = inner.kind
        heading = rendering_hash(inner.kind, ("sample",))
        self.identity: Mapping[str, Json] = {**inner.identity, "labels": {**labels.identity, "heading": heading}}

    def materials(self, asks: Sequence[Ask]) -> list[Material]:
        """Return one material per ask, in the same order."""
        found = self._inner.materials(asks)
        return [
            replace(material, labels=self._labels.shown_to(ask)) for ask, material in zip(asks, found, strict=True)
        ]
