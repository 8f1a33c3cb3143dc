"""From runs to a board: lines with intervals, rank letters, floors and ceilings, and what the set can resolve.

Every figure has one name, in the terminal, on pages and in CSV: see `METRICS`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prbench.errors import shortened
from prbench.evaluation.score import what_is_not_recorded
from prbench.evaluation.summary import BESIDE_OF, FEWEST_QUESTIONS, POPULATIONS, FinishedRun
from prbench.metrics.compare import planned_resolution, rank_board
from prbench.metrics.estimate import USERS, USERS_AND_QUESTIONS, Over
from prbench.metrics.groups import figures_of
from prbench.metrics.number_format import MISSING, PERCENT, POINTS, NumberFormat, counted, p_text
from prbench.registry import MODELS
from prbench.schema import Json, Probe, RatedRow, Row

NOTHING_YET = {"value": 0.0}
AT_BOUND = "temperature at its bound"  # no temperature fits: what it yields is no confidence of the model
FLOOR, CEILING, RANKED = "floor", "ceiling", "ranked"
PAIRS, RATINGS = "pairs", "ratings"  # the kinds of boards
LONGEST_DETAIL = 300  # characters of what one item says of its failure
Summary = Mapping[str, Json]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run on the board."""

    run: FinishedRun
    role: str  # floor (a control), ceiling (saw the gold rubric), or ranked
    letters: str  # runs that share one cannot be told apart; ceilings, and runs without an accuracy, have none

    @property
    def summary(self) -> Summary:
        """The figures of the run."""
        return self.run.summary


@dataclass(frozen=True, kw_only=True)
class Board:
    """All runs on one dataset, best first; ceilings last."""

    kind: str  # pairs, or ratings
    data: str
    n: int
    users: int
    resolution: str
    population: str  # what the intervals speak of
    lines: tuple[Line, ...]

    @property
    def size(self) -> str:
        """How many pairs or ratings of how many users these are."""
        return f"{counted(self.n, self.kind.removesuffix('s'))} of {counted(self.users, 'user')}"


@dataclass(frozen=True)
class Metric:
    """One figure of a run: its name everywhere, what it says, and where a summary has it."""

    name: str
    path: str
    help: str
    form: NumberFormat = PERCENT
    printed: str = (
        ""  # on the board in the terminal: with its `interval`, with a `star`, `alone`, or the `bounds` alone
    )
    dull: str = ""  # there: what it says when there is nothing to see; a column of nothing else is left out
    doubt: str = ""  # what to know before one believes the figure, where `doubt_path` of the summary is true
    doubt_path: str = ""

    def read(self, summary: Summary) -> Json:
        """Return the figure of a run: an estimate, a bare number, or `None`."""
        return _at(summary, self.path)

    def caveat(self, summary: Summary) -> str:
        """Return what stands beside the figure of this run, so that it is not misread; "" where nothing does."""
        return self.doubt if self.doubt and _at(summary, self.doubt_path) else ""

    def text(self, summary: Summary, how: str = "interval") -> str:
        """Return the figure of a run as text."""
        figure = self.read(summary)
        if isinstance(figure, float | int):
            return self.form.number(figure)
        if how == "bounds":
            return MISSING if figure is None else self.form.interval(figure["low"], figure["high"])
        write = {"interval": self.form.estimate, "star": self.form.starred, "alone": self.form.value}[how]
        return write(figure)

    def is_dull(self, summaries: Sequence[Summary]) -> bool:
        """Tell whether there is nothing to see in a column: no figure at all, or the same usual one throughout."""
        shown = {self.text(summary, self.printed or "interval") for summary in summaries}
        return {self.dull or MISSING, MISSING}.issuperset(shown)


def _at(summary: Summary, path: str) -> Json:
    found: Json = summary
    for key in path.split("."):
        found = found[key] if found else None
    return found


