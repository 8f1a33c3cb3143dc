"""What a run says that it is: the keys that name it, what computed it, and the shape of its JSON.

A manifest is checked once, when it is read, so that nobody meets a missing key later.
"""

import json
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import NoneType
from typing import ClassVar, Self, TypeAlias

from prbench.errors import RunError, shortened
from prbench.runs.files import BON, EVAL, MANIFEST, SUMMARY, read_json
from prbench.schema import NOTHING, Json

# What scores or texts may hang on; listed where it was loaded, and never imported for this.
PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "vllm",
    "xllamacpp",
    "gguf",
    "openai",
    "ray",
    "numpy",
    "bm25s",
)


def environment(**known: Json) -> dict[str, Json]:
    """Return what computes here; `known` is what only the caller knows, e.g. which model a server says it has."""
    found: dict[str, Json] = {"prbench": version("prbench"), "python": platform.python_version()}
    for name in PACKAGES:
        if name in sys.modules:
            with suppress(PackageNotFoundError):  # a module of that name that no package brought
                found[name] = version(name)
    torch, device = sys.modules.get("torch"), "cpu"  # the accelerator that loaded packages would use
    if torch and torch.cuda.is_available():
        device = f"cuda ({torch.cuda.get_device_name()})"
    elif torch and torch.backends.mps.is_available():
        device = "mps"
    found |= {
        "system": platform.system(),
        "processor": platform.machine(),
        "device": device,
        "git": _commit(Path.cwd()),
    }
    return {name: value for name, value in {**found, **known}.items() if value not in (None, "", {})}


def _commit(folder: Path) -> str | None:
    """Return the commit that is checked out where the command runs, read from git's files."""
    try:
        top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
        if top is None:
            return None
        git = top / ".git"
        if git.is_file():  # a worktree
            git = top / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        # A worktree has a HEAD of its own, and the branches of the repository that it belongs to.
        common = git / (git / "commondir").read_text(encoding="utf-8").strip() if (git / "commondir").exists() else git
        if (common / name).exists():
            return (common / name).read_text(encoding="utf-8").strip()
        packed = (common / "packed-refs").read_text(encoding="utf-8").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
    except (OSError, ValueError):
        return None


_LONGEST = 40  # characters of a value that a difference shows


class Keys:
    """The keys under which the fields of a record take part in a run's identity, each with the value that is left out.

    They are literal and stay: a renamed field keeps its key (`named`), a new field brings the value that it had before
    it existed, and a default that changes leaves its old value here. So none of these gives a run another id.
    """

    def __init__(self, *needed: str, **left_out: Json) -> None:
        self.needed = needed  # always written
        self.left_out = {key: _plain(each) for key, each in left_out.items()}  # written unless they have this value
        self.fields: Mapping[str, str] = NOTHING  # key -> field, where the two differ

    def plus(self, **left_out: Json) -> "Keys":
        """Return these keys and some more."""
        more = Keys(*self.needed, **{**self.left_out, **left_out})
        more.fields = self.fields
        return more

    def named(self, **fields: str) -> "Keys":
        """Return these keys, some of them standing for fields of another name: `named(posts="n_posts")`."""
        same = self.plus()
        same.fields = {**self.fields, **fields}
        return same

    def values(self, record: object) -> dict[str, Json]:
        """Return all that a record says, by key."""
        names = (*self.needed, *self.left_out)
        return {name: _plain(getattr(record, self.fields.get(name, name))) for name in names}

    def write(self, record: object) -> dict[str, Json]:
        """Return what a record says, by key, without what is left out."""
        return {
            name: value
            for name, value in self.values(record).items()
            if name in self.needed or value != self.left_out[name]
        }

    def read(self, config: Mapping[str, Json]) -> dict[str, Json]:
        """Return the fields that were written, those left out among them; other keys are not for this record."""
        found = {**self.left_out, **{key: config[key] for key in self.needed if key in config}}
        found |= {key: value for key, value in config.items() if key in self.left_out}
        return {self.fields.get(key, key): value for key, value in found.items()}


class Keyed:
    """Base of dataclasses of settings that take part in the identity of a run."""

    KEYS: ClassVar[Keys]

    def to_config(self) -> dict[str, Json]:
        """Return what takes part in the identity of a run."""
        return self.KEYS.write(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Json]) -> Self:
        """Return the settings of a run."""
        return cls(**cls.KEYS.read(config))


def run_id(config: Mapping[str, Json]) -> str:
    """Return the name of the run: a hash of everything that can change its results."""
    return sha256(json.dumps(config, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:12]


def differences(old: Mapping[str, Json], new: Mapping[str, Json], prefix: str = "") -> Iterator[str]:
    """Yield where two configurations differ, with the old value: `settings.seed (3)`."""
    for key in sorted(old.keys() | new.keys()):
        one, other = old.get(key), new.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from differences(one, other, f"{prefix}{key}.")
        elif one != other or (key in old) != (key in new):
            was = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
            yield f"{prefix}{key} ({shortened(was, _LONGEST) if key in old else 'its default'})"


def _plain(value: Json) -> Json:
    """Return a value as it reads when it comes back from a file."""
    return json.loads(json.dumps(value.to_config() if hasattr(value, "to_config") else value))


RESTORE = "Restore the file, or use --fresh."
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
            "resample": str,
            "max_failed": (int, float),
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


def read_manifest(folder: Path, what: str = "run", remedy: str = RESTORE) -> dict[str, Json]:
    """Return what a run says that it is. Its configuration is whole, for the run's id is a hash of it."""
    path = folder / MANIFEST
    manifest = read_json(path, what)
    require(path, manifest, _EVERY, remedy=remedy)
    if run_id(manifest["config"]) != manifest["run_id"]:
        raise RunError(f"{path}: its config is not the one that its run_id names. {remedy}")
    return manifest


def require_facts(folder: Path, manifest: Mapping[str, Json], remedy: str = RESTORE) -> None:
    """Refuse a manifest that lacks what readers of its kind of run need."""
    path = folder / MANIFEST
    require(path, manifest, _MANIFESTS.get(manifest["kind"], {}), remedy=remedy)
    if not all(isinstance(name, str) for name in manifest["facts"].get("group_by", ())):
        raise _damaged(path, "facts.group_by", remedy)


def read_summary(folder: Path, kind: str) -> dict[str, Json]:
    """Return what came out of a run of this kind."""
    summary = read_json(folder / SUMMARY)
    require(folder / SUMMARY, summary, _SUMMARIES.get(kind, {}))
    return summary


def require(path: Path, content: Mapping[str, Json], shape: Shape, within: str = "", *, remedy: str = RESTORE) -> None:
    """Refuse the content of a file that is not of a shape."""
    for key, wanted in shape.items():
        found = content.get(key)
        if isinstance(wanted, Mapping):
            if not isinstance(found, dict):
                raise _damaged(path, f"{within}{key}", remedy)
            require(path, found, wanted, f"{within}{key}.", remedy=remedy)
        elif not isinstance(found, wanted):
            raise _damaged(path, f"{within}{key}", remedy)


def _damaged(path: Path, key: str, remedy: str) -> RunError:
    return RunError(f"{path}: its `{key}` is missing or damaged. {remedy}")
