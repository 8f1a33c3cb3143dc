"""Pseudonyms: names for people that only the holder of a key can connect with their ids, and their way into texts.

Keyed (HMAC-SHA256), so that nobody who guesses an id can check the guess. The key comes from the environment or from a
file beside the build, and goes nowhere else: not into a manifest, a card or a log.
"""

import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from prbench.errors import UsageError

KEY_VARIABLE = "PRBENCH_PSEUDONYM_KEY"
KEY_FILE = "pseudonym.key"
LEAST_KEY = 16  # bytes; a short key can be found by trying all
DIGITS = 12  # hex digits of a pseudonym: 48 bits, so that two of a million people share one in 0.2 % of all builds
SHORTEST_ID = 4  # shorter ids, and numbers, stand in too many texts by chance
_WORD = re.compile(r"\w+")


class Pseudonyms:
    """Names people, posts and items. The same key gives the same names, and another key gives none in common."""

    def __init__(self, key: bytes) -> None:
        if len(key) < LEAST_KEY:
            raise UsageError(f"The pseudonym key has {len(key)} bytes. Use {LEAST_KEY} or more, drawn at random.")
        self._key = key

    def name(self, user_id: str) -> str:
        return f"u_{self._digits('user', user_id)}"

    def post(self, user_id: str, post_id: str) -> str:
        """Return another id for a post: the old one may hold the name of its writer."""
        return f"p_{self._digits('post', user_id, post_id)}"

    def item(self, item_id: str) -> str:
        """Return another id for a row, likewise."""
        return f"i_{self._digits('item', item_id)}"

    @property
    def fingerprint(self) -> str:
        """Eight hex digits by which two keys can be told apart, and from which neither can be found."""
        return self._digits("fingerprint")[:8]

    def __repr__(self) -> str:
        return "Pseudonyms(key=…)"

    def _digits(self, *parts: str) -> str:
        # Each part with its length, so that no two lists of parts make the same message.
        message = b"".join(len(part).to_bytes(8, "big") + part for part in map(str.encode, parts))
        return hmac.new(self._key, message, "sha256").hexdigest()[:DIGITS]


def is_pseudonym(user_id: str) -> bool:
    return re.fullmatch(rf"u_[0-9a-f]{{{DIGITS}}}", user_id) is not None


def load_pseudonyms(folder: Path) -> Pseudonyms:
    """Return pseudonyms by the key of the environment, else by the folder's own, which is made once."""
    if KEY_VARIABLE in os.environ:
        return Pseudonyms(os.environ[KEY_VARIABLE].encode())
    path = folder / KEY_FILE
    if not path.exists():
        _make_key(path)
    return Pseudonyms(_read_key(path))


def find_pseudonyms(folder: Path) -> Pseudonyms | None:
    """Return pseudonyms by the key of the environment or the folder, or None where there is neither yet."""
    if KEY_VARIABLE in os.environ or (folder / KEY_FILE).exists():
        return load_pseudonyms(folder)
    return None


def known_pseudonyms(key_files: Iterable[Path]) -> list[Pseudonyms]:
    """Return pseudonyms by every key at hand: that of the environment, and those of some files."""
    keys = [os.environ[KEY_VARIABLE].encode()] if KEY_VARIABLE in os.environ else []
    return [Pseudonyms(key) for key in [*keys, *map(_read_key, key_files)]]


def _make_key(path: Path) -> None:
    """Draw a key. It takes its name when it is complete; if two processes draw, the first one's key stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    number = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(scratch, path)
        except FileExistsError:
            return
    finally:
        scratch.unlink()


def _read_key(path: Path) -> bytes:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UsageError(f"{path}: other people of this machine may read the key. Run: chmod 600 {path}")
    key = path.read_text(encoding="ascii", errors="replace").strip().encode()
    if len(key) < LEAST_KEY:
        raise UsageError(f"{path}: holds no key. Restore it, or remove the file and build afresh with a new key.")
    return key


class Renaming:
    """Puts new ids for old ones into texts, where the old one stands as a word of its own, in capitals or not.

    An old id that no text can be searched for is replaced only where it is the whole text.
    """

    def __init__(self, names: Mapping[str, str], *, words_too: bool = True) -> None:
        """`names` has the new id of each old one; without `words_too`, no text is searched for ids of letters alone.

        `garden` stands in many texts by chance, `garden_7` in none.
        """
        self._whole = dict(names)
        self._by_word: dict[str, list[tuple[str, str]]] = {}
        for old, new in sorted(names.items(), key=lambda pair: len(pair[0]), reverse=True):
            core = re.sub(r"^\W+", "", old).lower()
            if can_be_searched(old) and core and (words_too or not old.isalpha()):
                first_word = re.split(r"\W", core, maxsplit=1)[0]
                self._by_word.setdefault(first_word, []).append((core, new))

    def __call__(self, text: str) -> str:
        """Return the text with new ids; the longest old id that fits is taken."""
        if text in self._whole:
            return self._whole[text]
        pieces, end = [], 0
        for word in _WORD.finditer(text) if self._by_word else ():
            for old, new in self._by_word.get(word[0].lower(), ()):
                stop = word.start() + len(old)
                is_whole = text[word.start() : stop].lower() == old and not _WORD.match(text, stop)
                if word.start() >= end and is_whole:
                    pieces += [text[end : word.start()], new]
                    end = stop
                    break
        return "".join(pieces) + text[end:]


NOBODY = Renaming({})


def rename_people(ids: Iterable[object], pseudonyms: Pseudonyms | None) -> Renaming:
    """Return the renaming of everybody in a source, for texts in which people mention one another."""
    if pseudonyms is None:
        return NOBODY
    return Renaming(
        {str(one): pseudonyms.name(str(one)) for one in ids if one is not None and one != ""}, words_too=False
    )


def can_be_searched(old: str) -> bool:
    """True for an id that stands in no text by chance."""
    return len(old) >= SHORTEST_ID and not old.isdecimal()
