"""The spec of a model that lies in a folder, so that the folder may be moved."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prbench.registry import MODELS, POLICIES
from prbench.specs import format_spec, kind_of, parse_spec


@dataclass(frozen=True, kw_only=True)
class SpecParts:
    """The spec of a trained model without the folder, which may be moved."""

    kind: str
    options: Mapping[str, str]
    inside: Mapping[str, str]  # options that name something in the folder: the path from there

    def at(self, folder: Path) -> str:
        """Return the spec of the model in that folder."""
        options = {**self.options, **{name: str(folder / inside) for name, inside in self.inside.items()}}
        return format_spec(self.kind, str(folder), options)


def take_apart(spec: str, folder: Path) -> SpecParts:
    """Return the parts of `kind:FOLDER?name=value&…`, the spec of a model in that folder."""
    parsed = parse_spec(spec, MODELS if kind_of(spec) in MODELS.names else POLICIES)  # training makes either
    if parsed.target != str(folder):
        raise ValueError(f"{spec!r} is not the spec of a model in {folder}")
    options: dict[str, str] = {}
    inside: dict[str, str] = {}
    for name, value in parsed.options.items():
        if Path(value).is_relative_to(folder) and Path(value).exists():
            inside[name] = Path(value).relative_to(folder).as_posix()
        else:
            options[name] = value
    return SpecParts(kind=parsed.kind, options=options, inside=inside)
