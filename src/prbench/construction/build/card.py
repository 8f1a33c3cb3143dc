"""The card of a built dataset: what it is, how it was made, what was lost on the way, and what may be done with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from prbench.construction.build.audit import is_green, reasons
from prbench.construction.build.settings import PublishSettings
from prbench.construction.build.sources import POSTS
from prbench.data.texts import words
from prbench.schema import Example, Json

NOT_SAID = "not stated"
DRAWN = (
    "Questions and narratives are machine-written: the generator drew each from one post of the user, which is not in "
    "the profile (`meta.build.drawn_from` has its id). No narrative is the user's own words, although it says *I*. "
    "The evidence in `rubric_aspects` is: it is quoted from that post, or from the profile."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """How much there is of everything."""

    users: int
    pairs: int
    posts: int  # distinct ones
    posts_per_user: float
    aspects_per_pair: float
    words_chosen: float  # medians
    words_rejected: float
    words_question: float
    splits: Mapping[str, tuple[int, int]]  # users and pairs

    def as_json(self) -> dict[str, Json]:
        """Return the figures as the manifest of a dataset holds them."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "splits"}
        return plain | {
            "splits": {name: {"users": users, "pairs": pairs} for name, (users, pairs) in self.splits.items()}
        }


def count(examples: Sequence[Example]) -> Statistics:
    """Return the statistics of a dataset."""
    profiles = {example.user.id: example.user.profile for example in examples}
    posts = {(user, post.id) for user, profile in profiles.items() for post in profile}
    splits: dict[str, list[Example]] = {}
    for example in examples:
        splits.setdefault(example.split or "test", []).append(example)
    return Statistics(
        users=len(profiles),
        pairs=len(examples),
        posts=len(posts),
        posts_per_user=round(fmean(map(len, profiles.values())), 2),
        aspects_per_pair=round(fmean(len(example.rubric) for example in examples), 2),
        words_chosen=_median_words(example.chosen for example in examples),
        words_rejected=_median_words(example.rejected for example in examples),
        words_question=_median_words(example.question for example in examples),
        splits={name: (len({one.user.id for one in rows}), len(rows)) for name, rows in splits.items()},
    )


def card_text(
    manifest: Mapping[str, Json], audit: Mapping[str, Json], figures: Statistics, settings: PublishSettings
) -> str:
    """Return the body of the card, in Markdown. It says nothing that the same build would not say again."""
    sections = {
        "": _introduction(manifest, settings),
        "What is in it": figures_table(figures),
        "Could a shortcut solve it?": _floors(audit),
        "How it was made": _making(manifest),
        "What was lost on the way": _losses(manifest),
        "Prompts": _prompts(manifest),
        "Thresholds": _thresholds(manifest),
        "People": _people(manifest, settings),
    }
    return "\n\n".join(f"## {head}\n\n{text}" if head else text for head, text in sections.items() if text)


def _introduction(manifest: Mapping[str, Json], settings: PublishSettings) -> str:
    said = (
        "Preference pairs made by `prbench build`. Both responses of a pair are meant to be equally good; only "
        "`chosen` serves the aspects in `rubric_aspects` that this user looks for. Rubric and narrative are for "
        "judges: a reward model under test must not see them."
    )
    if manifest.get("data", {}).get("kind") == POSTS:
        said += f"\n\n{DRAWN}"
    if settings.private:
        said += "\n\n**Private: not to be handed on.**"
    return f"{said}\n\nDate: {settings.date}" if settings.date else said


def figures_table(figures: Statistics) -> str:
    """Return the statistics as a table."""
    rows: list[tuple[str, object]] = [
        ("users", figures.users),
        ("pairs", figures.pairs),
        ("posts", figures.posts),
        ("posts per user, on average", figures.posts_per_user),
        ("aspects per pair, on average", figures.aspects_per_pair),
        ("words of a question, median", figures.words_question),
        ("words of a chosen response, median", figures.words_chosen),
        ("words of a rejected response, median", figures.words_rejected),
    ]
    rows += [(f"split `{name}`", f"{users} users, {pairs} pairs") for name, (users, pairs) in figures.splits.items()]
    return table(("what", "how much"), rows)


