"""What the splits of a dataset share: anything that training can carry over into a test."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from prbench.construction.check.duplicates import fingerprint
from prbench.construction.check.finding import (
    BAD,
    DIGITS,
    GOOD,
    LOOK,
    MOST_SAMPLES,
    CheckFinding,
    CheckSample,
    cut,
    grade,
    in_turns,
    worst,
)
from prbench.data import DataSettings, ExampleStore, open_data, split_names
from prbench.data.rows import made_user_id
from prbench.data.texts import sentences, words
from prbench.errors import PrbenchError
from prbench.metrics.number_format import percent_text
from prbench.schema import Example, RatedExample

AnyExample = Example | RatedExample

ALL_ROWS = "all rows"
KINDS = ("users", "questions", "posts", "responses", "sentences")
NEVER_SHARED = ("users", "responses")  # one is too many; of the others, up to a hundredth is only worth a look
LOOK_SHARE = 0.01
FEWEST_WORDS = 4  # a shorter sentence ("I agree.") is in every set
_WHY = "A model trained on one split would know people, questions or sentences of the other: its score is memory."
_REMEDY = "Divide by user and by question before responses are written, or drop the shared rows from training."
MOST_TOLD = 3  # pairs of splits that the figure names
# A leak leads from what is trained on into what is not, so two splits of one side may share texts.
TRAINING, VALIDATION, TESTING, UNKNOWN = "training", "validation", "testing", "unknown"
_SIDES = {
    **dict.fromkeys(("train", "training"), TRAINING),
    **dict.fromkeys(("validation", "valid", "val", "dev"), VALIDATION),
    **dict.fromkeys(("test", "tests", "testing"), TESTING),
}


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """The fingerprints of every split, and what turned up in a second one."""

    known: dict[str, dict[str, set[int]]] = field(default_factory=dict)  # split, kind
    shared: dict[tuple[str, str, str], int] = field(default_factory=lambda: defaultdict(int))  # two splits, kind
    samples: dict[tuple[str, str, str], list[CheckSample]] = field(default_factory=lambda: defaultdict(list))
    unreadable: dict[str, str] = field(default_factory=dict)  # split, reason

    def add(self, split: str, item: AnyExample) -> None:
        """Enter one row of a split."""
        own = self.known.setdefault(split, {kind: set() for kind in KINDS})
        for kind, text in texts_of(item):
            print_ = fingerprint(text)
            if print_ in own[kind]:
                continue
            own[kind].add(print_)
            for other, prints in self.known.items():
                if other == split or print_ not in prints[kind]:
                    continue
                first, second = sorted((split, other))
                self.shared[first, second, kind] += 1
                samples = self.samples[first, second, kind]
                if len(samples) < MOST_SAMPLES:
                    title = f"{kind[:-1]} in {split_label(first)} and {split_label(second)}, here from {item.id}"
                    samples.append(CheckSample(title=title, texts=((kind[:-1], cut(text)),)))

    def share(self, first: str, second: str, kind: str) -> float:
        """Return what is shared, as a share of the smaller of two splits."""
        smaller = min(len(self.known[first][kind]), len(self.known[second][kind]))
        return self.shared.get((first, second, kind), 0) / smaller if smaller else 0.0


def texts_of(item: AnyExample) -> Iterator[tuple[str, str]]:
    """Yield everything in a row that may stand in another one too, with what it is."""
    if item.user.id != made_user_id((), item.id):  # an id that was made from the row's own names nobody
        yield "users", item.user.id
    yield "questions", item.question
    for post in item.user.profile:
        yield "posts", post.text
    for response in (item.chosen, item.rejected) if isinstance(item, Example) else (item.response,):
        yield "responses", response
        for sentence in sentences(response):
            if len(words(sentence)) >= FEWEST_WORDS:
                yield "sentences", sentence


def check_splits(store: ExampleStore, which: DataSettings) -> CheckFinding:
    """Compare every two splits of the source in users, questions, posts, responses and sentences of responses."""
    found = _Comparison()
    names = names_of_splits(which)
    checked = split_of(store, which)
    rows: Iterator[tuple[str, AnyExample]]
    if not names and (not which.source or which.split is None):  # the rows' own column tells their split
        is_single = len({item.split for item in store}) == 1
        rows = ((item.split, item) for item in store)
    else:
        is_single = len(names) == 1
        rows = _rows_of_splits(store, which, names, checked, found.unreadable)
    # Whether there is a second split is plain before every text is read.
    for split, item in () if is_single else rows:
        found.add(split, item)
    if len(found.known) < 2 and not found.unreadable:
        figure = f"one split only; nothing to compare (checked: {checked})"
        return CheckFinding("splits", GOOD, figure, why=_WHY, remedy="")
    pairs = list(combinations(sorted(found.known), 2))
    verdicts = {(*pair, kind): _verdict(found, *pair, kind) for pair in pairs for kind in KINDS}
    scope = ""
    if which.limit:
        scope = f"the first {which.limit} rows{' of each' if names else ''} of "
    left_out = [f"{split_label(name)} was not compared: {reason}" for name, reason in found.unreadable.items()]
    return CheckFinding(
        "splits",
        worst(*verdicts.values(), LOOK if found.unreadable else GOOD),
        f"{_figure(found, verdicts, scope)} (checked: {checked})",
        why=_WHY,
        remedy=" ".join([*([] if set(verdicts.values()) <= {GOOD} else [_REMEDY]), *left_out]),
        values={
            "splits": {name: {kind: len(prints[kind]) for kind in KINDS} for name, prints in found.known.items()},
            "unreadable": dict(found.unreadable),
            "shared": [
                {
                    "between": list(pair),
                    **{kind: found.shared.get((*pair, kind), 0) for kind in KINDS},
                    "shares": {kind: round(found.share(*pair, kind), DIGITS) for kind in KINDS},
                }
                for pair in pairs
            ],
        },
        samples=in_turns(found.samples[place] for place, verdict in verdicts.items() if verdict != GOOD),
    )


def _verdict(found: _Comparison, first: str, second: str, kind: str) -> str:
    verdict = grade(found.share(first, second, kind), good=0, look=0 if kind in NEVER_SHARED else LOOK_SHARE)
    match {_side_of(first), _side_of(second)}:
        case sides if UNKNOWN in sides:
            # Nobody said that one of them is for training, so this may be harmless.
            return LOOK if verdict == BAD else verdict
        case sides if sides == {TRAINING} or (len(sides) == 1 and kind != "users"):
            return GOOD
        case _:
            return verdict


def _side_of(split: str) -> str:
    """Return what a split is for: the first telling word of its name says it."""
    named = [_SIDES[word] for word in re.split(r"[^a-z]+", split.lower()) if word in _SIDES]
    return named[0] if named else UNKNOWN


def _figure(found: _Comparison, verdicts: Mapping[tuple[str, str, str], str], scope: str) -> str:
    names = ", ".join(map(split_label, found.known))
    leaks: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (first, second, kind), verdict in verdicts.items():
        if verdict != GOOD:
            share = percent_text(found.share(first, second, kind))
            leaks[first, second].append(f"{found.shared[first, second, kind]} {kind} ({share})")
    if not leaks:
        return f"nothing shared that should not be, between {scope}{names}"
    told = [
        f"{split_label(one)} and {split_label(other)} share {', '.join(kinds)}"
        for (one, other), kinds in leaks.items()
    ]
    more = f"; {len(told) - MOST_TOLD} more pairs of splits share something" if len(told) > MOST_TOLD else ""
    return f"of {scope}{names}: {'; '.join(told[:MOST_TOLD])}{more}"


def _rows_of_splits(
    store: ExampleStore, which: DataSettings, names: Sequence[str], checked: str, unreadable: dict[str, str]
) -> Iterator[tuple[str, AnyExample]]:
    """Yield every row of every split; splits that cannot be read are entered into `unreadable`."""
    for name in names or (None,):  # None: the whole file, of which --split left one split in the store
        if name == checked:
            yield from ((name, item) for item in store)
            continue
        try:
            with open_data(replace(which, split=name)) as other:
                yield from ((item.split if name is None else name, item) for item in other)
        except PrbenchError as error:
            if name is None:
                yield from ((item.split, item) for item in store)
            unreadable[name or "the rest of the file"] = str(error)


def names_of_splits(which: DataSettings) -> tuple[str, ...]:
    """Return the splits that files or configs are named after; none where the rows' own `split` decides."""
    if not which.source:
        return ()
    return split_names(which.source, subset=which.subset, revision=which.revision)


def split_of(store: ExampleStore, which: DataSettings) -> str:
    """Return the split that was opened, or that the rows name; `all rows` for several or none."""
    if which.split is not None:
        return which.split
    names = names_of_splits(which)
    if names:
        return "test" if "test" in names else names[0]
    named = {item.split for item in store}
    return named.pop() or ALL_ROWS if len(named) == 1 else ALL_ROWS


def split_label(split: str) -> str:
    """Return a split's name; rows may name none."""
    return split or "(no split)"
