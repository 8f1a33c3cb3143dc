"""Planners by name: what `--planner` takes."""

from pathlib import Path

from prbench.backends.llm import LLM, CachedLLM, load_llm
from prbench.context.aspect_planner import WEIGHTS, AspectPlanner, load_aspect_planner
from prbench.errors import UsageError

Planner = LLM | AspectPlanner  # a language model that is asked, or a trained planner on embeddings

_MODEL_FILES = ("adapter_config.json", "config.json")  # of a language model, or of an adapter for one


def load_planner(spec: str, *, seed: int = 0, cache: Path | None = None) -> Planner:
    """Build the planner named by a spec: a folder that was trained here, or any chat model, e.g. `local:smollm2`.

    The replies of a language model are kept in `cache`.
    """
    folder = Path(spec).expanduser()
    if (folder / WEIGHTS).is_file():
        return load_aspect_planner(folder)
    if folder.is_dir() and not any((folder / name).is_file() for name in _MODEL_FILES):
        raise UsageError(f"--planner {spec}: that folder holds no planner. Train one: prbench train --method planner.")
    llm = load_llm(f"hf:{folder}" if folder.is_dir() else spec, seed=seed)
    return CachedLLM(llm, cache) if cache is not None else llm
