"""Code of a user's own: `python:package.module:Factory?key=value` for a model, a policy, a judge or a dataset.

What goes wrong there is the user's to mend: one line that names the spec, with the error itself as its cause.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar

from prbench.errors import UsageError, in_one_line
from prbench.schema import Json
from prbench.specs import Spec, call

T = TypeVar("T")


def load_python(spec: Spec) -> Any:
    """Return what `python:package.module:Factory?key=value` makes: `Factory(key=value)`."""
    module, _, name = spec.target.partition(":")
    if not module or not name:
        raise UsageError(f"{spec.text}: write python:package.module:Factory, a class or a function that makes it.")
    if module.startswith("."):
        raise UsageError(f"{spec.text}: {module} begins with a dot. Write the module's whole name.")
    with in_one_line(f"{spec.text}: importing {module} raised"):
        try:
            found: Any = import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
                raise  # the module is there, and something that it imports is not
            line = f"there is no module {error.name}. Install its package, or put its folder into PYTHONPATH."
            raise UsageError(f"{spec.text}: {line}") from error
        try:
            found = attrgetter(name)(found)
        except AttributeError as error:
            raise UsageError(f"{spec.text}: {error}. Check the name.") from error
    if not callable(found):
        raise UsageError(f"{spec.text}: {name} is a {type(found).__name__}, and cannot be called. Name a factory.")
    with asking(spec, name):
        return call(found, spec.options, where=spec.text)


def asking(spec: Spec | None, what: str) -> AbstractContextManager[None]:
    """Tell in one line what a user's `what` raises, e.g. `score`; an object without a spec is left alone."""
    return in_one_line(f"{spec.text}: {what} raised") if spec else nullcontext()


def each_of(items: Iterable[T], spec: Spec) -> Iterator[T]:
    """Yield what a user's code makes one after the other; what it raises on the way is one line."""
    with asking(spec, "the iteration"):
        found = iter(items)
    while True:
        with asking(spec, "the iteration"):
            try:
                item = next(found)
            except StopIteration:
                return
        yield item


def identity_of(spec: Spec, own: object) -> dict[str, Json]:
    """Return what names an object of a user's own: what it says of itself, and how it was made.

    The factory and its options are part of it, for an object that says nothing of them is another one all the same.
    """
    if not isinstance(own, Mapping):
        fact = f"its identity is a {type(own).__name__}"
        raise UsageError(f"{spec.text}: {fact}. Make it a mapping of all that changes what it returns.")
    made_by: dict[str, Json] = {"factory": spec.target}
    if spec.options:
        made_by["options"] = dict(spec.options)
    return plain_identity(spec.text, {**own, "made_by": made_by})


def plain_identity(name: str, identity: Mapping[str, Json]) -> dict[str, Json]:
    """Return an identity as it reads when it comes back from a file; what no file holds is refused."""

    def as_dict(found: object) -> dict[str, Json]:  # of a read-only mapping, for one
        if isinstance(found, Mapping):
            return dict(found)
        raise TypeError(f"{type(found).__name__} is not JSON")

    try:
        text = json.dumps(identity, default=as_dict, sort_keys=True, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        fact = f"its identity cannot be written as JSON ({error})"
        raise UsageError(f"{name}: {fact}. Make it of texts, finite numbers, lists and mappings.") from error
    found: dict[str, Json] = json.loads(text)
    return found
