"""People's own words: pseudonyms for who wrote them, and masks for what tells it."""

from prbench.construction.privacy.names import PresidioNames, load_names
from prbench.construction.privacy.pseudonyms import (
    KEY_FILE,
    KEY_VARIABLE,
    Pseudonyms,
    Renaming,
    find_pseudonyms,
    is_pseudonym,
    known_pseudonyms,
    load_pseudonyms,
    rename_people,
)
from prbench.construction.privacy.redact import COLUMNS, clean_row, redact, redact_all

__all__ = [
    "COLUMNS",
    "KEY_FILE",
    "KEY_VARIABLE",
    "PresidioNames",
    "Pseudonyms",
    "Renaming",
    "clean_row",
    "find_pseudonyms",
    "is_pseudonym",
    "known_pseudonyms",
    "load_names",
    "load_pseudonyms",
    "redact",
    "redact_all",
    "rename_people",
]