COVERAGE = Metric("coverage", "coverage", "Share of readable verdicts", printed="alone", dull="100.0")
METRICS: Mapping[str, Sequence[Metric]] = {
    PAIRS: (
        Metric("accuracy", "accuracy", "Unreadable counts as wrong, a tie as one half", printed="interval"),
        Metric(
            "new questions",
            "population.new_questions.accuracy",
            "The interval of accuracy for new users and new questions",
            printed="bounds",
            dull=MISSING,
        ),
        Metric(
            "these questions",
            "population.these_questions.accuracy",
            "The interval of accuracy for new users with these questions",
            printed="bounds",
            dull=MISSING,
        ),
        Metric(
            "gain", "personalization_gain", "Accuracy with the profile minus without, paired", POINTS, printed="star"
        ),
        Metric(
            "swap gap",
            "swap.gap",
            "Accuracy with the own profile minus with another user's, paired",
            POINTS,
            printed="star",
        ),
        Metric(
            "minority",
            "minority_accuracy",
            "Accuracy where this user wants what most users do not want; where that is known of the users",
            printed="alone",
        ),
        Metric(
            "gap on impersonal errors",
            "impersonal_errors.gap",
            "Swap gap on the pairs that the model gets wrong when it knows nobody",
            POINTS,
        ),
        Metric("majority", "majority_accuracy", "Accuracy where this user wants what most users want"),
        Metric("by user", "macro_user_accuracy", "Mean over users of their accuracy"),
        Metric(
            "worst decile",
            "worst_decile_accuracy",
            "Mean accuracy of the tenth of users that are served worst",
            printed="alone",
        ),
        Metric(
            "worst by chance",
            "worst_decile_accuracy.chance",
            "The worst decile, if all users had the same accuracy: below its interval, some users are served worse",
            printed="bounds",
        ),
        Metric("ties", "tie_rate", "Share of ties", printed="alone", dull="0.0"),
        COVERAGE,
        Metric("consistent", "order.consistent", "Judges: share of pairs whose two orders name the same response"),
        Metric(
            "position bias",
            "order.position_bias",
            "Judges: how much more often than chance the first response is picked",
            POINTS,
        ),
        Metric(
            "calibration error",
            "calibration.ece",
            "How far confidence is from the share that is right, after one temperature",
            doubt=AT_BOUND,
            doubt_path="calibration.temperature_at_bound",
        ),
    ),
    RATINGS: (
        Metric("alignment", "ratings.alignment", "1 - |mapped score - rating|, mean over users", printed="interval"),
        Metric("floor", "ratings.floor", "Guessing the others' mean rating", printed="alone"),
        Metric("gain", "ratings.gain.alignment", "Alignment with the profile minus without", POINTS, printed="star"),
        Metric(
            "swap gap",
            "ratings.swap_gap.alignment",
            "Alignment with the own profile minus with another user's",
            POINTS,
            printed="star",
        ),
        Metric("Spearman", "ratings.spearman", "Mean over users", NumberFormat(2), printed="alone"),
        Metric("Kendall", "ratings.kendall", "Mean over users", NumberFormat(2), printed="alone"),
        COVERAGE,
    ),
}
LEGEND = (
    "Runs that share a letter (#) cannot be told apart; those that share none can (paired test clustered by users, "
    "Holm over all pairs). gain: accuracy with minus without the profile. swap gap: own minus another user's profile. "
    "Controls are floors; oracle runs saw the gold rubric: a ceiling, not ranked."
)
STAR = "*: the interval excludes 0."
GROUP_FIGURES: Mapping[str, tuple[str, NumberFormat]] = {  # by their names in a summary
    "accuracy": ("accuracy", PERCENT),
    "gain": ("gain", POINTS),
    "swap_gap": ("swap gap", POINTS),
    "alignment": ("alignment", PERCENT),
    "spearman": ("Spearman", NumberFormat(2)),
}
GROUP_NOTE = (
    "p: how often chance alone puts the best and the worst group as far apart, whichever they are. With many or small "
    "groups a gap is large by chance; its interval takes the two groups as given."
)


