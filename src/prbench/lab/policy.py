"""The lab's sentence sampler: a policy that needs no model, for laptops and tests."""

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256

from prbench.backends.policy import Prompt, Sample
from prbench.errors import UsageError
from prbench.lab import SHARES, texts_of_share
from prbench.lab.pairs import POINTS
from prbench.lab.population import load_library, rng
from prbench.schema import Json
from prbench.specs import Spec

RULE = 1  # of drawing: another rule is another policy


def load(spec: Spec, options: None) -> "LabPolicy":
    """Return `lab`."""
    return LabPolicy()


class LabPolicy:
    """Answers a question of the lab with points of its subject, whoever asks: as many as a response of the lab has.

    The points come from the questions' own share of the texts (train, validation or test), over all traits alike.
    """

    name = "lab"

    @property
    def identity(self) -> Mapping[str, Json]:
        """The texts that it draws from, and the rule."""
        texts = "\n".join(f"{question}:{'/'.join(points)}" for question, points in sorted(_points().items()))
        return {"policy": self.name, "rule": RULE, "texts": sha256(texts.encode()).hexdigest()[:12]}

    def sample(self, prompts: Sequence[Prompt], *, n: int, seed: int) -> list[list[Sample]]:
        """Return `n` answers to every prompt; each depends only on the seed, the prompt's id and its own number."""
        found = []
        for prompt in prompts:
            points = _points().get(prompt.question)
            if points is None:
                raise UsageError(
                    f"{prompt.id}: the policy `lab` only answers questions of the lab, and this is none of them: "
                    f"{prompt.question[:80]!r}. Name a language model with --policy."
                )
            drawn = (rng("policy", seed, prompt.id, number).sample(points, POINTS) for number in range(n))
            found.append([Sample(text=" ".join(sentences)) for sentences in drawn])
        return found


@cache
def _points() -> Mapping[str, tuple[str, ...]]:
    """Return the points that may answer each question of the lab."""
    library = load_library()
    found: dict[str, tuple[str, ...]] = {}
    for share in SHARES:
        _, sentences = texts_of_share(library, share, 0)
        for subject in library.subjects:
            traits = (aspect.trait for aspect in subject.aspects)
            points = tuple(point for trait in traits for point in sentences.points[subject.subject, trait])
            found |= dict.fromkeys(sentences.questions[subject.subject], points)
    return found
