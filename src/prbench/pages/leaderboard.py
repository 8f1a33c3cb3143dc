"""The pages of a leaderboard: the boards of all submissions that hold, and one page for each of them."""

from collections.abc import Mapping, Sequence

from prbench.evaluation.summary import FinishedRun
from prbench.evaluation.verify import Verification
from prbench.metrics.number_format import PERCENT, parts_of
from prbench.pages.board import METRICS, PAIRS, RATINGS, Board, notes_of, population_sentence
from prbench.pages.board_page import origin_of_boards, parts_of_boards
from prbench.pages.shell import Origin, data_name, render_page
from prbench.schema import Json

CHECKED = (
    "The run id is the hash of the configuration, and nothing else in the manifest contradicts it.",
    "Every item was asked once under every probe that was asked, and says the same of itself each time.",
    "Every verdict follows from its two scores, or from a judge's picks in the orders that it was asked in.",
    "Every figure of the summary is what the rows give; no number is missing where one belongs.",
)
AGAINST_DATA = (
    "Every row is of an item of the dataset, with its user, category and question, and no item is left out. "
    "The data is called what the dataset is called, whatever a submission says."
)
WITHOUT_DATA = (
    "The rows were not compared with the dataset: none was given. The name of the data is what the submitter says."
)
NOT_SEEN = (
    "Whether a score is what the model says cannot be seen from rows: for that, repeat the command of the run, or a "
    "part of it with --limit."
)


def render_index(
    boards: Sequence[Board],
    refused: Sequence[Verification],
    *,
    title: str,
    has_data: bool,
    command: str,
    files: Sequence[tuple[str, str]],
    pages: Mapping[str, str],
) -> str:
    """Return the first page; `pages` has the address of each run's own page, `files` what else can be saved."""
    accepted = sum(len(board.lines) for board in boards)
    page = {
        "title": title,
        **parts_of_boards(boards, pages),
        "counts": f"{accepted} {'submission' if accepted == 1 else 'submissions'}, {len(refused)} refused.",
        "files": files,
        "checked": (*CHECKED, AGAINST_DATA if has_data else WITHOUT_DATA, NOT_SEEN),
        "refused": [[each.folder.name, fault] for each in refused for fault in each.faults],
    }
    return render_page("leaderboard.html", page, origin_of_boards(boards, command))


def render_submission(found: Verification, run: FinishedRun, *, title: str, file: str, command: str) -> str:
    """Return the page of one submission."""
    summary, manifest = run.summary, run.manifest
    data = data_name(manifest["data"], manifest["config"]["data_hash"])
    settings = {
        "run": str(summary["run_id"]),
        "submitted as": found.folder.name,
        "kind of model": str(summary["kind"]),
        "context": str(summary["context"]),
        "data": data,
        **{name: _plain(value) for name, value in manifest["config"]["settings"].items()},
    }
    page = {
        "title": run.model,
        "lead": f"{title}: {summary['context']} · {summary['n_items']} items. {population_sentence(summary)}",
        "file": file,
        "figures": list(_figures(run)),
        "remarks": notes_of(summary, str(manifest.get("command", ""))),
        "categories": [
            [category or "(none)", *_cells(PERCENT, figure)]
            for category, figure in (summary["accuracy_by_category"] or {}).items()
        ],
        "missing": found.missing,
        "settings": settings,
    }
    return render_page("submission.html", page, Origin(command=command, data=data, manifests=[manifest]))


def _figures(run: FinishedRun) -> "list[list[str]]":
    rows = []
    for metric in METRICS[PAIRS if run.summary["ratings"] is None else RATINGS]:
        figure = metric.read(run.summary)
        if figure is not None:
            rows.append([metric.name, *_cells(metric.form, figure), metric.help])
    return rows


def _cells(form: Json, figure: Json) -> list[str]:
    """Return the value, the interval and the n of a figure."""
    if not isinstance(figure, Mapping):
        return [form.number(figure), "", ""]
    value, low, high = parts_of(figure)
    return [form.number(value), form.interval(low, high), str(figure.get("n") or "")]


def _plain(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
