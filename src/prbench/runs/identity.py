"""What names a run: declared keys that outlive the names in the code, a hash over them, and how two of them differ."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from prbench.schema import NOTHING, Json

_LONGEST = 40  # characters of a value that a difference shows


@dataclass(frozen=True, init=False)
class Keys:
    """The keys under which the fields of a record take part in a run's identity, each with the value that is left out.

    They are literal and stay: a renamed field keeps its key (`named`), a new field brings the value that it had before
    it existed, and a default that changes leaves its old value here. So none of these gives a run another id.
    """

    needed: tuple[str, ...]  # always written
    left_out: Mapping[str, Json]  # written unless they have this value
    fields: Mapping[str, str]  # key -> field, where the two differ

    def __init__(self, *needed: str, **left_out: Json) -> None:
        object.__setattr__(self, "needed", needed)
        object.__setattr__(self, "left_out", MappingProxyType({key: _plain(each) for key, each in left_out.items()}))
        object.__setattr__(self, "fields", NOTHING)

    def plus(self, **left_out: Json) -> "Keys":
        """Return these keys and some more."""
        more = Keys(*self.needed, **{**self.left_out, **left_out})
        object.__setattr__(more, "fields", self.fields)
        return more

    def named(self, **fields: str) -> "Keys":
        """Return these keys, some of them standing for fields of another name: `named(posts="n_posts")`."""
        same = self.plus()
        object.__setattr__(same, "fields", MappingProxyType({**self.fields, **fields}))
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
            yield f"{prefix}{key} ({_shown(one) if key in old else 'its default'})"


def _plain(value: Json) -> Json:
    """Return a value as it reads when it comes back from a file."""
    return json.loads(json.dumps(value.to_config() if hasattr(value, "to_config") else value))


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