def _floors(audit: Mapping[str, Json]) -> str:
    """The checks, floors first with their intervals; what so few rows cannot show is said to be so."""
    rows = [
        (row["check"], row["verdict"] if row["judgeable"] else "not judgeable", _finding(row))
        for row in audit["findings"]
    ]
    head = (
        f"`prbench check`: **green**, nothing {'that can be judged ' if audit['not_judgeable'] else ''}is bad."
        if is_green(audit)
        else f"`prbench check`: **not green**.\n\n{_list(reasons(audit))}"
    )
    if audit["not_judgeable"]:
        head += f"\n\nNot judgeable with {audit['rows']} rows: {', '.join(audit['not_judgeable'])}."
    return f"{head}\n\n{table(('check', 'verdict', 'figure'), rows)}" if rows else head


def _finding(row: Mapping[str, Json]) -> str:
    return f"{row['figure']} ({row['note']})" if row.get("note") else str(row["figure"])


def _making(manifest: Mapping[str, Json]) -> str:
    settings = manifest.get("settings", {})
    rows = [(f"model: {role.replace('_', ' ')}", f"`{name}`") for role, name in manifest.get("models", {}).items()]
    names = ("rank", "posts", "aspects", "words", "retries", "temperature", "batched_verification", "seed")
    rows += [(name.replace("_", " "), settings[name]) for name in names if settings.get(name) is not None]
    data = manifest.get("data", {})
    rows += [(f"data: {name}", f"`{data[name]}`") for name in ("kind", "hash") if data.get(name)]
    return table(("what", "value"), rows) if rows else ""


def _losses(manifest: Mapping[str, Json]) -> str:
    rows = []
    for stage, counts in manifest.get("stages", {}).items():
        lost = [f"{number} {reason.replace('_', ' ')}" for reason, number in counts.get("rejected", {}).items()]
        lost += [f"{counts['failed']} failed requests"] if counts.get("failed") else []
        share = f"{100 * counts['out'] / counts['in']:.1f} %" if counts["in"] else NOT_SAID
        rows.append((stage, counts["in"], counts["out"], share, ", ".join(lost) or "nothing"))
    return table(("stage", "in", "out", "yield", "lost"), rows) if rows else ""


def _prompts(manifest: Mapping[str, Json]) -> str:
    rows = [(f"[`{name}`](prompts/{name}.md)", f"`{digest}`") for name, digest in manifest.get("prompts", {}).items()]
    return table(("prompt", "hash"), rows) if rows else ""


def _thresholds(manifest: Mapping[str, Json]) -> str:
    rows = [(name, value) for name, value in manifest.get("thresholds", {}).items()]
    return table(("threshold", "value"), rows) if rows else ""


def _people(manifest: Mapping[str, Json], settings: PublishSettings) -> str:
    built = manifest.get("settings", {})
    masked = ", ".join(f"{number} {kind}" for kind, number in manifest.get("data", {}).get("masked", {}).items())
    found_by = manifest.get("redaction")
    rows = [
        ("licence", settings.licence or NOT_SAID),
        ("consent", settings.consent or NOT_SAID),
        ("user ids", "pseudonyms" if built.get("pseudonyms") else "as in the data"),
        ("texts", f"redacted (names by {found_by}): {masked or 'nothing found'}" if found_by else "as in the data"),
        ("to be forgotten", "`prbench forget USER --in FOLDER` removes a person and shows that nothing is left"),
    ]
    return table(("what", "value"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; no cell can break out of its row."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_cell(line)}" for line in lines)


def _median_words(texts: Iterable[str]) -> float:
    return median(len(words(text)) for text in texts)
