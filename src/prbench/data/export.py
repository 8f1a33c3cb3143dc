"""Examples as files: our JSONL and Parquet, a dataset folder with its card, and rows for TRL and verl.

Every write goes to a temporary name first and is renamed when complete, so that a reader never sees half a file.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Literal, TypeAlias, cast

import yaml

from prbench.data.hub import OURS
from prbench.data.importing import ORIGINAL
from prbench.data.rows import as_row
from prbench.errors import DataError, UsageError, needs
from prbench.registry import EXPORTERS
from prbench.runs.files import replacing
from prbench.schema import Example, Json, RatedExample
from prbench.specs import Spec, option, parse_spec

Item: TypeAlias = Example | RatedExample
Format: TypeAlias = Literal["jsonl", "parquet"]

EVAL_YAML = "eval.yaml"
_EVAL_NOTE = (
    "Which of two good answers does this user prefer? `prbench eval` shows a model the user's own posts, none, and "
    "another user's; a task as it stands here asks a judge without any posts."
)
_BATCH_BYTES = 8 << 20  # text gathered before a Parquet row group is written
_BATCH_ROWS = 1000
_TEXT = {"dtype": "string"}
_POST = dict.fromkeys(("id", "category", "text", "extra"), _TEXT)
_ASPECT = dict.fromkeys(("aspect", "evidence", "reason"), _TEXT)
_PAIR_COLUMNS = (
    "id",
    "user_id",
    "question",
    "profile",
    "rubric_aspects",
    "narrative",
    "category",
    "chosen",
    "rejected",
    "split",
    "meta",
)
_RATED_COLUMNS = ("id", "user_id", "question", "profile", "category", "response", "rating", "split", "meta")


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a dataset card says besides the list of files."""

    title: str
    text: str = ""  # Markdown: where the rows come from, and what they may be used for
    license: str = "unknown"
    language: str = "en"
    tags: tuple[str, ...] = ()
    judge: str = ""  # the spec of the judge that knows the truth about the rows, where there is one


def write_jsonl(items: Iterable[Item], path: str | Path) -> Path:
    """Write one row per line, zipped if the name ends in `.gz`; return the path."""
    path = Path(path)
    with _new_file(path) as file:
        for item in items:
            file.write(_line(as_row(item)))
    return path


def write_parquet(items: Iterable[Item], path: str | Path) -> Path:
    """Write one Parquet file; `meta`, and a post's `extra`, are JSON text there. Return the path."""
    path = Path(path)
    kind, rest = _peek(items)
    with _new_file(path) as file, _parquet_rows(file, _columns(kind)) as add:
        for item in rest:
            add(flat_row(item))
    return path


def write_dataset(
    examples: Iterable[Item],
    folder: str | Path,
    format: Format = "jsonl",  # noqa: A002
    card: Card | None = None,
) -> Path:
    """Write a folder that `datasets.load_dataset` and `--data` read: one config per category, and a card.

    Rows without a split go to `test`. The folder appears when it is complete, and must not exist before.
    """
    folder = Path(folder)
    if format not in ("jsonl", "parquet"):
        raise UsageError(f"Unknown format {format!r}. Known formats: jsonl, parquet.")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder}: exists already. Choose another folder, or remove this one.")
    kind, rest = _peek(examples)
    with replacing(folder) as building:
        building.mkdir()
        counts: _Counts = {}
        writers: dict[tuple[str, str], Callable[[Mapping[str, Json]], None]] = {}
        names: dict[str, str] = {}
        with ExitStack() as open_files:
            for item in rest:
                config = names.setdefault(item.category, _config_name(item.category, names.values()))
                place = (config, _safe(item.split).replace("-", "_") or "test")
                if place not in writers:
                    path = building / config / f"{place[1]}.{format}"
                    writers[place] = open_files.enter_context(_writer(path, _columns(kind)))
                writers[place](flat_row(item))
                counts[place] = counts.get(place, 0) + 1
        text = _card_text(card or Card(title=folder.name), counts, _columns(kind), format)
        (building / "README.md").write_text(text, encoding="utf-8")
        if kind is Example and any(split == "test" for _, split in counts):
            (building / EVAL_YAML).write_text(_eval_yaml(card or Card(title=folder.name), counts), encoding="utf-8")
    return folder