def make_boards(runs: Sequence[FinishedRun]) -> list[Board]:
    """Return one board per dataset, in the order in which the datasets first appear."""
    by_data: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        kind = RATINGS if run.summary["ratings"] is not None else PAIRS
        by_data.setdefault((run.summary["data"]["hash"], kind), []).append(run)
    make = {PAIRS: _pairs_board, RATINGS: _ratings_board}
    return [make[kind](group) for (_, kind), group in by_data.items()]


def _pairs_board(runs: Sequence[FinishedRun]) -> Board:
    by_id = {str(run.folder): run for run in runs}  # folders of one name may lie in several places
    own = {
        name: [row for row in run.rows if isinstance(row, Row) and row.probe is Probe.OWN]
        for name, run in by_id.items()
    }
    # What has no accuracy, for want of readable verdicts, cannot be ranked; a ceiling is not.
    contenders = {name for name, run in by_id.items() if run.summary["accuracy"] and _role(run) != CEILING}
    lines, resolution = [], planned_resolution(list(Counter(row.user_id for row in own[str(runs[0].folder)]).values()))
    if contenders:
        over = _headline_over(runs)
        ranked = rank_board({name: own[name] for name in sorted(contenders)}, over=over)
        resolution = ranked.resolution
        lines = [
            Line(run=by_id[standing.name], role=_role(by_id[standing.name]), letters=standing.letters)
            for standing in ranked.standings
        ]
    others = sorted((run for name, run in by_id.items() if name not in contenders), key=lambda run: run.name)
    others.sort(key=lambda run: _role(run) == CEILING)
    lines += [Line(run=run, role=_role(run), letters="") for run in others]
    return _board(PAIRS, runs, resolution.sentence, lines)


def _headline_over(runs: Sequence[FinishedRun]) -> Over:
    """Return what the intervals of all these runs think of as drawn anew; users alone where they differ."""
    found = {run.summary["population"]["over"] for run in runs if run.summary["population"]}
    return USERS_AND_QUESTIONS if found == {USERS_AND_QUESTIONS} else USERS


def _ratings_board(runs: Sequence[FinishedRun]) -> Board:
    """Return the runs by alignment. They get no letters: the differences are not tested here."""
    ranked = sorted(runs, key=lambda run: (-((run.summary["ratings"]["alignment"] or NOTHING_YET)["value"]), run.name))
    note = "Compare alignment with its floor: guessing the other users' mean rating each time."
    lines = [Line(run=run, role=FLOOR if run.summary["kind"] == "control" else RANKED, letters="") for run in ranked]
    return _board(RATINGS, runs, note, lines)


def _role(run: FinishedRun) -> str:
    if run.summary["context"] == "oracle":
        return CEILING
    return FLOOR if run.summary["kind"] == "control" else RANKED


def _board(kind: str, runs: Sequence[FinishedRun], resolution: str, lines: Sequence[Line]) -> Board:
    first = runs[0]
    data = first.summary["data"]
    names = dict.fromkeys(run.summary["data"]["name"] for run in runs)  # the same rows may lie in several files
    return Board(
        kind=kind,
        data=visible(", ".join(names)),
        n=first.summary["n_items"],
        users=data["users"],
        resolution=resolution,
        population=population_sentence(lines[0].summary) if kind == PAIRS and lines else "",
        lines=tuple(lines),
    )


def board_table(boards: Sequence[Board]) -> tuple[tuple[str, ...], list[list[Json]]]:
    """Return one line per run, best first: every figure of the boards as its value, its interval and its n."""
    named = dict.fromkeys(metric.name for of_kind in METRICS.values() for metric in of_kind)
    heads = ("data", "kind", "items", "users", "letters", "role", "model", "context", "run_id")
    rows: list[list[Json]] = []
    for board in boards:
        of_kind = {metric.name: metric for metric in METRICS[board.kind]}
        for line in board.lines:
            facts = [board.data, board.kind, board.n, board.users, line.letters, line.role, line.run.model]
            row = [*facts, line.summary["context"], line.summary["run_id"]]
            for name in named:
                found = of_kind[name].read(line.summary) if name in of_kind else None
                figure = found if isinstance(found, Mapping) else {"value": found}
                row += [figure.get(part) for part in ("value", "low", "high", "n")]
            row.append(_at(line.summary, "calibration.temperature_at_bound"))
            rows.append(row)
    columns = [f"{_column(name)}{part}" for name in named for part in ("", "_low", "_high", "_n")]
    columns.append("temperature_at_bound")  # what calibration_error must be read with
    more, cells = _official_cells([line for board in boards for line in board.lines])
    return (*heads, *columns, *more), [[*row, *cell] for row, cell in zip(rows, cells, strict=True)]


