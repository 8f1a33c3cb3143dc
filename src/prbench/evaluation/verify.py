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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from prbench.data import DataSettings, ExampleStore
from prbench.errors import RunError, UsageError, shortened
from prbench.evaluation.run import run_context
from prbench.evaluation.score import can_swap, chosen_comes_first, facts_of, of_comparisons
from prbench.evaluation.settings import EvalSettings
from prbench.evaluation.summary import MAX_FAILED, POPULATIONS, FinishedRun, summarize
from prbench.metrics.ratings import with_alignments
from prbench.registry import MODELS
from prbench.runs import ITEMS, MANIFEST, SUMMARY, TIMING, from_record, to_record
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

LARGEST = 2**63  # of whole numbers; a seed is the largest that a run has
LONGEST = 80  # characters of what is quoted of an error
NAMED = 3  # rows of one fault that are named; the others are counted
TOLERANCE = 2e-6  # figures are kept to six digits, and the last one may differ from machine to machine
RESUBMIT = "Submit the folder as `prbench eval` wrote it."
# What a file brings about that no run of ours wrote, wherever it is met: it refuses that submission, and no other.
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
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


def verify_run(folder: Path, store: ExampleStore | None = None, which: DataSettings | None = None) -> Verification:
    """Check the run in a folder; with the rows of its dataset, against those as well.

    `which` says how the dataset is called: its name and split in a submission are what the submitter claims.
    """
    faults = _Faults()
    try:
        found = _verify(folder, store, which, faults)
    except (RunError, UsageError) as error:
        faults.add(str(error))
    except _BROKEN as error:
        faults.add(f"{folder}: cannot be read as a run ({type(error).__name__}: {shortened(str(error), LONGEST)}).")
    else:
        if found is not None:
            return found
    # Half a surrogate pair, quoted from the submission, can be neither printed nor written.
    lines = (line.encode("utf-8", "backslashreplace").decode("utf-8") for line in faults.lines())
    return Verification(folder=folder, faults=tuple(lines), missing=())


def _verify(
    folder: Path, store: ExampleStore | None, which: DataSettings | None, faults: _Faults
) -> Verification | None:
    """Return a run that holds; of another one, `None`, or the error of the first file that cannot be read."""
    manifest = _manifest_of(folder, faults)
    config, facts = manifest["config"], manifest["facts"]
    settings = EvalSettings.from_config(config["settings"])
    submitted = _strict(folder / SUMMARY)
    rows = _rows_of(folder, faults)
    is_of_data = store is not None and store.content_hash == config["data_hash"]
    _check_probes(rows, manifest, settings, store if is_of_data else None, faults)
    kind = _Kind.of(config, rows)
    for row in rows:
        _check_row(row, settings, kind, faults)
    if store is not None:
        _check_data(rows, config, settings, store, faults)
    if faults.lines():  # figures of rows that contradict each other are worth nothing
        return None
    _check_summary(submitted, rows, facts, settings, faults)
    if faults.lines():
        return None
    missing = list(_missing(folder, manifest, submitted, settings, rows, store))
    if store is not None and which is not None:
        missing.extend(_other_names(manifest, which))
        manifest = _named_by(manifest, which, store)
    summary = summarize(rows, manifest["facts"], settings.probes)
    run = FinishedRun(folder=folder, manifest=manifest, summary=summary, rows=rows)
    return Verification(folder=folder, faults=(), missing=tuple(missing), run=run)


def _named_by(manifest: Mapping[str, Json], which: DataSettings, store: ExampleStore) -> dict[str, Json]:
    """Return the manifest with its data called what the dataset at hand is called: the same rows, by their hash."""
    facts = manifest["facts"]
    data = {**facts["data"], "name": which.source, "bad_rows": len(store.bad_rows)}
    return {**manifest, "data": which.to_config(), "facts": {**facts, "data": data}}


