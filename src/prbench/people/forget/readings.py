"""What a text says in all the ways it may be written: escapes, encodings, and texts inside texts.

An id hides in `%22anna%5Fk%22`, in `&#97;nna_k`, in base64 or hexadecimal digits, between zero-width letters or NULs,
or in another Unicode form. A search reads them all; what is packed inside a text is handed to the reader of files.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

DEEPEST = 4  # escapes in escapes, texts in texts
_CODE = re.compile(r"\\+(?:u\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\+([nrtbf\"'/]|$)")
_QUOTED_PRINTABLE = re.compile(r"(?:=[0-9A-F]{2})+|=\r?\n")
_INVISIBLE = re.compile("[\x00\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_DOUBLED = re.compile(r"([\"'])\1")
_WRAPPED = re.compile(r"(?<=[A-Za-z0-9+/]{60})\r?\n(?=[A-Za-z0-9+/=])")  # a line break inside base64, as in mails
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){4,}")
# How the digits of a packed text begin: gzip, bzip2, xz, zip, zlib and what cannot be opened here.
_PACKED = re.compile(
    r"(?<![A-Za-z0-9+/])(?:(?:H4sI|QlpoO|/Td6WFo|UEsDB|eJ[wy]|eNo|eAE|eF4|KLUv/|N3q8rycc|UmFyIR)[A-Za-z0-9+/]{16,}={0,2}"
    r"|(?i:1f8b08|425a6839|fd377a585a00|504b0304|789c|78da|28b52ffd|377abcaf271c|526172211a07)(?:[0-9a-fA-F]{2}){16,})"
)
_URL_SAFE = str.maketrans("-_", "+/")
_LETTERS = re.compile(rb"[A-Za-z0-9_.@-]{4}")


def normal(text: str) -> str:
    """Return a text in the one Unicode form in which texts are compared (NFKC), without invisible characters."""
    text = _INVISIBLE.sub("", text)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def readings(text: str) -> Iterator[str]:
    """Yield the text as it stands, and what it says once its escapes and codes are resolved; each reading once."""
    seen: set[str] = set()
    waiting = [text]
    for _ in range(DEEPEST):
        found: list[str] = []
        for one in waiting:
            for reading in _plainer(one):
                if reading and reading not in seen:
                    seen.add(reading)
                    yield reading
                    inner = "\n".join(_letters(code) for code in coded(reading))
                    found += [inner] if inner.strip() else []
        waiting = found


def _plainer(text: str) -> Iterator[str]:
    """Yield a text, and what is left of it after each layer of escapes."""
    for _ in range(DEEPEST):
        yield text
        plain = _unescaped(text)
        if plain == text:
            return
        text = plain


def _unescaped(text: str) -> str:
    """Resolve one layer of every sort of escape that the text holds."""
    text = normal(text)
    if "%" in text:
        text = unquote(text, errors="replace")
    if "\\" in text:
        text = _ESCAPE.sub(lambda found: _CONTROLS.get(found[1], found[1]), _CODE.sub(_character, text))
    if "&" in text:
        text = html.unescape(text)
    if "=" in text:
        text = _QUOTED_PRINTABLE.sub(_printable, text)
    return _DOUBLED.sub(r"\1", text)


def _character(found: re.Match[str]) -> str:
    code = int(next(filter(None, found.groups())), 16)
    return " " if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code)


def _printable(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("=", "")).decode(errors="replace") if found[0][1:2].isalnum() else ""


def coded(text: str) -> Iterator[bytes]:
    """Yield the bytes of all that may be base64 or hexadecimal digits in a text.

    Nobody says where a code begins: a word or a path may stand before it. So each run of its letters is read from
    each of the four places at which a code can begin; what is no code comes out as noise.
    """
    for found in _HEX.finditer(text):
        yield bytes.fromhex(found[0])
    for found in _BASE64.finditer(_WRAPPED.sub("", text)):
        run = found[0].translate(_URL_SAFE)
        for start in range(4):
            part = run[start:]
            part = part[: len(part) - 1] if len(part) % 4 == 1 else part  # one letter says less than a byte
            try:
                yield base64.b64decode(part + "=" * (-len(part) % 4))
            except binascii.Error:
                continue


def packed_in(text: str, *, goes_on: int = 0) -> Iterator[bytes]:
    """Yield the bytes of base64 or hexadecimal digits that begin as a packed file does.

    A run of at most `goes_on` letters that reaches the end of the text is left to the text that follows.
    """
    whole = _WRAPPED.sub("", text)
    for found in _PACKED.finditer(whole):
        if found.end() == len(whole) and len(found[0]) <= goes_on:
            continue
        is_hex = _HEX.fullmatch(found[0])
        digits = found[0].rstrip("=")
        yield bytes.fromhex(found[0]) if is_hex else base64.b64decode(digits + "=" * (-len(digits) % 4))


def _letters(code: bytes) -> str:
    """Return the text of some bytes; "" for noise, which holds no four letters in a row and is no UTF-8."""
    if _LETTERS.search(code):
        return code.decode(errors="replace")
    try:
        return code.decode()
    except UnicodeDecodeError:
        return code.decode("utf-16-le", errors="ignore") if code.count(0) * 3 > len(code) else ""
