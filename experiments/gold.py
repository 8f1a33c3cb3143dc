"""Measure the gold instrument on sentences that it does not know.

    python experiments/gold.py

`gold_probes/` has sentences written for this measurement: points reworded by an editor, points cut short, two points
merged into one sentence, points turned into their opposite (`reversed`), new points, sentences on the subject that
serve no aspect (`on_topic`), and sentences on other subjects (`foreign`). The lab's neutral posts are read as well,
and its points with their words in disorder (`salad`). Neutral and foreign sentences are read once for each subject,
as if they stood in an answer on it.

The thresholds in `prbench.lab.gold` were chosen on every second subject (`chosen on`), and the figures that count are
those of the others (`measured on`). Half a minute on 2 cores.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from prbench.lab.gold import GoldInstrument, Point
from prbench.lab.population import load_library

PROBES = Path(__file__).parent / "gold_probes"
RESULTS = Path(__file__).parent / "results" / "gold.json"
Aspect = tuple[str, str]  # subject and trait


@dataclass(frozen=True)
class Probe:
    """One sentence, and the aspects that it serves."""

    kind: str
    subject: str  # that the instrument is asked about
    text: str
    serves: frozenset[Aspect]


def probes() -> Iterator[Probe]:
    """Yield the sentences written for this measurement, and the lab's own."""
    reversed_advice = yaml.safe_load((PROBES / "reversed.yaml").read_text(encoding="utf-8"))["reversed"]
    for subject in load_library().subjects:
        for aspect in subject.aspects:
            salad = aspect.points[0].rstrip(".").split()
            dice = random.Random(salad[0])
            text = " ".join(dice.sample(salad, len(salad)))
            yield Probe("salad", subject.subject, f"{text}.", frozenset())
            for point in aspect.points:
                yield Probe("lab", subject.subject, point, frozenset({(subject.subject, aspect.trait)}))
        content = yaml.safe_load((PROBES / f"{subject.subject}.yaml").read_text(encoding="utf-8"))
        for kind in ("edited", "shortened", "merged", "novel", "on_topic"):
            for entry in content[kind]:
                traits = entry.get("traits") or ([entry["trait"]] if "trait" in entry else [])
                serves = frozenset((subject.subject, trait) for trait in traits)
                yield Probe(kind, subject.subject, entry["text"], serves)
        for entry in reversed_advice:
            if entry["subject"] == subject.subject:
                yield Probe("reversed", subject.subject, entry["text"], frozenset())
        for post in load_library().neutral:
            yield Probe("neutral", subject.subject, post, frozenset())
        for text in yaml.safe_load((PROBES / "foreign.yaml").read_text(encoding="utf-8"))["foreign"]:
            yield Probe("foreign", subject.subject, text, frozenset())


def confusion(read: Mapping[Probe, tuple[Point, ...]]) -> dict[str, dict[str, float]]:
    """Return, per kind of sentence, how often the reading is right, partly right, wrong, or absent."""
    result: dict[str, dict[str, float]] = {}
    for kind in dict.fromkeys(probe.kind for probe in read):
        outcomes = [_outcome(probe, points) for probe, points in read.items() if probe.kind == kind]
        counts = {name: outcomes.count(name) for name in ("right", "part", "wrong", "abstained")}
        result[kind] = {"n": len(outcomes)} | {name: round(count / len(outcomes), 4) for name, count in counts.items()}
    return result


def _outcome(probe: Probe, points: tuple[Point, ...]) -> str:
    found = {(point.subject, point.trait) for point in points}
    if not found:
        return "abstained" if probe.serves else "right"
    if found == probe.serves:
        return "right"
    return "part" if found < probe.serves else "wrong"


def measure() -> dict[str, dict[str, dict[str, float]]]:
    """Read all probes and sum up, apart for the subjects that thresholds were chosen on and for the others."""
    instrument = GoldInstrument()
    by_subject: dict[str, list[Probe]] = {}
    for probe in probes():
        by_subject.setdefault(probe.subject, []).append(probe)
    read: dict[str, dict[Probe, tuple[Point, ...]]] = {}
    for subject, group in by_subject.items():
        points = instrument.read([probe.text for probe in group], subject)
        read[subject] = dict(zip(group, points, strict=True))
    subjects = sorted(by_subject)
    return {
        "chosen on": confusion({probe: points for name in subjects[::2] for probe, points in read[name].items()}),
        "measured on": confusion({probe: points for name in subjects[1::2] for probe, points in read[name].items()}),
    }


def main() -> None:
    """Measure, print and record."""
    result = measure()
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for part, kinds in result.items():
        print(f"{part}:")
        for kind, shares in kinds.items():
            figures = "  ".join(f"{name} {100 * share:5.1f} %" for name, share in shares.items() if name != "n")
            print(f"  {kind:<10} n {shares['n']:>4}  {figures}")


if __name__ == "__main__":
    main()
