"""The lab's own truth: which of its traits a planned aspect is about, without a language model.

A planned aspect is compared by meaning with the names and reasons of the six aspects of the subject, and with those of
the same traits on every subject. Where the best is not near enough, or not clearly the best, the
reader abstains. `tests/planner` measures how often it is right on aspects written for that.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prbench.backends.encoders import Encoder, load_encoder
from prbench.insight.planner.records import Matching
from prbench.lab.gold import aspect_traits
from prbench.lab.population import load_library
from prbench.schema import Example

# Chosen on every second probe of tests/planner/probes.py; the others measure.
LEAST = 0.30  # nearness of what a planned aspect is taken for
LEAD = 0.03  # and how much nearer it is than the next
OWN_SHARE = 0.3  # of the nearness: to this subject's aspect; the rest is to its trait anywhere
NEAREST = 5  # texts on a trait whose nearness is averaged

Floats = NDArray[np.float64]


class TraitReader:
    """Reads planned aspects. The encoder is loaded when the first one comes."""

    def __init__(self, encoder: Callable[[], Encoder] = load_encoder) -> None:
        self._load_encoder = encoder
        self._known: dict[tuple[str, str], str] = {}

    def read(self, planned: Sequence[str], subject: str) -> list[str]:
        """Return the trait that each planned aspect is about, or ""."""
        new = [text for text in dict.fromkeys(planned) if (subject, text) not in self._known]
        if new:
            for text, vector in zip(new, self._encode(new), strict=True):
                self._known[subject, text] = self._read(vector, subject)
        return [self._known[subject, text] for text in planned]

    def _read(self, vector: Floats, subject: str) -> str:
        here, anywhere = self._vectors
        nearness = {
            trait: OWN_SHARE * float((own @ vector).mean())
            + (1 - OWN_SHARE) * float(np.sort(anywhere[trait] @ vector)[-NEAREST:].mean())
            for trait, own in here[subject].items()
        }
        best, second = sorted(nearness, key=lambda trait: -nearness[trait])[:2]
        is_clear = nearness[best] >= LEAST and nearness[best] - nearness[second] >= LEAD
        return best if is_clear else ""

    @cached_property
    def _vectors(self) -> tuple[dict[str, dict[str, Floats]], dict[str, Floats]]:
        """Name and reason of each aspect by subject and trait, and of all aspects by trait."""
        subjects = load_library().subjects
        aspects = [(subject.subject, aspect) for subject in subjects for aspect in subject.aspects]
        vectors = self._encode([text for _, aspect in aspects for text in (aspect.name, aspect.reason)])
        here: dict[str, dict[str, Floats]] = {}
        anywhere: dict[str, list[Floats]] = {}
        for place, (subject, aspect) in enumerate(aspects):
            both = vectors[2 * place : 2 * place + 2]
            here.setdefault(subject, {})[aspect.trait] = both
            anywhere.setdefault(aspect.trait, []).append(both)
        return here, {trait: np.concatenate(parts) for trait, parts in anywhere.items()}

    def _encode(self, texts: Sequence[str]) -> Floats:
        return np.asarray(self._load_encoder().encode(texts), dtype=np.float64)


def wanted_traits(example: Example) -> tuple[str, ...] | None:
    """Return the traits of a lab example's rubric, in its order; None where somebody has changed the rubric."""
    known = aspect_traits()
    if not example.rubric or any(aspect.aspect not in known for aspect in example.rubric):
        return None
    return tuple(known[aspect.aspect][1] for aspect in example.rubric)


def subject_of(example: Example) -> str:
    """Return the subject of a lab example."""
    return aspect_traits()[example.rubric[0].aspect][0]


def match(read: Sequence[str], wanted: Sequence[str]) -> Matching:
    """Return which planned aspects have the trait of which wanted one."""
    pairs = [(i, j) for i, trait in enumerate(read) for j, other in enumerate(wanted) if trait == other]
    return Matching(pairs=tuple(pairs))
