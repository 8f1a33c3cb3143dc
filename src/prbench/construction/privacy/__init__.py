"""People's own words: pseudonyms for who wrote them, and masks for what tells it."""

from prbench.construction.privacy.names import find_names
from prbench.construction.privacy.presidio import PresidioNames, has_presidio, load_presidio
from prbench.construction.privacy.pseudonyms import (
    KEY_FILE,
    KEY_VARIABLE,
    Pseudonyms,
    find_pseudonyms,
    is_pseudonym,
    known_pseudonyms,
    load_pseudonyms,
)
from prbench.construction.privacy.redact import NameFinder, Redacted, redact, redact_all
from prbench.construction.privacy.renaming import Renaming, rename_people
from prbench.construction.privacy.rows import CleanRow, clean_row

__all__ = [
    "KEY_FILE",
    "KEY_VARIABLE",
    "CleanRow",
    "NameFinder",
    "PresidioNames",
    "Pseudonyms",
    "Redacted",
    "Renaming",
    "clean_row",
    "find_names",
    "find_pseudonyms",
    "is_pseudonym",
    "known_pseudonyms",
    "load_names",
    "load_pseudonyms",
    "redact",
    "redact_all",
    "rename_people",
]


def load_names() -> tuple[NameFinder, str]:
    """Return what finds names, and what to call it: Presidio where it is installed, patterns elsewhere."""
    if has_presidio():
        presidio = load_presidio()
        return presidio, presidio.name
    return find_names, "patterns"