def _official_cells(lines: Sequence[Line]) -> tuple[list[str], list[list[Json]]]:
    """Return the columns of the sets' own figures and their cells; no columns where no set has its own."""
    found = [line.summary["official"] or {} for line in lines]
    figures = [{**each.get("figures", {}), **each.get("details", {})} for each in found]
    names = list(dict.fromkeys(name for each in figures for name in each))
    if not names:
        return [], [[] for _ in lines]
    parts = {"": "value", "_low": "low", "_high": "high", "_n": "n"}
    columns = [f"official_{_column(name)}{part}" for name in names for part in parts]
    return ["counted_as", *columns], [
        [each.get("set"), *((figure.get(name) or {}).get(part) for name in names for part in parts.values())]
        for each, figure in zip(found, figures, strict=True)
    ]


def _column(name: str) -> str:
    return name.lower().replace(" ", "_")


@dataclass(frozen=True, kw_only=True)
class OfficialTable:
    """The runs of a board in the figures of their set's authors, beside our accuracy."""

    title: str
    note: str
    heads: tuple[str, ...]
    rows: list[list[str]]


def official_table(board: Board) -> OfficialTable | None:
    """Return the table of a board whose set has a way of counting of its own."""
    found = [line.summary["official"] for line in board.lines if line.summary["official"]]
    if not found:
        return None
    names = list(dict.fromkeys(name for each in found for name in each["figures"]))
    return OfficialTable(
        title=f"As {found[0]['set']} counts",
        note=f"The figures of the set's authors ({found[0]['source']}), from the same rows; accuracy is ours: over "
        f"pairs, a tie as one half.{_left_out(max(each['incomplete'] for each in found))}",
        heads=("model", "context", "accuracy", *names),
        rows=[
            [
                visible(line.run.model),
                line.summary["context"],
                PERCENT.value(line.summary["accuracy"]),
                *(PERCENT.value(((line.summary["official"] or {}).get("figures") or {}).get(name)) for name in names),
            ]
            for line in board.lines
        ],
    )


def _lower_coverage(summary: Summary) -> list[str]:
    """Return the coverage without a profile and with another user's, where less could be read than with the own."""
    words = {"none": "without a profile", "swap": "with another user's"}
    found = summary["coverage_of_probes"] or {}
    if all(share >= summary["coverage"]["value"] for share in found.values()):
        return []
    return [f"coverage {', '.join(f'{words[probe]} {100 * share:.1f}' for probe, share in found.items())}"]


def _left_out(incomplete: int) -> str:
    return f" Prompts left out, as some of their pairs are missing: {incomplete}." if incomplete else ""


def print_boards(boards: Sequence[Board], console: Console) -> None:
    """Print the boards as tables."""
    for board in boards:
        console.print(f"\n{board.data}: {board.size}", style="bold")
        console.print(_table(board))
        console.print(board.resolution, style="dim")
        for line in board.lines:
            for note in notes_of_run(line.run):
                console.print(f"{visible(line.run.name)}: {note}", style="yellow", soft_wrap=True)
        if board.kind == PAIRS:
            console.print(board.population, style="dim")
            console.print(f"{LEGEND} {STAR}", style="dim")
        if official := official_table(board):
            table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
            for place, head in enumerate(official.heads):
                table.add_column(head, justify="right" if place > 1 else "left", overflow="fold")
            for row in official.rows:
                table.add_row(*row)
            console.print(f"{official.title}:", style="bold")
            console.print(table)
            console.print(official.note, style="dim")
        grouped = [line for line in board.lines if line.summary["groups"]]
        for line in grouped:
            console.print(visible(line.run.name))
            for text in _group_lines(line.summary):
                console.print(f"  {text}", soft_wrap=True)
        if grouped:
            console.print(GROUP_NOTE, style="dim")


