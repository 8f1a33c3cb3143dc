"""Stages `audit` and `publish`: what `prbench data check` says of the pairs as built, and the folder with its card.

The card says what the set is, how it was made, what was lost on the way, and what may be done with it. The same build
gives the same bytes.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median

from prbench.construction.build.settings import AUDIT, DATASET, PAIRS, PublishSettings
from prbench.construction.build.sources import POSTS
from prbench.construction.check import BAD, LOOK, MINILM, SKIPPED, TOO_FEW, CheckFinding, check_store
from prbench.construction.check.finding import STEP, Band, worst
from prbench.data import DataSettings, open_examples, write_dataset
from prbench.data.export import Card
from prbench.data.texts import words
from prbench.errors import DataError, UsageError
from prbench.runs import SUMMARY
from prbench.runs.files import read_json, remove_scratch, replacing, write_json
from prbench.schema import Example, Json

NO_PAIRS = "no pairs"
TAGS = ("personalization", "preference", "reward-model", "prbench")
EPOCH = "SOURCE_DATE_EPOCH"  # reproducible-builds.org: the time that a build may state
LAST_SECOND = 253_402_300_799  # of the year 9999
NOT_SAID = "not stated"
DRAWN = (
    "Questions and narratives are machine-written: the generator drew each from one post of the user, which is not in "
    "the profile (`meta.build.drawn_from` has its id). No narrative is the user's own words, although it says *I*. "
    "The evidence in `rubric_aspects` is: it is quoted from that post, or from the profile."
)


def run_audit(folder: Path, encoder: str = MINILM) -> dict[str, Json]:
    """Check the pairs of a build, write `audit.json`, and return what it holds.

    The file has figures and no texts of people; `prbench data check --data DIR/dataset` shows samples.
    """
    path = folder / PAIRS
    if not path.exists() or not path.stat().st_size:
        audit = {"rows": 0, "users": 0, "hash": "", "verdict": SKIPPED, "not_judgeable": [], "findings": []}
    else:
        with open_examples(path) as store:
            checked = check_store(store, DataSettings(source=str(path)), encoder=encoder)
        findings = [_finding_row(finding) for finding in checked.findings]
        judged = [row["verdict"] for row in findings if row["judgeable"]]
        audit = {
            "rows": checked.rows,
            "users": checked.users,
            "hash": checked.hash,
            "verdict": worst(SKIPPED, *judged),
            "not_judgeable": [row["check"] for row in findings if not row["judgeable"]],
            "findings": findings,
        }
    write_json(folder / AUDIT, audit)
    return audit


def reasons(audit: Mapping[str, Json]) -> list[str]:
    """Return why an audit is not green: one line per check that is bad, or worth a look."""
    if not audit["rows"]:
        return [NO_PAIRS]
    return [
        f"{row['check']}: {row['verdict']}: {row['figure']}"
        for row in audit["findings"]
        if row["verdict"] in (BAD, LOOK)
    ]


def is_green(audit: Mapping[str, Json]) -> bool:
    """True if there are pairs, and no check that can be judged came out bad."""
    return bool(audit["rows"]) and audit["verdict"] != BAD


def _finding_row(finding: CheckFinding) -> dict[str, Json]:
    row = finding.as_json()
    del row["samples"]
    accuracy = finding.values.get("accuracy")
    row["judgeable"] = finding.verdict not in (SKIPPED, TOO_FEW)
    if accuracy and finding.verdict != BAD:  # an interval that lies outside the band says enough, however wide
        good_to = finding.values["good_to"]
        needed = Band(low=finding.values["good_from"], high=good_to).rows_needed
        is_wide = accuracy["high"] - accuracy["low"] > 2 * (good_to + STEP - 0.5)
        if is_wide or accuracy["n"] < needed:  # rows that all tie have no spread, and still are few
            row["judgeable"] = False
            row["note"] = f"{accuracy['n']} rows cannot tell; about {needed} rows of as many users can"
    return row


def publish(folder: Path, settings: PublishSettings) -> Path:
    """Write `dataset/` in a build's folder and return its path; one that is there is replaced whole.

    The reject log stays outside: it holds texts that were not good enough to be handed on.
    """
    check_may_publish(settings)
    settings = replace(settings, date=settings.date or _date_of_environment())
    path = folder / PAIRS
    if not path.exists() or not path.stat().st_size:
        raise DataError(f"{folder}: no pair came through, so there is nothing to publish. See rejects.jsonl for why.")
    shares = read_shares(settings.split_by_user)
    with open_examples(path) as store:
        pairs = [example for example in store if isinstance(example, Example)]
    examples = [replace(example, split=split_of(example.user.id, shares)) for example in pairs]
    manifest = read_json(folder / SUMMARY, "build")
    audit = read_json(folder / AUDIT, "build") if (folder / AUDIT).exists() else run_audit(folder)
    card = Card(
        title=settings.title or folder.resolve().name,
        text=card_text(manifest, audit, examples, settings),
        license=settings.license or "unknown",
        tags=TAGS,
    )
    remove_scratch(folder, (DATASET,))  # of a process that was killed
    with replacing(folder / DATASET) as scratch:
        write_dataset(examples, scratch, card=card)
        (scratch / "prompts").mkdir()
        for name, digest in manifest.get("prompts", {}).items():
            text = files("prbench.prompts").joinpath(f"{name}.md").read_bytes()
            if not sha256(text).hexdigest().startswith(digest):
                raise DataError(
                    f"The prompt {name} is another one than the pairs were made with. Build again with --fresh."
                )
            (scratch / "prompts" / f"{name}.md").write_bytes(text)
    return folder / DATASET


def check_may_publish(settings: PublishSettings) -> None:
    """Refuse to hand on people's texts without their consent and a license."""
    if not settings.private and not (settings.license.strip() and settings.consent.strip()):
        missing = [name for name in ("license", "consent") if not getattr(settings, name).strip()]
        raise UsageError(
            f"A dataset of people's texts needs a license and their consent, and --{' and --'.join(missing)} "
            "is missing. Give --license ID and --consent TEXT, or --private for a set that stays with you."
        )
    if settings.date:
        try:
            is_day = date.fromisoformat(settings.date).isoformat() == settings.date  # in this form alone
        except ValueError:
            is_day = False
        if not is_day:
            raise UsageError(f"--date {settings.date}: there is no such day. Write it as YYYY-MM-DD.")
    _date_of_environment()
    read_shares(settings.split_by_user)


