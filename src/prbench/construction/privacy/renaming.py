"""Old ids in texts become new ones: each where it stands as a word of its own, in capitals or not."""

import re
from collections.abc import Callable, Iterable, Mapping

from prbench.construction.privacy.pseudonyms import Pseudonyms

SHORTEST_ID = 4  # shorter ids, and numbers, stand in too many texts by chance
_WORD = re.compile(r"\w+")


class Renaming:
    """Replaces ids in texts. One that no text can be searched for is replaced only where it is the whole text."""

    def __init__(self, names: Mapping[str, str], is_searched: Callable[[str], bool] | None = None) -> None:
        """`names` has the new id of each old one; `is_searched` tells which old ones are looked for in texts."""
        self._whole = dict(names)
        self._by_word: dict[str, list[tuple[str, str]]] = {}
        for old, new in sorted(names.items(), key=lambda pair: len(pair[0]), reverse=True):
            core = re.sub(r"^\W+", "", old).lower()
            if can_be_searched(old) and core and (is_searched is None or is_searched(old)):
                self._by_word.setdefault(_first_word(core), []).append((core, new))

    def __call__(self, text: str) -> str:
        """Return the text with new ids; the longest old id that fits is taken."""
        if text in self._whole:
            return self._whole[text]
        pieces, end = [], 0
        for word in _WORD.finditer(text) if self._by_word else ():
            for old, new in self._by_word.get(word[0].lower(), ()):
                stop = word.start() + len(old)
                if word.start() >= end and text[word.start() : stop].lower() == old and _ends(text, stop):
                    pieces += [text[end : word.start()], new]
                    end = stop
                    break
        return "".join(pieces) + text[end:]


NOBODY = Renaming({})


def rename_people(ids: Iterable[object], pseudonyms: Pseudonyms | None) -> Renaming:
    """Return the renaming of everybody in a source, for texts in which people mention one another."""
    if pseudonyms is None:
        return NOBODY
    return Renaming({str(one): pseudonyms.name(str(one)) for one in ids if one is not None and one != ""}, is_no_word)


def can_be_searched(old: str) -> bool:
    """True for an id that stands in no text by chance."""
    return len(old) >= SHORTEST_ID and not old.isdecimal()


def is_no_word(old: str) -> bool:
    """True for an id with something else than letters in it: `garden` stands in many texts, `garden_7` in none."""
    return not old.isalpha()


def _first_word(core: str) -> str:
    found = _WORD.match(core)
    return found[0] if found else ""


def _ends(text: str, stop: int) -> bool:
    return stop == len(text) or not _WORD.match(text, stop)
