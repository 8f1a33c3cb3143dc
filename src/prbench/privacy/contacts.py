"""Addresses by which a person can be reached: e-mail, links, IP addresses, phone numbers and handles."""

import ipaddress
import re
from collections.abc import Iterator

from prbench.privacy.spans import Span, blank

_WORD = r"[^\W_]"
_HOST = rf"(?:{_WORD}(?:[\w-]*{_WORD})?\.)+[^\W\d_]{{2,24}}"
_EMAIL = re.compile(rf"(?<![\w.+@-])[\w.+%'-]*\w@(?:{_HOST}|\[[0-9a-fA-F.:]+\])")
# "anna (at) mail.example" and "anna at mail dot example": both words must be there, or one of them in brackets.
_SPELLED_EMAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]+\s?[\(\[\{<]\s?at\s?[\)\]\}>]\s?[\w-]+"
    r"(?:(?:\s?[\(\[\{<]\s?dot\s?[\)\]\}>]\s?|\s+dot\s+|\.)[\w-]+)+"
    r"|(?<![\w.+-])[\w.+-]+\s+at\s+[\w-]+(?:\s+dot\s+[\w-]+)+",
    re.IGNORECASE,
)
_TOP = "com|org|net|edu|gov|io|info|biz|dev|app|blog|online|site|shop|tech|xyz|tv|example|invalid|test|social"
_END = r"[^\s<>\"\ufffc]"
_URL = re.compile(rf"(?<![\w@])(?:(?:https?|ftps?|sftp|ssh|git|file|magnet|tg)://{_END}+|www\.{_END}+\.{_END}+)")
_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_BARE_LINK = re.compile(
    rf"(?<![\w@])(?:(?:{_LABEL}\.)+(?:{_TOP}|(?:co|org|ac|gov|com|net)\.[a-z]{{2}})\b(?:[/?#]{_END}*)?"
    rf"|(?:[a-z0-9][a-z0-9-]*[a-z0-9]\.)+[a-z]{{2,6}}/{_END}+"
    rf"|[a-z](?:[a-z0-9-]*[a-z0-9])?\.(?:me|ly|be|gg|gl|co|cc|to)/{_END}+)"
)
_TRAILING = ".,;:!?'\"’”)]}>*_"
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:%\w+)?(?![\w:])")
_VERSION = re.compile(r"(?:\bv|\bver\.?|\bversions?|\brelease|\bbuild|\bsections?|\bchapter|§|\bfirmware)\s*$", re.I)
_HANDLE = re.compile(r"(?<![\w@/.])@(?P<word>\w(?:[\w.-]*\w)?)(?:@(?:[\w-]+\.)+\w+|:(?:[\w-]+\.)+\w+)?")
_REDDIT = re.compile(r"(?<![\w/])/?u/[\w-]{3,20}(?![\w/])")
_ACCOUNT = re.compile(
    r"\b(?:insta(?:gram)?|ig|twitter|tik ?tok|discord|telegram|snap(?:chat)?|reddit|steam|psn|xbox|skype|handle|"
    r"user ?name|gamer ?tag|screen ?name)(?: (?:handle|name|account|id|tag|user ?name))?"
    r"(?: is| as|:| =|'s)\s*(?P<word>[A-Za-z][\w.#-]*\w)",
    re.IGNORECASE,
)
# What follows an @ in ordinary prose and code.
_NO_HANDLES = re.compile(
    "override|property|staticmethod|classmethod|dataclass|media|import|keyframes|supports|param|returns?|throws|test|"
    "before|after|decorator|home|work|school|all|here|everyone|channel|least|most|the|my|a|an",
    re.IGNORECASE,
)
_TIME = re.compile(r"\d{1,2}(?:[:.h]\d{2})?(?:am|pm|h)?", re.IGNORECASE)


def find_contacts(text: str) -> Iterator[Span]:
    """Yield every address in a text; none overlaps another."""
    for kind, find in _FINDERS:
        found = [(start, end) for start, end in find(text) if end > start]
        for start, end in found:
            yield Span(start, end, kind)
            text = blank(text, start, end)


