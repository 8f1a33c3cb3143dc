"""Write the pairs from which a language model learns to write like the lab: a policy that PPO can move.

    python experiments/policy_rows.py --out models/policy-rows

Answers are made of sentences of `validation`, which no reward model learned from, questions and evidence are those of
`train` and `validation`, so that a policy learns to read what it is told, and not 36 questions by heart. No question,
evidence, post or sentence is of `test`; names and reasons of aspects are those of all splits. Written to `--out`:
`heeding.jsonl`, whose pairs differ in all their sentences, so that every sentence of a chosen answer is wanted;
`ordinary.jsonl`, pairs as the lab has them. docs/how-to/ppo.md ("A policy to start from") says what is
learned from which.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from prbench.data.rows import as_row
from prbench.lab import SEED, texts_of_share
from prbench.lab.pairs import POINTS, Sentences, population_pairs
from prbench.lab.population import Users, load_library
from prbench.schema import Example

OWN, OTHER = "validation", "train"
USERS = 4000
HEEDING, ORDINARY = 8000, 4000  # pairs
OTHERS = 11  # people of their own


def main() -> None:
    """Draw both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs=2, default=(HEEDING, ORDINARY), metavar=("HEEDING", "ORDINARY"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    heeding, ordinary = asked.pairs
    drawn = draw(4 * heeding, "heeding")  # about a third of which differ in all sentences
    differing = [row for row in drawn if row.meta["aspects_differ"] == POINTS]
    write(asked.out / "heeding.jsonl", islice(differing, heeding))
    write(asked.out / "ordinary.jsonl", draw(ordinary, "ordinary"))


def draw(pairs: int, name: str) -> list[Example]:
    """Draw pairs by the population's rule, with the sentences of one split and the questions of two."""
    library = load_library()
    words, own = texts_of_share(library, OWN, 0)
    _, other = texts_of_share(library, OTHER, 0)
    sentences = Sentences(
        questions={subject: [*own.questions[subject], *other.questions[subject]] for subject in own.questions},
        points=own.points,
        evidence={place: [*own.evidence[place], *other.evidence[place]] for place in own.evidence},
        rambling=own.rambling,
    )
    users = Users(USERS, name, SEED + OTHERS, words)
    return list(population_pairs(users, library.subjects, sentences, name, pairs, SEED + OTHERS))


def write(path: Path, rows: Iterable[Example]) -> None:
    """Write rows with one post of each profile: the policy is told rubrics instead."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            short = replace(row, split="train", user=replace(row.user, profile=row.user.profile[:1]))
            file.write(json.dumps(as_row(short), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
