"""Datasets that have a name of their own: `lab`, `python:…`, and those of other packages."""

from collections.abc import Iterable, Mapping

from prbench.backends.own_code import each_of, load_python
from prbench.errors import UsageError
from prbench.registry import DATASETS, PYTHON, Kind
from prbench.schema import Example, Json, RatedExample
from prbench.specs import Spec, kind_of, parse_spec

Rows = Iterable[Example | RatedExample | Mapping[str, Json]]


def is_named(source: str) -> bool:
    """Tell a dataset of that kind from a file, a folder or a hub id; a folder `lab` is `./lab`."""
    return kind_of(source) in DATASETS.names


def kind_of_dataset(source: str) -> Kind | None:
    """Return the row of a named dataset; `None` for a file, a folder or a hub id."""
    return DATASETS.find(kind_of(source)) if is_named(source) else None


def named_rows(source: str, split: str | None) -> tuple[Kind, Rows]:
    """Return the kind of a named dataset, and its rows."""
    spec = parse_spec(source, DATASETS)
    kind = DATASETS.find(spec.kind)
    rows = kind.make(spec, kind.read_options(spec), split, needs=Iterable)
    return kind, each_of(rows, spec) if kind.origin or kind.name == PYTHON else rows


def load_own(spec: Spec, options: None, split: str | None) -> Rows:
    """Return `python:package.module:Factory`: what the factory makes, if it can be gone through."""
    made = load_python(spec)
    if not isinstance(made, Iterable) or isinstance(made, str | bytes):
        raise UsageError(f"{spec.text}: made a {type(made).__name__}, and rows are a list of examples or of mappings.")
    return made