def _emails(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (_EMAIL, _SPELLED_EMAIL):
        for match in pattern.finditer(text):
            yield match.span()


def _urls(text: str) -> Iterator[tuple[int, int]]:
    return _trimmed(_URL.finditer(text))


def _bare_links(text: str) -> Iterator[tuple[int, int]]:
    return _trimmed(_BARE_LINK.finditer(text))


def _trimmed(links: Iterator[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Yield links without what belongs to the sentence around them."""
    for match in links:
        found = match[0]
        while found and found[-1] in _TRAILING and not (found[-1] == ")" and "(" in found):
            found = found[:-1]
        yield match.start(), match.start() + len(found)


def _ips(text: str) -> Iterator[tuple[int, int]]:
    for match in _IPV4.finditer(text):
        if _is_ip(match[0].partition(":")[0]) and not _VERSION.search(text[: match.start()]):
            yield match.span()
    for match in _IPV6.finditer(text):
        # Fewer than three groups are more likely part of a program than an address.
        groups = [group for group in match[0].partition("%")[0].split(":") if group]
        if len(groups) >= 3 and any(map(str.isdigit, match[0])) and _is_ip(match[0].partition("%")[0]):
            yield match.span()


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _handles(text: str) -> Iterator[tuple[int, int]]:
    for match in _HANDLE.finditer(text):
        word = match["word"]
        if len(word) > 1 and not _NO_HANDLES.fullmatch(word) and not _TIME.fullmatch(word):
            yield match.span()
    for match in _REDDIT.finditer(text):
        yield match.span()
    for match in _ACCOUNT.finditer(text):
        # "my insta is full": only what no word looks like is an account.
        if any(character.isdigit() or character in "_#." for character in match["word"]):
            yield match.span("word")


# Digits in groups, with what people put between them.
_NUMBER = re.compile(
    r"(?<![\w.,$€£¥+#%/-])(?:\+|00)?\(?\d(?:[ .\-/\u00a0\u2011\u2013()]{0,3}\d){5,18}(?![\w%]|[.,:/-]\d)"
)
_CUE = re.compile(
    r"(?:\b(?:phones?|tel|telephone|mobile|cell|fax|whats ?app|hotline|viber|signal|landline|sms)\b[^.!?\n]{0,24}"
    r"|\b(?:call|ring|text|dial|reach|contact|phone)\b[^.!?\n]{0,24}"
    r"\b(?:at|on|under|to|me|us|him|her|them|number is|:)"
    r"|\bnumber (?:is|was|:)|[☎📞📱])[^\d.!?\n]{0,12}$",
    re.IGNORECASE,
)
_NO_PHONE = re.compile(
    r"(?:\bisbn(?:-1[03])?|\bissn|\bdoi|\bean|\bupc|\bsku|\border|\binvoice|\bticket|\bref(?:erence)?|\bcase|\bserial|"
    r"\bmodel|\bpart|\btracking|\bid|\bpin|\bcode|\bpopulation|\bitem|\bcatalogue|\bbarcode|\bpatent)"
    r"(?: ?(?:no\.?|number|nr\.?|#|of|was|is|:))*\s*$",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"(?:19|20)\d\d[-./ ]\d\d?[-./ ]\d\d?(?:[ T]\d\d?(?:[-:. ]?\d\d){0,2})?|\d\d?[-./ ]\d\d?[-./ ](?:19|20)?\d\d"
    r"(?: \d\d?[.:]?\d\d)?|(?:(?:1[5-9]|20)\d\d[-–/ .]{1,3})+(?:(?:1[5-9]|20)\d\d|\d\d)"
)
_GROUPED = re.compile(r"\d{1,3}(?:[ \u00a0.]000|[ \u00a0.]\d{3})+")  # 1 250 000
_UNIT_AFTER = re.compile(
    r"\s?(?:€|\$|£|¥|%|°|km|m|cm|mm|kg|g|ml|l|euros?|dollars?|pounds?|usd|eur|gbp|people|inhabitants|years?|steps|"
    r"votes|views|copies|words|pages|miles|feet|degrees|hours|minutes|points)\b",
    re.IGNORECASE,
)
_NATIONAL = re.compile(
    r"\(\d{2,5}\)[ .-]?\d{2,4}(?:[ .-]?\d{2,4}){1,3}"  # (555) 010-9999
    r"|(?:1[ .-])?\d{3}[ .-]\d{3}[ .-]\d{4}"  # 555-010-9999
    r"|0\d{1,4}[ ./-]{1,3}\d{2,8}(?:[ .-]\d{2,4}){0,4}"  # 030 1234567
    r"|0\d{2,4}(?:[ .-]\d{2,4}){2,4}"  # 01 23 45 67 89 is covered by the next one
    r"|0\d(?:[ .-]\d{2}){4}"
    r"|0\d{9,10}"
)
LEAST_DIGITS, MOST_DIGITS = 7, 15  # E.164 allows 15 (ITU-T recommendation, 2010)


def _phones(text: str) -> Iterator[tuple[int, int]]:
    for match in _NUMBER.finditer(text):
        found = match[0].rstrip(" .-/\u00a0\u2011\u2013(")
        if found.count("(") > found.count(")"):
            found = found[: found.rindex("(")].rstrip()
        if _is_phone(found, text[: match.start()], text[match.start() + len(found) :]):
            yield match.start(), match.start() + len(found)


def _is_phone(found: str, before: str, after: str) -> bool:
    digits = re.sub(r"\D", "", found)
    if not LEAST_DIGITS <= len(digits) - 2 * digits.startswith("00") <= MOST_DIGITS or _NO_PHONE.search(before):
        return False
    if _is_isbn(digits, found) or _DATE.fullmatch(found):
        return False
    if found.startswith("+"):
        return len(digits) >= 8
    if _CUE.search(before):
        return True
    if _GROUPED.fullmatch(found) or _UNIT_AFTER.match(after):
        return False
    return (found.startswith("00") and len(digits) >= 11) or _NATIONAL.fullmatch(found) is not None


def _is_isbn(digits: str, found: str) -> bool:
    """Thirteen digits of a book, or ten in groups, whose check digit is right."""
    if len(digits) == 13 and digits[:3] in ("978", "979"):
        return sum(int(digit) * (1, 3)[place % 2] for place, digit in enumerate(digits)) % 10 == 0
    if len(digits) == 10 and found.count("-") == 3:
        return sum(int(digit) * (10 - place) for place, digit in enumerate(digits)) % 11 == 0
    return False


# Whole links come first: they may hold addresses. Bare ones come after e-mail addresses, which end like them.
_FINDERS = (
    ("link", _urls),
    ("email", _emails),
    ("link", _bare_links),
    ("ip", _ips),
    ("phone", _phones),
    ("handle", _handles),
)