def read_shares(text: str) -> dict[str, float]:
    """Return the share of users that each split gets, from `train=0.8,test=0.2`; "" gives all to `test`."""
    if not text:
        return {"test": 1.0}
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = (piece.strip() for piece in part.partition("="))
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in shares or not 0 < value <= 1:
            raise UsageError(f"--split-by-user {text}: {part.strip()!r} is no share. Write e.g. train=0.8,test=0.2.")
        shares[name] = value
    if abs(sum(shares.values()) - 1) > 1e-9:
        raise UsageError(f"--split-by-user {text}: the shares add up to {sum(shares.values()):g}. Make them add to 1.")
    return shares


def split_of(user_id: str, shares: dict[str, float]) -> str:
    """Return a user's split: one fixed draw per user, so that nobody moves when somebody comes or is forgotten."""
    place = int.from_bytes(sha256(f"split:{user_id}".encode()).digest()[:7], "big") / (1 << 56)
    for name, share in shares.items():
        place -= share
        if place < 0:
            return name
    return list(shares)[-1]  # shares add up to 1 but for rounding, and the largest draw rounds to 1


def _date_of_environment() -> str:
    seconds = os.environ.get(EPOCH, "")
    if not seconds:
        return ""
    if not re.fullmatch(r"[0-9]{1,12}", seconds) or int(seconds) > LAST_SECOND:
        shown = json.dumps(seconds[:40])
        raise UsageError(f"{EPOCH}={shown} is no number of seconds before the year 10000. Correct it, or unset it.")
    return datetime.fromtimestamp(int(seconds), UTC).date().isoformat()


