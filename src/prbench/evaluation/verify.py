"""Does a run that somebody hands in add up? Its figures are computed anew from its rows, and its rows from each other.

What can be known without the model: that the manifest is the one which its id names, that every item was asked under
every probe once, that each verdict follows from its scores or from a judge's picks, and that the summary says what the
rows give. With the dataset at hand, also that the rows are of its items, its users and its questions. That a score is
what the model says can be known by asking the model alone: see "What a check cannot see" in docs/how-to/share.md.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from prbench.data import ExampleStore
from prbench.errors import RunError, UsageError
from prbench.evaluation.run import run_context
from prbench.evaluation.score import chosen_comes_first, facts_of, of_comparisons
from prbench.evaluation.settings import EvalSettings
from prbench.evaluation.summary import MAX_FAILED, POPULATIONS, FinishedRun, summarize
from prbench.metrics.ratings import with_alignments
from prbench.runs import ITEMS, MANIFEST, SUMMARY, TIMING, from_record
from prbench.runs.files import EVAL
from prbench.runs.manifest import read_manifest, require_facts
from prbench.runs.rows import NO_ROW
from prbench.schema import (
    NOTHING,
    Comparison,
    Example,
    Json,
    Pick,
    Probe,
    Problem,
    RatedExample,
    RatedRow,
    Row,
    Score,
    Verdict,
    decide,
)

NAMED = 3  # rows of one fault that are named; the others are counted
TOLERANCE = 2e-6  # figures are kept to six digits, and the last one may differ from machine to machine
_ESTIMATE = frozenset({"value", "low", "high"})


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What a run's own files say of it."""

    folder: Path
    faults: tuple[str, ...]  # each of them refuses the run
    missing: tuple[str, ...]  # what is not there, and what that costs
    run: FinishedRun | None = None  # with its figures computed anew; `None` where a fault was found

    @property
    def holds(self) -> bool:
        """True where nothing contradicts anything."""
        return self.run is not None


@dataclass
class _Faults:
    """Faults by what they are, each with the rows that have it."""

    of_rows: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    others: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        self.others.append(fault)

    def add_row(self, fault: str, row: str) -> None:
        self.of_rows[fault].append(row)

    def lines(self) -> tuple[str, ...]:
        found = list(self.others)
        for fault, rows in self.of_rows.items():
            more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
            found.append(f"{ITEMS}: {fault}: {', '.join(rows[:NAMED])}{more}")
        return tuple(found)


def verify_run(folder: Path, store: ExampleStore | None = None) -> Verification:
    """Check the run in a folder; with the rows of its dataset, against those as well."""
    faults = _Faults()
    try:
        manifest = _manifest_of(folder, faults)
        settings = EvalSettings.from_config(manifest["config"]["settings"])
        submitted = _strict(folder / SUMMARY)
        rows = _rows_of(folder, faults)
    except (RunError, UsageError) as error:
        return Verification(folder=folder, faults=(*faults.lines(), str(error)), missing=())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        line = f"{folder / MANIFEST}: its config cannot be read ({type(error).__name__}: {error})."
        return Verification(folder=folder, faults=(*faults.lines(), line), missing=())
    _check_probes(rows, manifest["facts"], settings, faults)
    for row in rows:
        _check_row(row, settings, faults)
    if store is not None:
        _check_data(rows, manifest["config"], settings, store, faults)
    if not faults.lines():  # figures of rows that contradict each other are worth nothing
        _check_summary(submitted, rows, manifest["facts"], faults)
    found = faults.lines()
    if found:
        return Verification(folder=folder, faults=found, missing=())
    summary = summarize(rows, manifest["facts"])
    return Verification(
        folder=folder,
        faults=(),
        missing=tuple(_missing(folder, manifest, summary, settings, rows, store)),
        run=FinishedRun(folder=folder, manifest=manifest, summary=summary, rows=rows),
    )


def _strict(path: Path) -> dict[str, Json]:
    """Return the object of a JSON file in which every number is one, and no key stands twice."""
    try:
        content = _strict_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path}: is missing. Submit the whole folder of a finished run.") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: not valid JSON ({error}).") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: not a JSON object.")
    return content


def _strict_json(text: str) -> Json:
    return json.loads(text, parse_constant=_check_constant, object_pairs_hook=_without_doubles)