def _table(board: Board) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("#")
    table.add_column("model", overflow="fold", min_width=16)
    table.add_column("context")
    shown = []
    for metric in (each for each in METRICS[board.kind] if each.printed):
        column = [metric.text(line.summary, metric.printed) for line in board.lines]
        if not (metric.dull and metric.is_dull([line.summary for line in board.lines])):
            table.add_column(metric.name, justify="right", no_wrap=True)
            shown.append(column)
    for place, line in enumerate(board.lines):
        table.add_row(
            line.letters,
            visible(line.run.model),
            line.summary["context"],
            *(column[place] for column in shown),
            style={FLOOR: "dim", CEILING: "italic", RANKED: ""}[line.role],
        )
    return table


def visible(text: str) -> str:
    """Return a text with control characters made visible, so that a name cannot steer the terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def population_sentence(summary: Summary) -> str:
    """Return of whom the intervals of a run speak, and where those for the other population stand."""
    found = summary["population"]
    if not found:
        return ""
    text = f"Intervals are 95 %, for {found['of']}."
    if found["questions"] < min(found["users"], FEWEST_QUESTIONS):
        text += f" So few questions ({found['questions']}) tell nothing of new ones."
    for over, name in BESIDE_OF.items():
        if found[name]:
            counts = f"{found['users']} users share {found['questions']} questions"
            column = f"`{name.replace('_', ' ')}` has those of accuracy for {POPULATIONS[over]}"
            text += f" {counts}: {column} (--resample {over})."
    return text


def notes_of_run(run: FinishedRun) -> list[str]:
    """Return the notes about a run as it stands on disk."""
    notes = notes_of(run.summary, str(run.manifest.get("command", "")))
    kind = MODELS.get(run.summary["kind"]) if run.summary["kind"] in MODELS.names else None
    if kind is not None and kind.is_recorded:
        missing = what_is_not_recorded(run.manifest["config"]["model_identity"]["probes"])
        notes += [missing] if missing else []
    return notes


def notes_of(summary: Summary, command: str = "") -> list[str]:
    """Return what stands in the way of a run's figures, and what to do about it."""
    notes = []
    missing = summary["accuracy_missing"]
    if missing:
        share = f"{missing['items']} of {missing['of']} items"
        why = f" ({visible(missing['detail'])})" if missing["detail"] else ""
        reason = f"for the reason {missing['reason']!r}{why}"
        notes.append(f"no accuracy: {share} have no readable verdict, most often {reason}")
    if summary["to_ask_again"]:
        how = f": {visible(command)}" if command else " with the same command"
        until = "" if missing else ", and count as wrong until then"
        failed = counted(summary["to_ask_again"], "item")
        notes.append(f"{failed} failed on the way, to be asked again{until}{how}")
    if left_out := summary["not_recorded"]:
        counts = f"{left_out['gain']} of {summary['n_items']} items are left out of the gain"
        counts += f" and {left_out['swap_gap']} of the swap gap"
        notes.append(f"{counts}: what the model says of them was not recorded under both profiles")
    if (order := summary["order"]) and order["chosen_stood"]:
        notes.append(
            f"in every pair that was read the chosen response stood {order['chosen_stood']}, in one order alone, so "
            "the accuracy cannot be told from position bias. Record both orders"
        )
    if unswapped := summary["unswapped"]:
        count, named = unswapped["items"], ", ".join(map(visible, unswapped["ids"]))
        more = ", …" if count > len(unswapped["ids"]) else ""
        notes.append(
            f"{count} of {summary['n_items']} items have no swap, as nobody else of their category has other posts "
            f"({named}{more}): they say nothing of the swap gap"
        )
    return notes


