"""The JSON of a run at the border: checked once, so that nobody meets a missing key later."""

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TypeAlias

from prbench.errors import RunError
from prbench.runs.files import read_json
from prbench.runs.identity import run_id
from prbench.runs.names import BON, EVAL, MANIFEST, SUMMARY
from prbench.schema import Json

Shape: TypeAlias = Mapping[str, "type | tuple[type, ...] | Shape"]  # what stands at a key; a shape within, an object

_EVERY: Shape = {"kind": str, "run_id": str, "config": {}, "facts": {}, "data": {}, "command": str}
_OPTIONAL = (str, NoneType)
_MANIFESTS: Mapping[str, Shape] = {
    EVAL: {
        "facts": {
            "run_id": str,
            "model": str,
            "kind": str,
            "context": str,
            "seed": int,
            "group_by": list,
            "data": {"name": str, "hash": str, "rows": int},
        },
        "data": {
            "source": _OPTIONAL,
            "subset": _OPTIONAL,
            "split": _OPTIONAL,
            "revision": _OPTIONAL,
            "limit": (int, NoneType),
            "skip_bad_rows": (int, NoneType),
        },
    },
}
_SUMMARIES: Mapping[str, Shape] = {
    EVAL: {"run_id": str, "model": str, "context": str, "n_items": int, "data": {"hash": str}},
    BON: {"n": int, "models": {}},
}


def read_manifest(folder: Path, what: str = "run") -> dict[str, Json]:
    """Return what a run says that it is. Its configuration is whole, for the run's id is a hash of it."""
    path = folder / MANIFEST
    manifest = read_json(path, what)
    require(path, manifest, _EVERY)
    if run_id(manifest["config"]) != manifest["run_id"]:
        raise RunError(f"{path}: its config is not the one that its run_id names. Restore the file, or use --fresh.")
    return manifest


def require_facts(folder: Path, manifest: Mapping[str, Json]) -> None:
    """Refuse a manifest that lacks what readers of its kind of run need."""
    path = folder / MANIFEST
    require(path, manifest, _MANIFESTS.get(manifest["kind"], {}))
    if not all(isinstance(name, str) for name in manifest["facts"].get("group_by", ())):
        raise _damaged(path, "facts.group_by")


def read_summary(folder: Path, kind: str) -> dict[str, Json]:
    """Return what came out of a run of this kind."""
    summary = read_json(folder / SUMMARY)
    require(folder / SUMMARY, summary, _SUMMARIES.get(kind, {}))
    return summary


def require(path: Path, content: Mapping[str, Json], shape: Shape, within: str = "") -> None:
    """Refuse the content of a file that is not of a shape."""
    for key, wanted in shape.items():
        found = content.get(key)
        if isinstance(wanted, Mapping):
            if not isinstance(found, dict):
                raise _damaged(path, f"{within}{key}")
            require(path, found, wanted, f"{within}{key}.")
        elif not isinstance(found, wanted):
            raise _damaged(path, f"{within}{key}")


def _damaged(path: Path, key: str) -> RunError:
    return RunError(f"{path}: its `{key}` is missing or damaged. Restore the file, or use --fresh.")
