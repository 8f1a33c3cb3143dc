"""Result files that others publish: which column is the score, and how subsets are weighed into one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prbench.schema import Json

# RewardBench weighs subsets by their examples within a section and sections equally; maths counts as much as code.
REWARDBENCH_SECTIONS: Mapping[str, Mapping[str, int]] = {
    "chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "chat_hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "reasoning": {
        "math-prm": 984,
        "hep-cpp": 164,
        "hep-go": 164,
        "hep-java": 164,
        "hep-js": 164,
        "hep-python": 164,
        "hep-rust": 164,
    },
}
SUBSETS = frozenset(subset for section in REWARDBENCH_SECTIONS.values() for subset in section)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a published table is known, and which column ranks its models."""

    name: str
    needs: frozenset[str]  # columns that only this table has together
    score: str


LAYOUTS = (
    Layout(name="RewardBench 2", needs=frozenset({"average", "factuality", "precise_if", "focus"}), score="average"),
    Layout(name="RM-Bench", needs=frozenset({"overall", "easy", "normal", "hard"}), score="overall"),
    Layout(name="RewardBench", needs=SUBSETS | {"overall"}, score="overall"),
)


def layout_of(columns: Sequence[str]) -> Layout | None:
    """Return whose table this is."""
    return next((layout for layout in LAYOUTS if layout.needs <= set(columns)), None)


def is_rewardbench(rows: Json) -> bool:
    """True for RewardBench's own JSON: a list of models with their subsets."""
    return (
        isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) and row.keys() >= SUBSETS for row in rows)
    )


def with_sections(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return a row of RewardBench with its section scores and their mean, `overall`; without gaps in the subsets."""
    sections = {
        name: sum(count * float(row[subset]) for subset, count in subsets.items()) / sum(subsets.values())
        for name, subsets in REWARDBENCH_SECTIONS.items()
    }
    return {**row, **sections, "overall": sum(sections.values()) / len(sections)}
