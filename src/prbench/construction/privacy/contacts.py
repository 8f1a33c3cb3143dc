"""Addresses by which a person can be reached: e-mail, links, IP addresses, phone numbers and handles.

What is found is a `TextSpan`, and is blanked before the next kind is looked for, so that nothing is found twice.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

BLANK = "\ufffc"  # stands for every character of what is masked already; no pattern reads it


@dataclass(frozen=True, slots=True, order=True)
class TextSpan:
    """A part of a text, and what it tells."""

    start: int
    end: int
    kind: str


def blank(text: str, spans: Iterable[TextSpan]) -> str:
    """Return the text with parts of it made unreadable, and everything else where it was; no part overlaps another."""
    pieces, end = [], 0
    for span in sorted(spans):
        pieces += [text[end : span.start], BLANK * (span.end - span.start)]
        end = span.end
    return "".join(pieces) + text[end:]


# Lengths are bounded as in RFC 1035 and RFC 5321: a label has 63 characters, a local part 64. Without bounds, a long
# row of dots or hyphens would take time that grows with its square.
_WORD = r"[^\W_]"
_HOST = rf"(?:{_WORD}(?:[\w-]{{0,61}}{_WORD})?\.){{1,10}}[^\W\d_]{{2,24}}"
_EMAIL = re.compile(rf"(?<![\w.+@-])[\w.+%'-]{{0,63}}\w@(?:{_HOST}|\[[0-9a-fA-F.:]{{2,45}}\])")
# "anna (at) mail.example" and "anna at mail dot example": both words must be there, or one of them in brackets. Where
# the host is one of those that many people have their mail at, "anna at gmail.com" is one too.
_SPELLED_EMAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}\s?[\(\[\{<]\s?at\s?[\)\]\}>]\s?[\w-]{1,63}"
    r"(?:(?:\s?[\(\[\{<]\s?dot\s?[\)\]\}>]\s?|\s{1,3}dot\s{1,3}|\.)[\w-]{1,63}){1,10}"
    r"|(?<![\w.+-])[\w.+-]{1,64}\s{1,3}at\s{1,3}[\w-]{1,63}(?:\s{1,3}dot\s{1,3}[\w-]{1,63}){1,10}"
    r"|(?<![\w.+-])(?!(?:work(?:s|ed|ing)?|look(?:s|ed|ing)?|me|us|him|her|them|i['’]?m|am|is|are|was|be|account|"
    r"address|e-?mail|mailbox|inbox|here|it|one|people|someone|hosted|support|login)\s)"
    r"[\w.+-]{1,64}\s{1,3}at\s{1,3}(?:gmail|googlemail|hotmail|outlook|live|msn|yahoo|ymail|icloud|aol|"
    r"proton(?:mail)?|pm|gmx|web|posteo|mailbox|fastmail|tutanota|tuta|zoho|yandex|qq|163|comcast|mail)"
    r"\.[a-z]{2,3}(?:\.[a-z]{2})?\b",
    re.IGNORECASE,
)
# The two-letter domains of countries that stand in the root zone (IANA, 2025). The second list has those that are also
# words, units or endings of files: they need a path, a hyphen, or a word such as "website" before them.
_COUNTRIES = (
    "ac ae af ag al ao aq ar au aw ax az ba bb bd bf bg bh bi bj bm bn bo br bs bt bw bz ca cd cf cg ch ci ck cl cn "
    "cr cu cv cw cx cy cz de dj dk dm dz ec ee eu fi fj fk fo fr ga gb gd gf gg gh gi gn gp gq gr gs gt gu gw gy hk "
    "hn hr ht hu il io iq ir je jm jo jp ke kh ki kn kp kr kw ky kz lc li lk lr ls lt lu lv ly mc mg mh mn mp mq mv "
    "mw mx mz na nc nf ng ni nl np nr nz pe pf pg ph pk pn pr pt pw qa ro ru rw sa sb sd se sg sj sk sl sn sr ss su "
    "sv sx sy sz tc td tg th tj tk tl tn tr tt tv tw tz ua ug uk uy uz va vc ve vg vn vu wf ws yt za zm zw "
)
_WORDLIKE = (
    "ad ai am as at be by cc cm co do eg er es et fm ge gl gm hm id ie im in is it kg km la lb ma md me mk ml mm mo "
    "mr ms mt mu my ne no nu om pa pl pm ps py re rs sc sh si sm so st tf tm to us vi ye "
)
_COMMON = (
    "com org net edu gov info biz dev app blog online site shop store tech xyz example invalid test social name pro "
    "club live life cloud page space website art design studio photography academy agency world today news wiki link"
)


def _either_case(words: str) -> str:
    """A pattern of words in small letters or in capitals; "Paris.De" is the end of one sentence and the next."""
    return "|".join((*words.split(), *words.upper().split()))


_END = r"[^\s<>\"\ufffc]"
_URL = re.compile(
    rf"(?<![\w@])(?:(?:https?|ftps?|sftp|ssh|git|file|magnet|tg)://{_END}+|www\.{_END}+?\.{_END}+)", re.IGNORECASE
)
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LONG_LABEL = "[A-Za-z0-9][A-Za-z0-9-]{0,61}[A-Za-z0-9]"
_PATH = rf"(?:[/?#]{_END}*)?"
_ANY_TOP = _either_case(f"{_COUNTRIES} {_WORDLIKE} {_COMMON}")
_SECOND = "(?:co|org|ac|gov|com|net|edu|or|ne|go|gob|nom)"
_BARE_LINK = re.compile(
    rf"(?<![\w@])(?!(?i:asp|vb|ado|ml|paint|f#|c#)\.(?i:net)\b)"
    r"(?=[A-Za-z0-9-]{1,63}\.)(?=[\w.-]{0,64}[A-Za-z])"
    rf"(?:(?:{_LABEL}\.){{1,10}}(?:{_SECOND}\.[a-z]{{2}}|{_either_case(_COMMON)})\b{_PATH}"
    rf"|(?:{_LABEL}\.){{0,9}}(?=[\w-]{{0,62}}[A-Za-z]){_LONG_LABEL}\.(?:{_either_case(_COUNTRIES)})\b{_PATH}"
    rf"|(?:{_LABEL}\.){{0,9}}[A-Za-z0-9]{{1,30}}-{_LONG_LABEL}\.(?:{_either_case(_WORDLIKE)})\b{_PATH}"
    rf"|(?:{_LABEL}\.){{1,10}}(?:{_ANY_TOP}|[a-z]{{2,6}})/{_END}+)"
)
_NAMED_LINK = re.compile(
    r"\b(?:visit|website|web ?site|site|blog|home ?page|portfolio|web ?shop|url|domain|link)(?: is| at|:)*\s"
    rf"(?P<link>(?:{_LABEL}\.){{1,10}}(?:{_ANY_TOP})\b{_PATH})",
    re.IGNORECASE,
)
_TRAILING = ".,;:!?'\"’”)]}>*_"
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:%\w+)?(?![\w:])")
_VERSION = re.compile(r"(?:\bv|\bver\.?|\bversions?|\brelease|\bbuild|\bsections?|\bchapter|§|\bfirmware)\s*$", re.I)
_SERVER = r"(?:[\w-]{1,63}\.){1,10}\w{1,63}"
_HANDLE = re.compile(rf"(?<![\w@/.])@(?P<word>\w(?:[\w.-]{{0,62}}\w)?)(?:@{_SERVER}|:{_SERVER})?")
# anna#1234, but no issue#1234
_TAG = re.compile(
    r"(?<![\w#@/.])(?!(?:issues?|ticket|bug|pr|pull|order|room|case|item|no|nr|number|unit|apt|suite|lot|part|page|"
    r"model|invoice|ref|line|step|task|track|episode|chapter)#)[A-Za-z][\w.]{1,31}#\d{4}(?!\w)",
    re.IGNORECASE,
)
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


def _links(pattern: re.Pattern[str], text: str, group: int | str = 0) -> Iterator[tuple[int, int]]:
    """Yield links without what belongs to the sentence around them."""
    for match in pattern.finditer(text):
        (start, end), found = match.span(group), match[group]
        trailing = _TRAILING.replace(")", "") if "(" in found else _TRAILING
        yield start, end - len(found) + len(found.rstrip(trailing))


def _ips(text: str) -> Iterator[tuple[int, int]]:
    for match in _IPV4.finditer(text):
        if _is_ip(match[0].partition(":")[0]) and not _VERSION.search(_before(text, match.start())):
            yield match.span()
    for match in _IPV6.finditer(text):
        # Fewer than three groups are more likely part of a program than an address.
        groups = [group for group in match[0].partition("%")[0].split(":") if group]
        if len(groups) >= 3 and any(map(str.isdigit, match[0])) and _is_ip(match[0].partition("%")[0]):
            yield match.span()


def _before(text: str, start: int) -> str:
    """Return as much of what stands before as a rule looks at."""
    return text[max(0, start - NEAR) : start]


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
    for pattern in (_REDDIT, _TAG):
        for match in pattern.finditer(text):
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
_DIRECT = re.compile(
    r"\b(?:call|text|phone|ring|dial|sms|whats ?app)(?: me| us)?:?\s*$", re.IGNORECASE
)  # call 5550109999
NEAR = 80  # characters before and after a number that tell what it is
LEAST_DIGITS, MOST_DIGITS = 7, 15  # E.164 allows 15 (ITU-T recommendation, 2010)


def _phones(text: str) -> Iterator[tuple[int, int]]:
    for match in _NUMBER.finditer(text):
        found = match[0].rstrip(" .-/\u00a0\u2011\u2013(")
        if found.count("(") > found.count(")"):
            found = found[: found.rindex("(")].rstrip()
        end = match.start() + len(found)
        if _is_phone(found, _before(text, match.start()), text[end : end + NEAR]):
            yield match.start(), end


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
    if len(digits) >= 9 and _DIRECT.search(before):
        return True
    return (found.startswith("00") and len(digits) >= 11) or _NATIONAL.fullmatch(found) is not None


def _is_isbn(digits: str, found: str) -> bool:
    """Thirteen digits of a book, or ten in groups, whose check digit is right (ISO 2108)."""
    if len(digits) == 13 and digits[:3] in ("978", "979"):
        return sum(int(digit) * (1, 3)[place % 2] for place, digit in enumerate(digits)) % 10 == 0
    if len(digits) == 10 and found.count("-") == 3:
        return sum(int(digit) * (10 - place) for place, digit in enumerate(digits)) % 11 == 0
    return False


# Whole links come first: they may hold addresses. Bare ones come after e-mail addresses, which end like them.
_FINDERS: tuple[tuple[str, Callable[[str], Iterator[tuple[int, int]]]], ...] = (
    ("link", lambda text: _links(_URL, text)),
    ("email", lambda text: (found.span() for each in (_EMAIL, _SPELLED_EMAIL) for found in each.finditer(text))),
    ("link", lambda text: chain(_links(_BARE_LINK, text), _links(_NAMED_LINK, text, "link"))),
    ("ip", _ips),
    ("phone", _phones),
    ("handle", _handles),
)


def find_contacts(text: str) -> Iterator[TextSpan]:
    """Yield every address in a text; none overlaps another."""
    for kind, find in _FINDERS:
        found: list[TextSpan] = []
        for start, end in sorted(find(text), key=lambda each: (each[0], -each[1])):
            if end > start and (not found or start >= found[-1].end):
                found.append(TextSpan(start, end, kind))
        yield from found
        text = blank(text, found)
