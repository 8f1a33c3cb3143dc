"""Our own format: `Result: A`, `Score: 8`, as `prbench.prompts.replies` reads them."""

from prbench.prompts.formats import ReplyFormat
from prbench.prompts.replies import read_pick, read_score
from prbench.specs import Spec


def load(spec: Spec, options: None) -> ReplyFormat:
    """Return `result`."""
    return ReplyFormat(pick=read_pick, score=read_score, has_ties=True)