def _other_names(manifest: Mapping[str, Json], which: DataSettings) -> Iterator[str]:
    """Yield what the submission calls its data, where that differs: the same rows may lie in several files."""
    name, data, own = manifest["facts"]["data"]["name"], manifest["data"], which.to_config()
    said: dict[str, tuple[Json, Json]] = {"name": (name, which.source)}
    said |= {key: (data.get(key), own.get(key)) for key in ("source", "subset", "split", "revision", "limit")}
    if said["source"] == said["name"]:
        del said["source"]
    for key, (theirs, ours) in said.items():
        if theirs != ours:
            yield f"its {key} of the data, {_quoted(theirs)}, is not shown: --data says {_quoted(ours)}"


def _strict(path: Path) -> dict[str, Json]:
    """Return the object of a JSON file in which every number is one, and no key stands twice."""
    try:
        content = _strict_json(path.read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()  # infinity, and half a surrogate pair
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
    return json.loads(text, parse_constant=_check_constant, parse_int=_bounded_int, object_pairs_hook=_without_doubles)


def _bounded_int(text: str) -> int:
    number = int(text)
    if abs(number) >= LARGEST:
        raise ValueError(f"{shortened(text, LONGEST)} is larger than any number of a run")
    return number


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
    manifest = read_manifest(folder, "submission", RESUBMIT)  # its run id is the hash of its config
    if manifest["kind"] != EVAL:
        raise RunError(
            f"{path}: was made by `prbench {manifest['kind']}`. A leaderboard takes runs of `prbench eval`."
        )
    require_facts(folder, manifest, RESUBMIT)
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
            _check_text(row)
        except ValueError as error:
            raise RunError(f"{path}:{number}: not a row of ours ({error}).") from None
        except (*NO_ROW, AttributeError, RecursionError):
            raise RunError(f"{path}:{number}: not a row of ours.") from None
        if (row.id, row.probe) in found:
            faults.add_row("stands twice", _place(row))
        found[(row.id, row.probe)] = row
    rows = [found[key] for key in sorted(found)]
    rated = [row for row in rows if isinstance(row, RatedRow)]
    if rated and len(rated) < len(rows):
        raise RunError(f"{path}: holds pairs and ratings, and a run is of one of them.")
    return _with_alignments(rated, faults) if rated else rows


def _check_text(row: Row | RatedRow) -> None:
    """Refuse half a surrogate pair in what pages and exports show; a model's own words may hold one."""
    for text in (row.id, row.user_id, row.category, row.question_hash, *map(str, (*row.groups, *row.groups.values()))):
        text.encode()


def _with_alignments(rows: Sequence[RatedRow], faults: _Faults) -> list[Row | RatedRow]:
    """Return rated rows with the columns that all rows together give; those that were handed in must be the same."""
    computed = with_alignments(rows)
    for said, anew in zip(rows, computed, strict=True):
        if not (_same(said.predicted, anew.predicted) and _same(said.alignment, anew.alignment)):
            faults.add_row("`predicted` or `alignment` does not follow from the scores", _place(said))
    return list(computed)


def _check_probes(
    rows: Sequence[Row | RatedRow],
    manifest: Mapping[str, Json],
    settings: EvalSettings,
    store: ExampleStore | None,
    faults: _Faults,
) -> None:
    """Every item is asked under every probe, and says the same of itself each time."""
    of_probe: dict[Probe, dict[str, Row | RatedRow]] = {probe: {} for probe in Probe}
    for row in rows:
        of_probe[row.probe][row.id] = row
    own = of_probe[Probe.OWN]
    _check_counts(own, manifest["facts"], faults)
    is_labeled = bool(manifest["config"]["context"].get("labels"))
    if store is not None:
        swapped = _swapped_of(store, settings, is_labeled=is_labeled) & own.keys()
    else:
        swapped = _swapped_by_rows(own, of_probe[Probe.SWAP], settings, is_labeled=is_labeled)
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
        wanted = swapped if probe is Probe.SWAP else own.keys()
        for name in sorted(wanted - found.keys()):
            faults.add_row(f"has no row of the probe {probe.value!r}", name)
        for name in sorted((found.keys() & own.keys()) - wanted):
            faults.add_row(f"has a row of the probe {probe.value!r}, for which there is nobody", name)


def _swapped_of(store: ExampleStore, settings: EvalSettings, *, is_labeled: bool) -> set[str]:
    """Return the items of a dataset for which there is somebody else to be shown."""
    return {
        example.id
        for position, example in enumerate(store)
        if can_swap(example.user, store.donor(position, settings.seed), settings.context, labeled=is_labeled)
    }


def _swapped_by_rows(
    own: Mapping[str, Row | RatedRow],
    found: Mapping[str, Row | RatedRow],
    settings: EvalSettings,
    *,
    is_labeled: bool,
) -> set[str]:
    """Return the items that must have been swapped, as far as rows can tell.

    A swap needs another user of the category, and where posts are shown, one with other posts. So of a category either
    all items are swapped, or none is, as all of its users have the same posts.
    """
    users_of: dict[str, set[str]] = defaultdict(set)
    for row in own.values():
        users_of[row.category].add(row.user_id)
    needs_posts = settings.context != "none" and not is_labeled
    were = {own[name].category for name in found if name in own}
    return {
        name
        for name, row in own.items()
        if settings.context != "oracle"
        and len(users_of[row.category]) > 1
        and (row.category in were or not needs_posts)
    }


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


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What a verdict of a model comes from."""

    compares: bool  # it prefers one of two, so a verdict has picks
    is_recorded: bool  # another program asked, in orders of its own

    @classmethod
    def of(cls, config: Mapping[str, Json], rows: Sequence[Row | RatedRow]) -> "_Kind":
        """Read it off the kind, and off the name, of the model; where a row has picks, all of them have."""
        kind = MODELS.get(config["model_kind"])
        named = MODELS.get(config["model"].partition(":")[0])
        return cls(
            compares=any(each is not None and each.compares for each in (kind, named))
            or any(isinstance(row, Row) and row.orders for row in rows),
            is_recorded=kind is not None and kind.is_recorded,
        )


def _check_row(row: Row | RatedRow, settings: EvalSettings, kind: _Kind, faults: _Faults) -> None:
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
        _check_orders(row, settings, kind, faults)
        return
    if kind.compares and (row.verdict is not Verdict.UNREADABLE or numbers != (None, None)):
        faults.add_row("has a verdict and no picks, and its model compares", _place(row))
        return
    verdict = decide(Score(value=row.score_chosen), Score(value=row.score_rejected))
    if row.verdict is not verdict:
        faults.add_row(f"its scores give another verdict than {row.verdict.value!r}", _place(row))
    if (verdict is Verdict.UNREADABLE) != bool(row.problem):
        faults.add_row("has a verdict and a reason why there is none, or neither", _place(row))


def _check_orders(row: Row, settings: EvalSettings, kind: _Kind, faults: _Faults) -> None:
    names = [str(each["order"]) for each in row.orders]
    first = "chosen_first" if chosen_comes_first(row.id, seed=settings.seed) else "rejected_first"
    both = ["chosen_first", "rejected_first"]
    if settings.orders == "both":
        is_asked = sorted(names) == both
    else:
        is_asked = names == [first] or (kind.is_recorded and len(names) == 1 and names[0] in both)
    if not is_asked:
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
    submitted: Mapping[str, Json],
    rows: Sequence[Row | RatedRow],
    facts: Mapping[str, Json],
    settings: EvalSettings,
    faults: _Faults,
) -> None:
    """Every figure is what the rows give, and lies within its interval."""
    try:
        anew = summarize(rows, facts, settings.probes)
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
        yield "no --data was given: the name of the data is what the submitter says"
        if unswapped := summary["unswapped"]:
            yield f"{unswapped['items']} items were not swapped: only --data shows whether nobody's posts differ"


def same_rows(one: FinishedRun, other: FinishedRun) -> bool:
    """True where two runs say the same of the same items, but for the rounding of scores and a judge's own words."""
    if len(one.rows) != len(other.rows):
        return False
    pairs = zip(one.rows, other.rows, strict=True)  # both are sorted
    return not any(True for a, b in pairs for _ in _differences(_said(a), _said(b)))


def _said(row: Row | RatedRow) -> dict[str, Json]:
    record = to_record(replace(row, raw="") if isinstance(row, RatedRow) else replace(row, replies=NOTHING))
    if "orders" in record:
        record["orders"] = [{**order, "raw": ""} for order in record["orders"]]
    return {**record, "detail": ""}
