"""What could a reader of posts get at most? The Bayes ceiling of the lab, computed from how the lab is made.

    python experiments/lab_ceiling.py --out results/lab/ceiling.json

A reader who knows which trait every post shows, how popular traits are, and how users and posts are drawn, is told a
pair and that its two responses are on traits of which this user wants the one side and not the other. It picks the
side that is more probable given the posts; where both are equally so, it gets half a point. No model of posts and
responses can expect more. `without a post` is the share of pairs on whose traits the user has no post. Seconds.
"""

import argparse
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prbench.lab import DEFAULT_SIZES, make_split
from prbench.lab.population import FEWEST, MOST, POPULARITY, TRAITS, load_library
from prbench.schema import Example

SPLITS = ("test", "test_population")
Wants = frozenset[str]


def main() -> None:
    """Compute and write the ceilings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/lab/ceiling.json"))
    asked = parser.parse_args()
    found = {split: ceiling(list(make_split(split, DEFAULT_SIZES[split]))) for split in SPLITS}
    content = {"command": "python experiments/lab_ceiling.py", **found}
    text = json.dumps(content, indent=1) + "\n"
    asked.out.write_text(text, encoding="utf-8")
    print(text)


def ceiling(rows: Sequence[Example]) -> dict[str, Any]:
    """Return the accuracy of that reader on some pairs, by what posts tell."""
    trait_of = {
        text: aspect.trait
        for subject in load_library().subjects
        for aspect in subject.aspects
        for texts in aspect.signals.values()
        for text in texts
    }
    groups: dict[str, dict[str, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        shown = [trait_of[post.text] for post in row.user.profile if post.text in trait_of]
        right, wrong = (frozenset(row.meta["gold"][side]) for side in ("chosen", "rejected"))
        found = points(posterior(frozenset(shown), len(shown)), right, wrong), not (right | wrong) & set(shown)
        groups["all"][""].append(found)
        groups["informative_posts"][str(len(shown))].append(found)
        for group in ("level", "majority"):
            groups[group][str(row.meta[group])].append(found)
    found_of = {
        group: {name: figure(some[name]) for name in sorted(some, key=lambda name: (len(name), name))}
        for group, some in groups.items()
    }
    return found_of | {"all": found_of["all"][""]}


def points(wants: Mapping[Wants, float], right: Wants, wrong: Wants) -> float:
    """Return what the more probable side scores: 1 where it is the right one, half where neither is."""
    ours, theirs = (
        math.fsum(weight for want, weight in wants.items() if one <= want and not other & want)
        for one, other in ((right, wrong), (wrong, right))
    )
    return 0.5 if math.isclose(ours, theirs) else float(ours > theirs)


def posterior(shown: Wants, posts: int) -> dict[Wants, float]:
    """Return the weight of all that a user may want, given the traits that so many informative posts show.

    Posts show the wanted traits in turn, in an order of equal chance (`prbench.lab.population.draw_user`): all of
    them where there are as many posts, and else any subset of as many with the same chance.
    """
    return {
        want: weight / math.comb(len(want), len(shown))
        for want, weight in prior()
        if shown <= want and len(shown) == min(posts, len(want))
    }


def prior() -> Iterator[tuple[Wants, float]]:
    """Yield all that a user may want, with weights."""
    for many in range(FEWEST, MOST + 1):
        for want in itertools.combinations(TRAITS, many):
            chances = (POPULARITY[trait] if trait in want else 1 - POPULARITY[trait] for trait in TRAITS)
            yield frozenset(want), math.prod(chances)


def figure(found: Sequence[tuple[float, bool]]) -> dict[str, float]:
    """Return accuracy, the share of pairs without a post, and the number of pairs."""
    accuracy, blank = np.array(found, dtype=float).mean(axis=0)
    return {"accuracy": round(float(accuracy), 6), "without a post": round(float(blank), 6), "pairs": len(found)}


if __name__ == "__main__":
    main()