def card_text(
    manifest: Mapping[str, Json], audit: Mapping[str, Json], examples: Sequence[Example], settings: PublishSettings
) -> str:
    """Return the body of the card, in Markdown. It says nothing that the same build would not say again."""
    prompts = manifest.get("prompts", {})
    thresholds = manifest.get("thresholds", {})
    sections = {
        "": _introduction(manifest, settings),
        "What is in it": figures_table(examples),
        "Could a shortcut solve it?": _floors(audit),
        "How it was made": _making(manifest),
        "What was lost on the way": _losses(manifest),
        "Prompts": table(
            ("prompt", "hash"), [(f"[`{name}`](prompts/{name}.md)", f"`{digest}`") for name, digest in prompts.items()]
        ),
        "Thresholds": table(("threshold", "value"), thresholds.items()),
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


def figures_table(examples: Sequence[Example]) -> str:
    """Return how much there is of everything, as a table."""
    profiles = {example.user.id: example.user.profile for example in examples}
    posts = {(user, post.id) for user, profile in profiles.items() for post in profile}
    rows: list[tuple[str, object]] = [
        ("users", len(profiles)),
        ("pairs", len(examples)),
        ("posts", len(posts)),
        ("posts per user, on average", round(fmean(map(len, profiles.values())), 2)),
        ("aspects per pair, on average", round(fmean(len(example.rubric) for example in examples), 2)),
        ("words of a question, median", median(len(words(each.question)) for each in examples)),
        ("words of a chosen response, median", median(len(words(each.chosen)) for each in examples)),
        ("words of a rejected response, median", median(len(words(each.rejected)) for each in examples)),
    ]
    splits: dict[str, list[Example]] = {}
    for example in examples:
        splits.setdefault(example.split or "test", []).append(example)
    for name, some in splits.items():
        rows.append((f"split `{name}`", f"{len({one.user.id for one in some})} users, {len(some)} pairs"))
    return table(("what", "how much"), rows)


def _floors(audit: Mapping[str, Json]) -> str:
    """The checks, floors first with their intervals; what so few rows cannot show is said to be so."""
    rows = [
        (
            row["check"],
            row["verdict"] if row["judgeable"] else "not judgeable",
            f"{row['figure']} ({row['note']})" if row.get("note") else row["figure"],
        )
        for row in audit["findings"]
    ]
    head = (
        f"`prbench data check`: **green**, nothing {'that can be judged ' if audit['not_judgeable'] else ''}is bad."
        if is_green(audit)
        else "`prbench data check`: **not green**.\n\n" + "\n".join(f"- {_cell(line)}" for line in reasons(audit))
    )
    if audit["not_judgeable"]:
        head += f"\n\nNot judgeable with {audit['rows']} rows: {', '.join(audit['not_judgeable'])}."
    return f"{head}\n\n{table(('check', 'verdict', 'figure'), rows)}".rstrip()


def _making(manifest: Mapping[str, Json]) -> str:
    settings = manifest.get("settings", {})
    rows = [(f"model: {role.replace('_', ' ')}", f"`{name}`") for role, name in manifest.get("models", {}).items()]
    names = ("rank", "posts", "aspects", "words", "retries", "temperature", "batched_verification", "seed")
    rows += [(name.replace("_", " "), settings[name]) for name in names if settings.get(name) is not None]
    data = manifest.get("data", {})
    rows += [(f"data: {name}", f"`{data[name]}`") for name in ("kind", "hash") if data.get(name)]
    return table(("what", "value"), rows)


def _losses(manifest: Mapping[str, Json]) -> str:
    rows = []
    for stage, counts in manifest.get("stages", {}).items():
        lost = [f"{number} {reason.replace('_', ' ')}" for reason, number in counts.get("rejected", {}).items()]
        lost += [f"{counts['failed']} failed requests"] if counts.get("failed") else []
        share = f"{100 * counts['out'] / counts['in']:.1f} %" if counts["in"] else NOT_SAID
        rows.append((stage, counts["in"], counts["out"], share, ", ".join(lost) or "nothing"))
    return table(("stage", "in", "out", "yield", "lost"), rows)


def _people(manifest: Mapping[str, Json], settings: PublishSettings) -> str:
    built = manifest.get("settings", {})
    masked = ", ".join(f"{number} {kind}" for kind, number in manifest.get("data", {}).get("masked", {}).items())
    found_by = manifest.get("redaction")
    rows = [
        ("license", settings.license or NOT_SAID),
        ("consent", settings.consent or NOT_SAID),
        ("user ids", "pseudonyms" if built.get("pseudonyms") else "as in the data"),
        ("texts", f"redacted (names by {found_by}): {masked or 'nothing found'}" if found_by else "as in the data"),
        ("to be forgotten", "`prbench data forget USER --in FOLDER` removes a person and shows that nothing is left"),
    ]
    return table(("what", "value"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, nothing without rows; no cell can break out of its row."""
    rows = list(rows)
    lines = [head, ["---"] * len(head), *rows] if rows else []
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
