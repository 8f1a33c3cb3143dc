"""Folders whose figures come from rows: runs, builds and datasets. After rows went, the figures are made anew."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from prbench.construction.build import BuildSettings, BuildStage
from prbench.construction.build.publish import figures_table
from prbench.construction.build.settings import AUDIT, PAIRS, REJECTS, STAGE_FILES
from prbench.construction.build.sources import read_items
from prbench.construction.privacy.pseudonyms import KEY_VARIABLE, Pseudonyms
from prbench.data import DataSettings, is_named, open_data, open_examples
from prbench.errors import PrbenchError, UsageError
from prbench.evaluation import EvalSettings
from prbench.evaluation.run import ROW_KEY, fill_columns
from prbench.evaluation.summary import FACTS, probes_of, summarize
from prbench.people.forget.files import FileKind, rows_of
from prbench.people.forget.person import Person
from prbench.runs import ITEMS, MANIFEST, SUMMARY, RowLog, read_rows, run_id
from prbench.runs.files import BON, EVAL, FRESH, KINDS, LOCK, PPO, TRAIN, read_json, write_json, write_text
from prbench.runs.manifest import read_manifest, read_summary, require_facts
from prbench.schema import BROKEN, Example, Json, Probe

COUNTS_HEAD = "| config | split | rows |\n| --- | --- | --- |\n"  # as data/export.py writes it
FIGURES_HEAD = "## What is in it\n\n"
NOTE = "People were forgotten since this set was made: the figures of checks and losses are those before."


def lock_of(folder: Path) -> Path | None:
    """Return the folder whose lock the writer of this one holds; None where nothing of ours writes.

    What is damaged may be of a run that is still going on. A fresh run beside a finished one has the lock of its home.
    """
    home = folder.parent if folder.name == FRESH else folder
    if not (home / MANIFEST).is_file() or (home / LOCK).is_dir():  # with a folder there, nobody can lock it
        return None
    known = _parsed(home / MANIFEST)
    is_damaged_run = not isinstance(known, dict) and (home / LOCK).exists()
    return home if is_damaged_run or kind_of_folder(home) in KINDS else None


def kind_of_folder(folder: Path) -> Json:
    """Return which command wrote a folder; anybody may name a file like ours, so it can be anything."""
    content = _parsed(folder / MANIFEST)
    return content.get("kind") if isinstance(content, dict) else None


def what_stays(folder: Path) -> str | None:
    """Say what no removal of rows can take back, of a run that is neither an evaluation nor a build."""
    match kind_of_folder(folder):
        case kind if kind in (TRAIN, PPO):
            return (
                f"{folder}: made by `prbench {kind}`; left out. If it learned from the person's rows, train it again."
            )
        case kind if kind == BON:
            return f"{folder}: made by `prbench bon`; its summary is left out, and as it was. Run its command again."
    return None


def is_damaged(path: Path) -> bool:
    """True for a file that says what a folder is, and that is no JSON."""
    return path.name in (MANIFEST, SUMMARY) and _parsed(path) is None


def _parsed(path: Path) -> Json:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError):
        return None


def check_key_known(folder: Path, pseudonyms: Sequence[Pseudonyms]) -> None:
    """Refuse a build whose pseudonyms nobody here can make: that nothing was found would be no proof."""
    fingerprint = read_manifest(folder, "build")["config"].get("pseudonyms")
    if fingerprint and all(names.fingerprint != fingerprint for names in pseudonyms):
        raise UsageError(
            f"{folder}: people go by pseudonyms here, and its key is not at hand. Set {KEY_VARIABLE}, or give the "
            "pseudonym instead of the id."
        )


def swapped_in(folder: Path, person: Person) -> set[str] | None:
    """Return the items of a run that were also asked with this person's profile; None where nobody can tell any more.

    Who lent their profile follows from the data and the seed, so the data must still be what it was.
    """
    manifest = read_manifest(folder)
    require_facts(folder, manifest)
    which = DataSettings.from_config(manifest["data"])
    settings = EvalSettings.from_config(manifest["config"]["settings"])
    if Probe.SWAP not in settings.probes:
        return set()
    if not is_named(which.source) and not Path(which.source).exists():
        return None
    try:
        with open_data(which) as store:
            if store.content_hash != manifest["config"]["data_hash"]:
                return None
            donors = {store[place].id: store.donor(place, settings.seed) for place in range(len(store))}
    except PrbenchError:
        return None
    return {item for item, donor in donors.items() if donor is not None and donor.id in person.ids}


def refresh_run(folder: Path, *, is_touched: bool) -> None:
    """Sum a finished run up again if rows went; its summary then counts the items that are missing."""
    if not (folder / SUMMARY).exists():
        return
    old, manifest = read_summary(folder, EVAL), read_manifest(folder)
    require_facts(folder, manifest)
    facts = manifest["facts"]
    rows = read_rows(folder, groups=(*facts["group_by"], *FACTS))
    own = [row for row in rows if row.probe is Probe.OWN]
    if not own:
        (folder / SUMMARY).unlink()
    elif is_touched or len(own) != old["n_items"]:
        # The ratings of who went had a say in the columns of all others.
        with RowLog(folder / ITEMS, ROW_KEY) as log:
            rows = fill_columns(log, rows)
        # Without this, the run would count as interrupted. The summary comes last: it says whether all is done.
        facts["data"] |= {"rows": len(own), "users": len({row.user_id for row in own})}
        write_json(folder / MANIFEST, manifest)
        forgotten = old.get("forgotten_items", 0) + old["n_items"] - len(own)
        write_json(folder / SUMMARY, {**summarize(rows, facts, probes_of(manifest)), "forgotten_items": forgotten})


def refresh_build(folder: Path, *, is_touched: bool) -> Iterator[str]:
    """Count a build's items again if rows went, and yield what its owner should know.

    The summary comes last: as long as its counts are not those of the rows, there is something to do. The audit is
    made anew by the next build.
    """
    has_summary = (folder / SUMMARY).exists()
    old = read_json(folder / SUMMARY, "build") if has_summary else {}
    new = _counted_again(folder, old) if has_summary else {}
    if not is_touched and new == old:
        return
    (folder / AUDIT).unlink(missing_ok=True)
    manifest = read_json(folder / MANIFEST, "build")
    config, place = manifest["config"], manifest["data"]["source"]
    settings = BuildSettings.from_config({**config["settings"], "redact": False}, place)
    digest = None  # of the data as it is now, where it is on this machine
    if is_named(settings.data) or Path(settings.data).exists():
        with suppress(PrbenchError):
            digest = read_items(settings, None).hash
    if digest is None:
        yield f"{folder}: its data {place} cannot be read here. Remove the person there too."
    elif digest != config["data"]["hash"]:
        # The data has lost the person as well: the build may go on with what is left.
        config = {**config, "data": {**config["data"], "hash": digest}}
        write_json(folder / MANIFEST, {**manifest, "run_id": run_id(config), "config": config})
    else:
        yield f"{folder}: its data {place} is as it was. If the person is in it, name it with --in too."
    if has_summary:
        write_json(folder / SUMMARY, new)


def refresh_card(folder: Path) -> None:
    """Make the card of a dataset, if there is one, say what is there now; files without rows go."""
    path = folder / "README.md"
    header = _card_header(path)
    if header is None:
        return
    for config in header["configs"]:
        for entry in config["data_files"]:
            file = folder / entry["path"]
            kind = FileKind.PARQUET if file.suffix == ".parquet" else FileKind.LINES
            if file.exists() and (file.stat().st_size == 0 or next(rows_of(file, kind), None) is None):
                file.unlink()
        config["data_files"] = [entry for entry in config["data_files"] if (folder / entry["path"]).exists()]
    header["configs"] = [config for config in header["configs"] if config["data_files"]]
    left = {config["config_name"] for config in header["configs"]}
    header["dataset_info"] = [info for info in header.get("dataset_info", []) if info["config_name"] in left]
    body = path.read_text(encoding="utf-8").split("---\n", 2)[2]
    counted = _with_counts(body, folder, header)
    if counted == body:
        return
    if NOTE not in counted:
        counted = f"{counted.rstrip()}\n\n{NOTE}\n"
    write_text(path, f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n{counted}")


def _card_header(path: Path) -> dict[str, Json] | None:
    """Return the header of a card that names its files, as we write it."""
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text.startswith("---\n") or text.count("---\n") < 2:
        return None
    try:
        header = yaml.safe_load(text.split("---\n", 2)[1])
    except yaml.YAMLError:
        return None
    configs = header.get("configs") if isinstance(header, dict) else None
    is_prbench_result = COUNTS_HEAD in text and isinstance(configs, list)
    return header if is_prbench_result else None


def _with_counts(body: str, folder: Path, header: Mapping[str, Json]) -> str:
    """Put the new counts into the tables of a card that we wrote."""
    examples: list[Example] = []
    lines = []
    for config in header["configs"]:
        for entry in config["data_files"]:
            with open_examples(folder / entry["path"]) as store:
                rows = list(store)
            lines.append(f"| {config['config_name']} | {entry['split']} | {len(rows)} |")
            examples += [row for row in rows if isinstance(row, Example)]
    counts = COUNTS_HEAD + "".join(f"{line}\n" for line in lines)
    body = re.sub(re.escape(COUNTS_HEAD) + r"(?:\|.*\|\n)*", lambda _: counts, body)
    if FIGURES_HEAD in body and examples:
        before, after = body.split(FIGURES_HEAD, 1)
        rest = re.sub(r"\A(?:\|.*\|\n)+", "", after)
        body = f"{before}{FIGURES_HEAD}{figures_table(examples)}\n{rest}"
    return body


def _counted_again(folder: Path, old: Mapping[str, Json]) -> dict[str, Json]:
    """Return the summary with the counts that follow from the rows; what was spent stays spent."""
    losses = list(_lines(folder / REJECTS))
    pairs = list(_lines(folder / PAIRS))
    ranked = {row["id"] for row in _lines(folder / STAGE_FILES[BuildStage.RANK])}
    drawn = {row["id"] for row in _lines(folder / STAGE_FILES[BuildStage.DRAW])}
    entered = len({row["id"] for row in losses} | ranked | drawn | {row["id"] for row in pairs})
    stages: dict[str, Json] = {}
    for name, stage in old["stages"].items():
        lost = Counter(row["reason"] for row in losses if row["stage"] == name)
        failed = sum(lost.pop(reason, 0) for reason in BROKEN)
        passed = entered - failed - lost.total()
        rounds = stage.get("rounds", [])
        if rounds:
            rows = list(_lines(folder / STAGE_FILES[BuildStage(name)]))
            last = max((row["round"] for row in rows), default=-1)
            by_round = [[row for row in rows if row["round"] == number] for number in range(last + 1)]
            rounds = [{"in": len(some), "out": sum(bool(row["ok"]) for row in some)} for some in by_round]
        counts = {"in": entered, "out": passed, "rejected": dict(sorted(lost.items())), "failed": failed}
        stages[name] = {**stage, **counts, "rounds": rounds}
        entered = passed
    first = next(iter(stages), "")
    gone = old["stages"][first]["in"] - stages[first]["in"] if first else 0
    return {
        **old,
        "data": {**old["data"], "rows": stages[first]["in"] if first else 0},
        "pairs": len(pairs),
        "users": len({row["user_id"] for row in pairs}),
        "stages": stages,
        **({"forgotten": old.get("forgotten", 0) + gone} if gone or "forgotten" in old else {}),
    }


def _lines(path: Path) -> Iterator[dict[str, Json]]:
    if path.exists():
        with path.open("rb") as file:
            yield from map(json.loads, file)
