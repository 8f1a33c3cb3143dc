"""What is known of one plan: what was planned, what was wanted, and which of the two say the same."""

from dataclasses import asdict, dataclass

import numpy as np

from prbench.schema import BROKEN, Json

Pair = tuple[int, int]  # positions of a planned and of a wanted aspect


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Which planned aspects say the same as which wanted ones; `None` where nobody could tell."""

    pairs: tuple[Pair, ...] | None
    problem: str = ""  # why nobody could tell
    raw: str = ""

    @property
    def matched(self) -> int:
        """The most pairs in which no aspect stands twice: a vague plan must not count for everything."""
        return matched(self.pairs or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One question of one user."""

    id: str
    user_id: str
    category: str
    wanted: tuple[str, ...]
    planned: tuple[str, ...]
    problem: str = ""  # why there is no plan
    detail: str = ""
    judged: Matching | None = None  # by a language model
    truth: Matching | None = None  # by the lab's own traits
    read: tuple[str, ...] = ()  # the trait that each planned aspect is about, "" for none; lab only

    @property
    def has_failed(self) -> bool:
        """True if a request to the planner or to the judge broke, so that there is nothing to say about the plan."""
        return self.problem in BROKEN or (self.judged is not None and self.judged.problem in BROKEN)

    def as_json(self) -> dict[str, Json]:
        """Return the row as it stands in the file."""
        row: dict[str, Json] = asdict(self)
        return {name: value for name, value in row.items() if value is not None}


def matched(pairs: tuple[Pair, ...]) -> int:
    """Return the size of the largest one-to-one matching (Hopcroft and Karp 1973, by scipy)."""
    if not pairs:
        return 0
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    planned, wanted = np.array(pairs).T
    graph = coo_array((np.ones(len(pairs)), (planned, wanted))).tocsr()
    return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())
