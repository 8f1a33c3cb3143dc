"""Audit a dataset: can it measure personalization, or would a shortcut do?"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from prbench.backends.encoders import Encoder, load_encoder
from prbench.construction.check.duplicates import check_duplicates, check_near, check_rated_duplicates, pair_keys
from prbench.construction.check.finding import BAD, GOOD, LOOK, SKIPPED, CheckFinding
from prbench.construction.check.floors import INSTALL, check_floors
from prbench.construction.check.rows import (
    check_position,
    check_profiles,
    check_resolution,
    check_rows,
    check_users,
    count_rows_of_users,
)
from prbench.construction.check.splits import check_splits, split_of
from prbench.construction.check.style import check_rated_length, check_style
from prbench.data import DataSettings, ExampleStore, Rows, open_data
from prbench.errors import UsageError
from prbench.schema import StepProgress

__all__ = ["BAD", "GOOD", "LOOK", "SKIPPED", "Audit", "CheckFinding", "check_dataset", "check_store"]

MINILM, NO_ENCODER = "minilm", "none"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What all checks found out about one dataset."""

    data: str
    split: str
    kind: str  # pairs or rated
    rows: int
    users: int
    hash: str
    findings: tuple[CheckFinding, ...]

    @property
    def is_bad(self) -> bool:
        """True if any check came out bad."""
        return any(finding.verdict == BAD for finding in self.findings)


def check_dataset(
    data: Rows,
    *,
    which: DataSettings | None = None,
    encoder: str | Encoder = MINILM,
    seed: int = 0,
    progress: StepProgress = lambda step: None,
) -> Audit:
    """Audit a dataset: a path, a hub id, `lab`, or the rows themselves.

        audit = check_dataset("pairs.jsonl", encoder="none")
        print([finding.check for finding in audit.findings if finding.verdict == BAD])

    `encoder` is `minilm`, `none` (the checks that need one are then skipped), a path or hub id, or an object;
    `progress` is told the name of every long check, and may return what wants to hear of its progress.
    """
    which = which or DataSettings()
    if isinstance(data, str | Path):
        which = replace(which, source=str(data))
    with open_data(which, None if which.source else data) as store:
        return check_store(store, which, encoder=encoder, seed=seed, progress=progress)


def check_store(
    store: ExampleStore,
    which: DataSettings,
    *,
    encoder: str | Encoder = MINILM,
    seed: int = 0,
    progress: StepProgress = lambda step: None,
) -> Audit:
    """Audit rows that are open already; `which` says where they and their other splits come from."""
    findings = (
        _check_pairs(store, which, _find_encoder(encoder), seed, progress)
        if store.kind == "pairs"
        else _check_ratings(store, which, progress)
    )
    return Audit(
        data=which.source or "rows given in Python",
        split=split_of(store, which),
        kind=store.kind,
        rows=len(store),
        users=store.users,
        hash=store.content_hash,
        findings=tuple(findings),
    )


def _check_pairs(
    store: ExampleStore, which: DataSettings, encoder: Encoder | str, seed: int, progress: StepProgress
) -> Iterator[CheckFinding]:
    """Yield one finding after the other, the cheap ones first."""
    yield check_rows(store)
    yield check_users(store)
    yield check_profiles(store)
    progress("duplicates")
    keys = pair_keys(store)
    yield check_duplicates(store, keys)
    yield check_near(store, keys, seed=seed, advance=progress("near-duplicates"))
    progress("splits")
    yield check_splits(store, which)
    yield check_style(store, advance=progress("length and style"))
    yield from check_floors(store, keys, encoder, seed=seed, progress=progress)
    yield check_position(store, seed=seed)
    yield check_resolution(len(store), count_rows_of_users(store).values())


def _check_ratings(store: ExampleStore, which: DataSettings, progress: StepProgress) -> Iterator[CheckFinding]:
    yield check_rows(store)
    yield check_users(store)
    yield check_profiles(store)
    progress("duplicates")
    yield check_rated_duplicates(store)
    progress("splits")
    yield check_splits(store, which)
    yield check_rated_length(store)
    yield CheckFinding(
        "pairs only",
        SKIPPED,
        "rated rows have one response: no near-duplicates, style, floors, label position or resolution",
        why="These checks compare two responses.",
        remedy="Nothing to do: they are for pairs.",
    )


def _find_encoder(encoder: str | Encoder) -> Encoder | str:
    """Return the encoder, or what to do to have one. A path or hub id that cannot be loaded is an error."""
    if not isinstance(encoder, str):
        return encoder
    if encoder == NO_ENCODER:
        return f"Leave out --audit-encoder none. It needs: {INSTALL}"
    try:
        return load_encoder(encoder)
    except UsageError as error:
        if encoder != MINILM:
            raise
        return str(error)