def task_id(category: str) -> str:
    """Return the name that a category's task has in `eval.yaml`, on the hub and on its leaderboard: its config."""
    return _config_name(category, ())


def _eval_yaml(card: Card, counts: "_Counts") -> str:
    """Return what makes a dataset on the hub a benchmark: one task a config that has a test split.

    The fields of a task are those by which inspect_ai builds it: a judge picks one of two answers, without a profile.
    """
    tasks = [
        {
            "id": config,
            "config": config,
            "split": split,
            "field_spec": {"input": "question", "target": "literal:A", "choices": ["chosen", "rejected"]},
            "shuffle_choices": True,
            "solvers": [{"name": "multiple_choice"}],
            "scorers": [{"name": "choice"}],
        }
        for config, split in counts
        if split == "test"
    ]
    header = {"name": card.title, "description": _EVAL_NOTE, "evaluation_framework": OURS, "tasks": tasks}
    return yaml.safe_dump(header, sort_keys=False, allow_unicode=True)


def flat_row(item: Item) -> dict[str, Json]:
    """The row with one type per column: what is free-form (`meta`, and a post's `extra`) is JSON text, or null."""
    row = as_row(item)
    posts = [
        {"id": post.id, "category": post.category, "text": post.text, "extra": _json_text(post.extra)}
        for post in item.user.profile
    ]
    return {**row, "profile": posts, "split": item.split or None, "meta": _json_text(item.meta)}


def export_examples(items: Iterable[Item], spec: str) -> Path:
    """Write items as a spec says, e.g. `jsonl:pairs.jsonl.gz`, `folder:DIR?format=parquet`; return the path."""
    parsed = parse_spec(spec, EXPORTERS)
    kind = EXPORTERS.find(parsed.kind)
    path: Path = kind.make(parsed, kind.read_options(parsed), items, needs=Path)
    return path


def export_jsonl(spec: Spec, options: None, items: Iterable[Item]) -> Path:
    """Write `jsonl:FILE`."""
    return write_jsonl(items, spec.target)


def export_parquet(spec: Spec, options: None, items: Iterable[Item]) -> Path:
    """Write `parquet:FILE`."""
    return write_parquet(items, spec.target)


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """How a dataset folder is written."""

    format: Format = option("jsonl", "of the files")
    title: str | None = option(None, "of the card; default: the folder's name")


def export_folder(spec: Spec, options: FolderOptions, items: Iterable[Item]) -> Path:
    """Write `folder:DIR`."""
    card = Card(title=options.title) if options.title else None
    return write_dataset(items, spec.target, format=options.format, card=card)


def export_trl(spec: Spec, options: None, items: Iterable[Item]) -> Path:
    """Write `trl:FILE`: one preference row of TRL per line."""
    path = Path(spec.target)
    with _new_file(path) as file:
        for item in items:
            if not isinstance(item, Example):
                raise UsageError(f"{spec.text}: TRL's preference rows are pairs, and these are rated. Use jsonl:FILE.")
            file.write(_line(to_trl_row(item)))
    return path


def to_trl_row(example: Example, context: str | None = None) -> dict[str, Json]:
    """A TRL preference row with an explicit prompt, as messages.

    Without a context the prompt is the question, or the turns that it was imported from. With one (`""` counts), it
    is the turn that reward models are asked with, so that training and evaluation see the same text.
    """
    kept = example.meta.get(ORIGINAL, {}) if context is None else {}
    return {
        "id": example.id,
        "prompt": kept.get("prompt") or prompt_messages(example.question, context),
        "chosen": _as_turns(kept.get("chosen"), example.chosen),
        "rejected": _as_turns(kept.get("rejected"), example.rejected),
    }


def prompt_messages(question: str, context: str | None) -> list[dict[str, str]]:
    """The turns that ask a model; with a context, through the template that every reward model is asked with."""
    if not context:
        return [{"role": "user", "content": question}]
    from prbench.prompts import load_template

    turns = load_template("turn").fill(question=question, context=context)
    return [{"role": role, "content": text} for role, text in turns]


def _as_turns(kept: Json, text: str) -> list[Json]:
    if kept is None:
        return [{"role": "assistant", "content": text}]
    return kept if isinstance(kept, list) else [kept]


_Counts: TypeAlias = dict[tuple[str, str], int]  # (config, split) -> rows


