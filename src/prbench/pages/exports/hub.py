"""Upload runs, one trained model or one dataset to a hub: first the list of what would go, and with `--yes` the files.

Rows of runs go without the words of judges and rating models, which may quote posts; datasets, and files of models
that hold texts of the data, go with `--with-data` alone. A new repository is private unless the spec says otherwise.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prbench.data.hub import declares_configs
from prbench.errors import UsageError, needs
from prbench.pages.exports.job import HUB_ID, ExportJob
from prbench.runs import ITEMS, MANIFEST, SUMMARY, TIMING
from prbench.runs.files import EVAL, LOCK, TRAIN, json_line, read_json, read_lines
from prbench.runs.find import is_run
from prbench.runs.manifest import read_manifest
from prbench.specs import Spec, option

_TEXTS = ("*.jsonl", "bank.json", "*.sqlite", "*.db")  # files of models that hold texts of the data
_PASSWORD = re.compile(r"//[^/@\s\"]+@")  # as in http://name:password@host


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """The repository."""

    private: bool = option(True, "of a repository that does not exist yet")
    endpoint: str | None = option(None, "address of the hub; default: HF_ENDPOINT, or huggingface.co")


@dataclass(frozen=True, kw_only=True)
class _File:
    """One file that goes, as it is or with other content."""

    place: str  # in the repository
    source: Path
    content: bytes | None = None

    @property
    def size(self) -> int:
        return self.source.stat().st_size if self.content is None else len(self.content)


def export(spec: Spec, options: HubOptions, job: ExportJob) -> Sequence[Path]:
    """Send `hub:org/name`; return the files that were sent, or would be."""
    if not HUB_ID.fullmatch(spec.target):
        raise UsageError(f"--to {spec.text}: is no repository. Write hub:org/name.")
    kind, files = _planned(job)
    for file in files:
        _check_secrets(file)
    # What is already there stays as private or as public as it is.
    how = f"{kind} repository {spec.target}, {'private' if options.private else 'PUBLIC'} if it is new"
    job.note(f"{len(files)} files, {sum(file.size for file in files):,} bytes, for the {how}:")
    for file in files:
        left_out = " (without the words of models)" if file.content is not None else ""
        job.note(f"  {file.place}, {file.size:,} bytes{left_out}")
    if not job.is_confirmed:
        job.note("Nothing was sent. Add --yes to send these files.")
    else:
        _send(spec, options, kind, files, job)
    return [file.source for file in files]


def _planned(job: ExportJob) -> tuple[str, list[_File]]:
    """Return the type of the repository, and what goes into it."""
    if len(job.folders) == 1 and (found := _single(job.folders[0], job)) is not None:
        return found
    files = [file for run in _runs(job.folders) for file in _files_of_run(run, with_data=job.with_data)]
    if not files:
        line = "is neither a run, a folder of runs, a trained model nor a dataset folder"
        raise UsageError(f"{job.folders[0]}: {line}. Give one of these to send.")
    job.note("Rows name users by their ids, and keep the plain facts of `meta` that figures are grouped by.")
    return "dataset", files


def _single(folder: Path, job: ExportJob) -> tuple[str, list[_File]] | None:
    """Return what goes of a trained model, or of a dataset; nothing where the folder is neither."""
    if is_run(folder) and read_json(folder / MANIFEST).get("kind") == TRAIN:
        return "model", _files_of_model(folder, with_data=job.with_data)
    if not is_run(folder) and declares_configs(folder):
        if not job.with_data:
            raise UsageError(f"{folder}: is a dataset, which holds people's posts. Add --with-data to send it.")
        return "dataset", [_File(place=name, source=folder / name) for name in _names_in(folder)]
    return None


def _runs(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the finished evaluations in some folders."""
    for folder in folders:
        places = [folder] if is_run(folder) else sorted(folder.iterdir()) if folder.is_dir() else []
        for place in filter(is_run, places):
            if read_manifest(place)["kind"] == EVAL and (place / SUMMARY).exists():
                yield place


def _files_of_run(run: Path, *, with_data: bool) -> Iterator[_File]:
    home = f"runs/{read_manifest(run)['run_id']}"
    for name in (MANIFEST, SUMMARY, TIMING, ITEMS):
        if (run / name).exists():
            is_cut = name == ITEMS and not with_data
            yield _File(place=f"{home}/{name}", source=run / name, content=_without_words(run) if is_cut else None)


def _without_words(run: Path) -> bytes:
    """Return the rows without what models said, which may quote a post; everything that figures need stays."""
    lines = []
    for _, _, row in read_lines(run / ITEMS):
        row.pop("replies", None)
        kept = {**row, "detail": "", **({"raw": ""} if "raw" in row else {})}
        if "orders" in row:
            kept["orders"] = [{**order, "raw": ""} for order in row["orders"]]
        lines.append(json_line(kept))
    return "".join(lines).encode("utf-8", errors="backslashreplace")


def _files_of_model(folder: Path, *, with_data: bool) -> list[_File]:
    files = [_File(place=name, source=folder / name) for name in _names_in(folder)]
    texts = [file.place for file in files if any(file.source.match(pattern) for pattern in _TEXTS)]
    if texts and not with_data:
        what = f"{texts[0]} holds texts of the data that the model learned from"
        raise UsageError(f"{folder}: {what}, and it may need it. Add --with-data to send it as well.")
    return files


def _names_in(folder: Path) -> list[str]:
    """Return the files of a folder, without hidden and unfinished ones, and without caches."""
    names = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_ours = not any(part.startswith(".") or part == "cache" for part in parts)
        if path.is_file() and is_ours and path.name != LOCK and path.suffix != ".tmp":
            names.append("/".join(parts))
    return names


def _check_secrets(file: _File) -> None:
    """Refuse a manifest or summary that names a password in an address."""
    if file.source.suffix == ".json" and file.size < 1 << 22:
        text = file.source.read_text(encoding="utf-8", errors="replace")
        if _PASSWORD.search(text):
            raise UsageError(
                f"{file.source}: names an address with a password. Make the run without it, or remove it."
            )


def _send(spec: Spec, options: HubOptions, kind: str, files: Sequence[_File], job: ExportJob) -> None:
    with needs("hf", spec.text):
        from httpx import HTTPError
        from huggingface_hub import CommitOperationAdd, HfApi
        from huggingface_hub.errors import HfHubHTTPError
    api = HfApi(endpoint=options.endpoint or os.environ.get("HF_ENDPOINT"), library_name="prbench")
    additions = [
        CommitOperationAdd(
            path_in_repo=file.place, path_or_fileobj=str(file.source) if file.content is None else file.content
        )
        for file in files
    ]
    try:
        api.create_repo(spec.target, repo_type=kind, private=options.private, exist_ok=True)
        sent = api.create_commit(
            spec.target, additions, repo_type=kind, commit_message=f"Upload {len(files)} files with prbench"
        )
    except (HfHubHTTPError, HTTPError, OSError, ValueError) as error:
        message = " ".join(str(error).split())[:300].rstrip(".")
        advice = "Check the name, the network and the token (HF_TOKEN, or `hf auth login`)."
        raise UsageError(f"--to {spec.text}: the hub did not take it: {message}. {advice}") from error
    job.note(f"sent: {sent.commit_url}")