def _check_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _without_doubles(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {double!r} stands twice")
    return found


def _manifest_of(folder: Path, faults: _Faults) -> dict[str, Json]:
    """Return the manifest; what readers take from its facts must be what its config says."""
    path = folder / MANIFEST
    _strict(path)
    manifest = read_manifest(folder, "submission")  # its run id is the hash of its config
    if manifest["kind"] != EVAL:
        raise RunError(
            f"{path}: was made by `prbench {manifest['kind']}`. A leaderboard takes runs of `prbench eval`."
        )
    require_facts(folder, manifest)
    config, facts = manifest["config"], manifest["facts"]
    settings = EvalSettings.from_config(config["settings"])
    told = {
        "run_id": manifest["run_id"],
        "model": config["model"],
        "kind": config["model_kind"],
        "seed": settings.seed,
        "context": run_context(config, settings),
    }
    for name, value in told.items():
        if facts[name] != value:
            faults.add(f"{MANIFEST}: facts.{name} is {facts[name]!r}, and its config says {value!r}.")
    if facts["data"]["hash"] != config["data_hash"]:
        faults.add(f"{MANIFEST}: facts.data.hash is not the data_hash of its config, so figures name another dataset.")
    if facts["resample"] not in POPULATIONS:
        faults.add(f"{MANIFEST}: facts.resample is {facts['resample']!r}, which is no population.")
    if not 0 <= facts["max_failed"] <= MAX_FAILED:
        line = f"{MANIFEST}: facts.max_failed is {facts['max_failed']}; a leaderboard takes {MAX_FAILED} at most."
        faults.add(line)
    return manifest


def _rows_of(folder: Path, faults: _Faults) -> list[Row | RatedRow]:
    """Return the rows as a summary takes them, one an item and probe; a line that is none refuses all of them."""
    path = folder / ITEMS
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise RunError(f"{path}: is missing, so no figure can be computed anew. Submit the rows as well.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error}).") from None
    if text and not text.endswith("\n"):
        faults.add(f"{ITEMS}: its last line is cut off.")
    found: dict[tuple[str, str], Row | RatedRow] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line:
            continue
        try:
            row = from_record(_strict_json(line))
        except ValueError as error:
            raise RunError(f"{path}:{number}: not a row of ours ({error}).") from None
        except NO_ROW:
            raise RunError(f"{path}:{number}: not a row of ours.") from None
        if (row.id, row.probe) in found:
            faults.add_row("stands twice", _place(row))
        found[(row.id, row.probe)] = row
    rows = [found[key] for key in sorted(found)]
    rated = [row for row in rows if isinstance(row, RatedRow)]
    if rated and len(rated) < len(rows):
        raise RunError(f"{path}: holds pairs and ratings, and a run is of one of them.")
    return _with_alignments(rated, faults) if rated else rows


def _with_alignments(rows: Sequence[RatedRow], faults: _Faults) -> list[Row | RatedRow]:
    """Return rated rows with the columns that all rows together give; those that were handed in must be the same."""
    computed = with_alignments(rows)
    for said, anew in zip(rows, computed, strict=True):
        if not (_same(said.predicted, anew.predicted) and _same(said.alignment, anew.alignment)):
            faults.add_row("`predicted` or `alignment` does not follow from the scores", _place(said))
    return list(computed)


def _check_probes(
    rows: Sequence[Row | RatedRow], facts: Mapping[str, Json], settings: EvalSettings, faults: _Faults
) -> None:
    """Every item is asked under every probe, and says the same of itself each time."""
    of_probe: dict[Probe, dict[str, Row | RatedRow]] = {probe: {} for probe in Probe}
    for row in rows:
        of_probe[row.probe][row.id] = row
    own = of_probe[Probe.OWN]
    _check_counts(own, facts, faults)
    users_of: dict[str, set[str]] = defaultdict(set)
    for row in own.values():
        users_of[row.category].add(row.user_id)
    for probe, found in of_probe.items():
        if probe not in settings.probes:
            for name in found:
                faults.add_row(f"is of the probe {probe.value!r}, which was not asked", name)
            continue
        for name, row in found.items():
            if name not in own:
                faults.add_row("is of an item that was not asked with its own profile", _place(row))
            elif _facts_of_row(row) != _facts_of_row(own[name]):
                faults.add_row(
                    "says another user, category, question or group than under its own profile", _place(row)
                )
        # A swap needs another user of the category, and a gold rubric has nothing to swap.
        is_oracle = settings.context == "oracle"
        asked = {n for n, row in own.items() if len(users_of[row.category]) > 1 and not is_oracle}
        wanted = asked if probe is Probe.SWAP else own.keys()
        for name in sorted(wanted - found.keys()):
            faults.add_row(f"has no row of the probe {probe.value!r}", name)
        for name in sorted((found.keys() & own.keys()) - wanted):
            faults.add_row(f"has a row of the probe {probe.value!r}, for which there is nobody", name)


def _check_counts(own: Mapping[str, Row | RatedRow], facts: Mapping[str, Json], faults: _Faults) -> None:
    """There are as many items and users as the manifest says."""
    if len(own) != facts["data"]["rows"]:
        faults.add(
            f"{ITEMS}: has {len(own)} items with their own profile, and the manifest says {facts['data']['rows']}."
        )
    users = len({row.user_id for row in own.values()})
    if users != facts["data"].get("users"):
        faults.add(f"{ITEMS}: has {users} users, and the manifest says {facts['data'].get('users')}.")


def _facts_of_row(row: Row | RatedRow) -> tuple[Json, ...]:
    rating = (row.rating,) if isinstance(row, RatedRow) else ()
    return (row.user_id, row.category, row.question_hash, dict(row.groups), *rating)


def _check_row(row: Row | RatedRow, settings: EvalSettings, faults: _Faults) -> None:
    """A verdict follows from two scores, or from what a judge picked in each order; a score is a number or nothing."""
    numbers = (row.score,) if isinstance(row, RatedRow) else (row.score_chosen, row.score_rejected)
    if not all(number is None or math.isfinite(number) for number in numbers):
        faults.add_row("has a score that is no finite number", _place(row))
    if row.posts_used < 0 or row.posts_dropped < 0:
        faults.add_row("has a negative count of posts", _place(row))
    if row.probe is Probe.NONE and row.posts_used:
        faults.add_row("was asked without a profile, and says that posts were shown", _place(row))
    if isinstance(row, RatedRow):
        if not 0 <= row.rating <= 1:
            faults.add_row("has a rating outside of [0, 1]", _place(row))
        if (row.score is None) != bool(row.problem):
            faults.add_row("has a score and a reason why there is none, or neither", _place(row))
        return
    if row.orders:
        _check_orders(row, settings, faults)
        return
    verdict = decide(Score(value=row.score_chosen), Score(value=row.score_rejected))
    if row.verdict is not verdict:
        faults.add_row(f"its scores give another verdict than {row.verdict.value!r}", _place(row))
    if (verdict is Verdict.UNREADABLE) != bool(row.problem):
        faults.add_row("has a verdict and a reason why there is none, or neither", _place(row))


def _check_orders(row: Row, settings: EvalSettings, faults: _Faults) -> None:
    names = [str(each["order"]) for each in row.orders]
    first = "chosen_first" if chosen_comes_first(row.id, seed=settings.seed) else "rejected_first"
    wanted = {"chosen_first", "rejected_first"} if settings.orders == "both" else {first}
    if sorted(names) != sorted(wanted):
        faults.add_row(f"was not asked in the orders that the settings say ({settings.orders})", _place(row))
        return
    try:
        answers = [
            (
                each["order"] == "chosen_first",
                Comparison(pick=Pick(each["pick"]), problem=Problem(each["reason"]), margin=_margin(each["margin"])),
            )
            for each in row.orders
        ]
    except NO_ROW:
        faults.add_row("has orders that cannot be read", _place(row))
        return
    follows = of_comparisons(answers)
    if row.verdict is not follows["verdict"]:
        faults.add_row(f"its orders give another verdict than {row.verdict.value!r}", _place(row))
    if not all(_same(getattr(row, name), follows[name]) for name in ("score_chosen", "score_rejected")):
        faults.add_row("its scores are not those of its orders", _place(row))
    if row.problem is not follows["problem"]:
        faults.add_row("its reason is not that of its orders", _place(row))


def _margin(value: Json) -> float | None:
    if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
        raise ValueError("margin")
    return None if value is None else float(value)


def _check_data(
    rows: Sequence[Row | RatedRow],
    config: Mapping[str, Json],
    settings: EvalSettings,
    store: ExampleStore,
    faults: _Faults,
) -> None:
    """The rows are of the items of the dataset, each of its own user, question and category."""
    if store.content_hash != config["data_hash"]:
        faults.add(
            f"{MANIFEST}: is of the dataset {str(config['data_hash'])[:12]}, and --data is {store.content_hash[:12]}. "
            "Give the data of the leaderboard with its --split and --limit, or refuse the run."
        )
        return
    known = {example.id: _of_example(example) for example in store}
    for row in rows:
        if row.id not in known:
            faults.add_row("is of no item of the dataset", _place(row))
            continue
        told, posts = known[row.id]
        if _facts_of_row(row) != told:
            faults.add_row("says another user, category, question or group than the dataset", _place(row))
        if row.probe is Probe.OWN and settings.context == "profile" and not config["context"].get("labels"):
            shown = row.posts_used + row.posts_dropped
            if shown > min(posts, settings.posts):
                faults.add_row(
                    "says that more posts were shown than its user has, or than were asked for", _place(row)
                )
    for name in sorted(known.keys() - {row.id for row in rows}):
        faults.add_row("an item of the dataset was left out", name)


def _of_example(example: Example | RatedExample) -> tuple[tuple[Json, ...], int]:
    facts: dict[str, Any] = facts_of(example)
    rating = (example.rating,) if isinstance(example, RatedExample) else ()
    told = (facts["user_id"], facts["category"], facts["question_hash"], facts["groups"], *rating)
    return told, len(example.user.profile)


def _check_summary(
    submitted: Mapping[str, Json], rows: Sequence[Row | RatedRow], facts: Mapping[str, Json], faults: _Faults
) -> None:
    """Every figure is what the rows give, and lies within its interval."""
    try:
        anew = summarize(rows, facts)
    except UsageError as error:
        faults.add(f"{ITEMS}: no figures can be computed: {error}")
        return
    known = set(_impossible(anew))  # the mean of few discrete draws may lie outside of their middle 95 %
    for place in _impossible(submitted):
        if place not in known:
            faults.add(f"{SUMMARY}: {place}: its interval does not hold its value, or its n is below 0.")
    different = list(_differences(submitted, anew))
    for place, said, found in different[:NAMED]:
        faults.add(f"{SUMMARY}: {place} is {_quoted(said)}, and the rows give {_quoted(found)}.")
    if len(different) > NAMED:
        faults.add(f"{SUMMARY}: and {len(different) - NAMED} more figures differ from what the rows give.")


def _impossible(found: Json, place: str = "") -> Iterator[str]:
    """Yield where a figure lies outside of its own interval."""
    if isinstance(found, Mapping):
        if found.keys() >= _ESTIMATE and all(isinstance(found[name], int | float) for name in _ESTIMATE):
            is_sound = found["low"] <= found["value"] <= found["high"]
            if not is_sound or (isinstance(found.get("n"), int | float) and found["n"] < 0):
                yield place
        for key, inner in found.items():
            yield from _impossible(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(found, list):
        for number, inner in enumerate(found):
            yield from _impossible(inner, f"{place}[{number}]")


def _differences(said: Json, found: Json, place: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Yield where two summaries differ by more than rounding."""
    if isinstance(said, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*found, *said)):
            inner = f"{place}.{key}" if place else str(key)
            if (key in said) != (key in found):
                yield inner, said.get(key, "not there"), found.get(key, "not there")
            else:
                yield from _differences(said[key], found[key], inner)
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for number, (one, other) in enumerate(zip(said, found, strict=True)):
            yield from _differences(one, other, f"{place}[{number}]")
    elif not _same(said, found):
        yield place, said, found


def _same(one: Json, other: Json) -> bool:
    is_number = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    if is_number:
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(one) is type(other) and bool(one == other)


def _quoted(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _place(row: Row | RatedRow) -> str:
    return f"{row.id} ({row.probe})"


def _missing(
    folder: Path,
    manifest: Mapping[str, Json],
    summary: Mapping[str, Json],
    settings: EvalSettings,
    rows: Sequence[Row | RatedRow],
    store: ExampleStore | None,
) -> Iterator[str]:
    """Yield what is not there, and what that costs."""
    costs = {Probe.NONE: "no gain", Probe.SWAP: "no swap gap"}
    for probe, cost in costs.items():
        if probe not in settings.probes:
            yield f"the probe {probe.value!r} was not asked: {cost}"
    if not manifest.get("environment", NOTHING):
        yield f"{MANIFEST} names no environment: what computed the scores is not known"
    if not manifest["command"]:
        yield f"{MANIFEST} names no command: the run can be repeated by its config alone"
    if not (folder / TIMING).exists():
        yield f"{TIMING} is missing: how long it took is not known"
    judged = [row for row in rows if isinstance(row, Row) and row.orders]
    if judged and not any(each.get("raw") for row in judged for each in row.orders):
        yield "the judge's own words were left out: its picks cannot be read again"
    if summary["to_ask_again"]:
        yield f"{summary['to_ask_again']} items failed, and count as wrong until the command is run again"
    if summary["accuracy"] is None and summary["ratings"] is None:
        yield "no accuracy: too few verdicts can be read"
    if store is None:
        yield "no --data was given: items, users and questions were not compared with the dataset"