@contextmanager
def _writer(path: Path, columns: Sequence[str]) -> Iterator[Callable[[Mapping[str, Json]], None]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if path.suffix == ".parquet":
            with _parquet_rows(file, columns) as add:
                yield add
        else:
            yield lambda row: file.writelines([_line(row)])


@contextmanager
def _parquet_rows(file: IO[bytes], columns: Sequence[str]) -> Iterator[Callable[[Mapping[str, Json]], None]]:
    """Give what takes rows, and writes them as row groups of bounded size."""
    with needs("parquet", "Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    types = {
        "profile": pa.list_(pa.struct([(name, pa.string()) for name in _POST])),
        "rubric_aspects": pa.list_(pa.struct([(name, pa.string()) for name in _ASPECT])),
        "rating": pa.float64(),
    }
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    rows: list[Mapping[str, Json]] = []
    size = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:

        def add(row: Mapping[str, Json]) -> None:
            nonlocal size
            rows.append(row)
            size += len(_line(row))
            if size >= _BATCH_BYTES or len(rows) >= _BATCH_ROWS:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows.clear()
                size = 0

        yield add
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _card_features(columns: Sequence[str]) -> list[Json]:
    """The columns' types for the card's header, so that an empty list in the first rows misleads nobody."""
    kinds: dict[str, Json] = {
        "profile": {"list": [{"name": name, **_TEXT} for name in _POST]},
        "rubric_aspects": {"list": [{"name": name, **_TEXT} for name in _ASPECT]},
        "rating": {"dtype": "float64"},
    }
    return [{"name": name, **kinds.get(name, _TEXT)} for name in columns]


def _card_text(card: Card, counts: _Counts, columns: Sequence[str], suffix: Format) -> str:
    configs = list(dict.fromkeys(config for config, _ in counts))
    files = {
        config: [{"split": split, "path": f"{config}/{split}.{suffix}"} for name, split in counts if name == config]
        for config in configs
    }
    header = {
        "license": card.license,
        "language": card.language,
        **({"tags": list(card.tags)} if card.tags else {}),
        **({OURS: {"judge": card.judge}} if card.judge else {}),
        "configs": [{"config_name": config, "data_files": files[config]} for config in configs],
        "dataset_info": [{"config_name": config, "features": _card_features(columns)} for config in configs],
    }
    table = "\n".join(f"| {config} | {split} | {rows} |" for (config, split), rows in counts.items())
    return (
        f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n"
        f"# {card.title}\n\n{card.text.strip()}\n\n"
        f"| config | split | rows |\n| --- | --- | --- |\n{table}\n\n"
        "Each config is one category. `meta`, and `extra` of a post, hold JSON text.\n"
    )


def _config_name(category: str, taken: Iterable[str]) -> str:
    """The category as a folder and config name; two categories never share one."""
    name = _safe(category) or "default"
    if name == category or (name not in taken and not category):
        return name
    return f"{name}-{hashlib.sha256(category.encode()).hexdigest()[:8]}"


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("._")[:80]


def _columns(kind: type[Item]) -> Sequence[str]:
    return _PAIR_COLUMNS if kind is Example else _RATED_COLUMNS


def _peek(items: Iterable[Item]) -> tuple[type[Item], Iterator[Item]]:
    """The kind of the records, and all of them; a mixture is refused when it comes."""
    iterator = iter(items)
    first = next(iterator, None)
    if first is None:
        raise DataError("There are no examples to write.")
    return type(first), _of_one_kind(chain([first], iterator), type(first))


def _of_one_kind(items: Iterable[Item], kind: type[Item]) -> Iterator[Item]:
    for item in items:
        if not isinstance(item, kind):
            raise DataError(
                f"Example {item.id!r} is of another kind than the first one. Write pairs and ratings apart."
            )
        yield item


def _line(row: Mapping[str, Json]) -> bytes:
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _json_text(value: Mapping[str, Json]) -> str | None:
    return json.dumps(dict(value), ensure_ascii=False, allow_nan=False) if value else None


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name only when it is complete."""
    with replacing(path) as scratch, scratch.open("wb") as file:
        if path.suffix == ".gz":
            # No name and no time in the header: the same rows give the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
                yield cast("IO[bytes]", zipped)
        else:
            yield file
