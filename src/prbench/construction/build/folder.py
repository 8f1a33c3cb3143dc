"""The folder of a build. Its true state is `replies.sqlite`: every other file is made again from there, whole."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from prbench.construction.build.settings import Stage
from prbench.errors import UsageError
from prbench.runs import MANIFEST, SUMMARY, TIMING, Layout, RunConfig, RunStore
from prbench.runs.names import BUILD
from prbench.schema import Json

REPLIES, PAIRS, REJECTS, DATASET, AUDIT = "replies.sqlite", "pairs.jsonl", "rejects.jsonl", "dataset", "audit.json"
STAGE_FILES: Mapping[Stage, str] = {
    Stage.DRAW: "0_draw.jsonl",
    Stage.RANK: "1_rank.jsonl",
    Stage.RUBRIC: "2_rubric.jsonl",
    Stage.GENERATE: "3_generate.jsonl",
    Stage.VERIFY: "4_verify.jsonl",
    Stage.PARITY: "5_parity.jsonl",
}
_REPLY_FILES = (REPLIES, f"{REPLIES}-wal", f"{REPLIES}-shm")
# Not the key of the pseudonyms: a fresh build of the same people keeps their names.
LAYOUT = Layout(
    kind=BUILD,
    made=(SUMMARY, PAIRS, REJECTS, AUDIT, *STAGE_FILES.values(), DATASET),
    early=(TIMING, *_REPLY_FILES),
    what="build",
)


class BuildFolder:
    """An open build folder, locked against a second writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._run = RunStore(path, LAYOUT)

    def wipe(self) -> None:
        """Remove what an earlier build made here, replies and all; a folder without a build is left as it is."""
        self._run.wipe()

    def claim(self, config: RunConfig) -> None:
        """Write what this build is, or refuse a folder that holds another one. Data may move: its hash names it."""
        self._run.begin(config)

    def finish(self, summary: Mapping[str, Json]) -> None:
        """Write what the build came to."""
        self._run.finish(summary)

    def write_stage(self, stage: Stage, rows: Iterable[Mapping[str, Json]]) -> None:
        """Write the file of a stage, whole."""
        self._run.write_lines(STAGE_FILES[stage], rows)

    def write_lines(self, name: str, rows: Iterable[Mapping[str, Json]]) -> None:
        """Write another file of rows, whole."""
        self._run.write_lines(name, rows)

    def write_json(self, name: str, content: Mapping[str, Json]) -> None:
        """Write a JSON file, whole."""
        self._run.write_json(name, content)

    def close(self) -> None:
        """Release the folder."""
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_output_apart(data: str, out: Path) -> None:
    """Refuse to read what the build itself writes: the rows would be overwritten, or change with every run."""
    source, folder = Path(data).resolve(), out.resolve()
    made = [folder / name for name in (MANIFEST, *LAYOUT.made, *LAYOUT.early)]
    if source == folder or any(source == path or path in source.parents for path in made):
        raise UsageError(f"--data {data}: that is where this build writes. Use another --out, or copy the data away.")
