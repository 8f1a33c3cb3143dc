"""Print as JSON what trackers wrote, by their own readers: tensorboard FOLDER, wandb FOLDER, or trackio PROJECT."""

import json
import struct
import sys
from pathlib import Path
from typing import Any


def tensorboard(folder: str) -> dict[str, dict[str, float]]:
    """The last value of every figure, by run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    found: dict[str, dict[str, float]] = {}
    for run in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
        events = EventAccumulator(str(run))
        events.Reload()
        values = {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}
        for tag in events.Tags()["tensors"]:
            value = tensor_util.make_ndarray(events.Tensors(tag)[-1].tensor_proto)
            values |= {tag: float(value)} if value.dtype.kind == "f" else {}
        found[run.name] = values
    return found


def wandb(folder: str) -> dict[str, Any]:
    """What an offline run would send: its project and name, its config, its steps and its summary."""
    from wandb.proto import wandb_internal_pb2

    (file,) = Path(folder).glob("wandb/offline-run-*/run-*.wandb")
    found: dict[str, Any] = {"history": [], "summary": {}}
    for content in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found |= {"project": record.run.project, "name": record.run.display_name}
        items = {"history": record.history.item, "summary": record.summary.update}.get(kind, ())
        values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
        if kind == "history":
            found["history"].append(values)
        elif kind == "summary":
            found["summary"] |= values
    return found


def records(log: bytes) -> "list[bytes]":
    """The records of a log in blocks of 32 KiB (the format of LevelDB): checksum, length, kind, content."""
    found, parts, at = [], b"", 7  # after the header of the file
    while at < len(log):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", log[at : at + 7])
        parts += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(parts)
            parts = b""
    return found


def trackio(project: str) -> dict[str, list[dict[str, Any]]]:
    """The steps of every run of a project."""
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    return {run.name: SQLiteStorage.get_logs(project, run.name) for run in Api().runs(project)}


if __name__ == "__main__":
    name, where = sys.argv[1:]
    print(json.dumps({"tensorboard": tensorboard, "wandb": wandb, "trackio": trackio}[name](where)))
