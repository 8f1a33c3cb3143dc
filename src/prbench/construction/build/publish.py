"""Stage `publish`: the verified pairs as a dataset folder with its card. The same build gives the same bytes."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from prbench.construction.build.audit import AUDIT, run_audit
from prbench.construction.build.card import card_text, count
from prbench.construction.build.folder import PAIRS
from prbench.construction.build.settings import PublishSettings
from prbench.data import open_examples, write_dataset
from prbench.data.export import Card
from prbench.errors import DataError, UsageError
from prbench.runs import SUMMARY
from prbench.runs.files import read_json, remove_scratch, replacing
from prbench.schema import Example, Json

DATASET = "dataset"
TAGS = ("personalization", "preference", "reward-model", "prbench")
EPOCH = "SOURCE_DATE_EPOCH"  # reproducible-builds.org: the time that a build may state
LAST_SECOND = 253_402_300_799  # of the year 9999
_SPLIT = re.compile(r"[a-z][a-z0-9_]*")


def publish(folder: Path, settings: PublishSettings) -> Path:
    """Write `dataset/` in a build's folder and return its path; one that is there is replaced whole.

    The reject log stays outside: it holds texts that were not good enough to be handed on.
    """
    check_may_publish(settings)
    settings = replace(settings, date=settings.date or _date_of_environment())
    examples = _read_pairs(folder)
    shares = read_shares(settings.split_by_user)
    examples = [replace(example, split=split_of(example.user.id, shares)) for example in examples]
    manifest = read_json(folder / SUMMARY, "build")
    audit = read_json(folder / AUDIT, "build") if (folder / AUDIT).exists() else run_audit(folder)
    card = Card(
        title=settings.title or folder.resolve().name,
        text=card_text(manifest, audit, count(examples), settings),
        licence=settings.licence or "unknown",
        tags=TAGS,
    )
    remove_scratch(folder, (DATASET,))  # of a process that was killed
    with replacing(folder / DATASET) as scratch:
        write_dataset(examples, scratch, card=card)
        _write_prompts(scratch / "prompts", manifest.get("prompts", {}))
    return folder / DATASET


def check_may_publish(settings: PublishSettings) -> None:
    """Refuse to hand on people's texts without their consent and a licence."""
    if not settings.private and not (settings.licence.strip() and settings.consent.strip()):
        missing = [name for name in ("licence", "consent") if not getattr(settings, name).strip()]
        raise UsageError(
            f"A dataset of people's texts needs a licence and their consent, and --{' and --'.join(missing)} "
            "is missing. Give --licence ID and --consent TEXT, or --private for a set that stays with you."
        )
    if settings.date and not _is_date(settings.date):
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
        if not _SPLIT.fullmatch(name) or name in shares or not 0 < value <= 1:
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
    return list(shares)[-1]


def _read_pairs(folder: Path) -> Sequence[Example]:
    path = folder / PAIRS
    if not path.exists() or not path.stat().st_size:
        raise DataError(f"{folder}: no pair came through, so there is nothing to publish. See rejects.jsonl for why.")
    with open_examples(path) as store:
        return [example for example in store if isinstance(example, Example)]


def _write_prompts(folder: Path, hashes: dict[str, Json]) -> None:
    """Copy the prompts as they were used, and refuse if one has changed since."""
    folder.mkdir()
    for name, digest in hashes.items():
        text = files("prbench.prompts").joinpath(f"{name}.md").read_bytes()
        if not sha256(text).hexdigest().startswith(digest):
            raise DataError(
                f"The prompt {name} is another one than the pairs were made with. Build again with --fresh."
            )
        (folder / f"{name}.md").write_bytes(text)


def _date_of_environment() -> str:
    seconds = os.environ.get(EPOCH, "")
    if not seconds:
        return ""
    if not re.fullmatch(r"[0-9]{1,12}", seconds) or int(seconds) > LAST_SECOND:
        shown = json.dumps(seconds[:40])
        raise UsageError(f"{EPOCH}={shown} is no number of seconds before the year 10000. Correct it, or unset it.")
    return datetime.fromtimestamp(int(seconds), UTC).date().isoformat()


def _is_date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False
