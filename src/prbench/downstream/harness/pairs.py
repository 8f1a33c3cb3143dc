"""The pairs of a dataset under some probes, each with what may be known of its user: where every harness begins."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from prbench.context import PromptWindow
from prbench.data import open_data, select_rows
from prbench.errors import UsageError
from prbench.evaluation import EvalSettings, context_maker
from prbench.evaluation.score import PreparedItem, pending_items, prepare
from prbench.evaluation.settings import read_probes
from prbench.schema import Json

# A harness knows the window of its model, and we do not: everything that `posts` asks for is shown.
UNBOUNDED = PromptWindow(count_tokens=lambda user: 0, limit=None)


class PairOptions(BaseModel):
    """Which pairs, under which probes, and what is told of the user: the options of `prbench eval`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    data: str = "lab"
    subset: str | None = None
    split: str | None = None
    limit: int | None = None
    context: str = "profile"
    posts: int = 10
    rank: str = "recent"
    planner: str = ""
    probes: list[str] = ["own"]
    seed: int = 0

    @property
    def settings(self) -> EvalSettings:
        """How a model is asked."""
        return EvalSettings(
            context=self.context,
            posts=self.posts,
            rank=self.rank,
            planner=self.planner,
            probes=read_probes(["own", *self.probes]),
            seed=self.seed,
        )


def read_options(given: Mapping[str, Json], where: str) -> PairOptions:
    """Return the options that a harness passes on, or refuse the first wrong one."""
    try:
        return PairOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, known = ".".join(map(str, first["loc"])), ", ".join(PairOptions.model_fields)
        raise UsageError(f"{where}: {name or 'options'}: {first['msg']}. The options are: {known}.") from None


def prepared_pairs(options: PairOptions) -> list[PreparedItem]:
    """Return every pair under every probe asked for; one without another user to swap with has no swap.

    The rows are limited before they are swapped, as `prbench eval --limit` does; a harness's own limit comes after.
    """
    which = select_rows(options.data, subset=options.subset, split=options.split, limit=options.limit)
    settings = options.settings
    with open_data(which) as store:
        if store.kind == "rated":
            raise UsageError(f"{options.data}: holds rated responses, and this task compares pairs. Give pairs.")
        pending = pending_items(store, range(len(store)), settings, frozenset())
        wanted = [item for item in pending if item.probe in options.probes]
        return prepare(wanted, context_maker(settings, None), UNBOUNDED)