def most_frequent(details: Iterable[str]) -> str:
    """Return what is said most often, in one line; "" where nothing is said."""
    counts = Counter(" ".join(detail.split()) for detail in details if detail)
    if not counts:
        return ""
    detail, count = counts.most_common(1)[0]
    often = "" if len(counts) == 1 else f"most often ({count}): "
    return f"{often}{visible(shortened(detail, LONGEST_DETAIL))}"


def _group_lines(summary: Summary) -> Iterator[str]:
    """Yield what the groups of a run come to: of each field the gaps, and then the groups."""
    for field, found in (summary["groups"] or {}).items():
        figures = figures_of(found)
        yield f"by {visible(field)}: {counted(len(found['users']), 'group')}"
        for name, figure in figures.items():
            label, form = GROUP_FIGURES[name]
            if figure["worst"] is None:
                yield f"  {label}: {MISSING}"
                continue
            worst, best = (
                f"{visible(each) or '(none)'} {form.value(figure['groups'][each])} (n {figure['groups'][each]['n']})"
                for each in (figure["worst"], figure["best"])
            )
            p_value = p_text(figure["p_value"], equals=True)
            yield f"  {label}: worst {worst}, best {best}, gap {form.estimate(figure['gap'])}, p {p_value}"
        for group, users in found["users"].items():
            shown = (
                f"{GROUP_FIGURES[name][0]} {GROUP_FIGURES[name][1].estimate(figure['groups'].get(group))}"
                for name, figure in figures.items()
            )
            yield f"  {visible(group) or '(none)'} ({counted(users, 'user')}): {', '.join(shown)}"


def print_summary(
    summary: Summary,
    folder: Path | None,
    console: Console,
    *,
    command: str = "",
    items: Sequence[Row | RatedRow] = (),
) -> None:
    """Print one run's figures, and where its rows are; its `items` tell why some of them have no verdict."""
    head = f"{visible(summary['model'])} · {summary['context']} · {counted(summary['n_items'], 'item')}"
    console.print(head, style="bold")
    for metric in METRICS[PAIRS if summary["ratings"] is None else RATINGS]:
        if (metric.printed and not metric.dull) or metric.read(summary) is not None:
            how = "bounds" if metric.printed == "bounds" else "alone" if metric.dull else "interval"
            caveat = metric.caveat(summary)
            console.print(f"  {metric.name:<25}{metric.text(summary, how)}{caveat and f' ({caveat})'}")
    for text in _group_lines(summary):
        console.print(f"  {text}", soft_wrap=True)
    if summary["groups"]:
        console.print(f"  {GROUP_NOTE}", style="dim", soft_wrap=True)
    if population := population_sentence(summary):
        console.print(f"  {population}", style="dim", soft_wrap=True)
    for note in (*_lower_coverage(summary), *notes_of(summary, command)):
        console.print(f"  {note}", style="yellow", soft_wrap=True)
    if official := summary["official"]:
        console.print(f"  as {official['set']} counts ({official['source']}):{_left_out(official['incomplete'])}")
        for name, figure in (official["figures"] | official["details"]).items():
            count = f" (n {figure['n']})" if figure else ""
            console.print(f"    {name:<24}{PERCENT.estimate(figure)}{count}")
    for reason, count in (summary["unreadable"] or {}).items():
        why = most_frequent(row.detail for row in items if row.probe is Probe.OWN and row.problem == reason)
        console.print(
            f"  unreadable: {counted(count, 'item')}, {reason}{why and f', {why}'}", style="yellow", soft_wrap=True
        )
    if summary["truncated_items"]:
        posts, of = counted(summary["dropped_posts"], "post"), counted(summary["truncated_items"], "item")
        console.print(f"  {posts} of {of} did not fit the window", style="yellow")
    if folder:
        console.print(f"  rows: {folder}", style="dim", soft_wrap=True)
