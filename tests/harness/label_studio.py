"""Hand a project to a running Label Studio, answer there through its API, and take it back.

    python -m tests.harness.label_studio URL TOKEN            # prints what came back
    python -m tests.harness.label_studio URL TOKEN --record   # and writes label_studio.json, which a test reads

docs/how-to/harnesses.md says how to start a server.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.harness.study import answered_study, new_study

from prbench.people.annotate.exchange import import_answers, write_export
from prbench.people.annotate.records import Mode
from prbench.people.annotate.rows import answer_rows
from prbench.people.annotate.store import Store

RECORDED = Path(__file__).with_name("label_studio.json")
Rows = list[dict[str, Any]]
THERE = {"choices": ["Response 2"]}


class Api:
    """Label Studio's HTTP API, with the token of its owner."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url.rstrip("/"), token

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Token {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self._url + path, method=method, data=data, headers=headers), timeout=120) as reply:
            return json.load(reply)


def exchange(api: Api, folder: Path, mode: Mode) -> dict[str, Any]:
    """Return what went out and what came back, after one item was answered there, one changed and one skipped."""
    store = answered_study(folder / "sent.db", mode)
    tasks, config = write_export(store, "label-studio", folder / "sent.json")
    sent = json.loads(tasks.read_text(encoding="utf-8"))
    study = {"title": f"prbench {mode}", "label_config": config.read_text(encoding="utf-8")}
    project = api.call("POST", "/api/projects", study)["id"]
    taken = api.call("POST", f"/api/projects/{project}/import", sent)
    counts = (taken["task_count"], taken["annotation_count"])
    assert counts == (8, 6), f"Label Studio took {counts} tasks and annotations, not (8, 6)"
    exported = f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true"
    before = api.call("GET", exported)
    new, skipped = [task["id"] for task in before if not task["annotations"]]
    changed = next(task["annotations"][0] for task in before if task["annotations"])
    api.call("POST", f"/api/tasks/{new}/annotations/", {"result": _given_there(mode), "lead_time": 7.5})
    api.call("POST", f"/api/tasks/{skipped}/annotations/", {"result": [], "was_cancelled": True})
    results = [{**each, "value": THERE} if each["from_name"] == "choice" else each for each in changed["result"]]
    api.call("PATCH", f"/api/annotations/{changed['id']}/", {"result": results})
    return {"answers": answer_rows(store), "sent": sent, "back": api.call("GET", exported)}


def _given_there(mode: Mode) -> Rows:
    """Return an answer as Label Studio's page sends it."""
    found = [{"from_name": "choice", "to_name": "question", "type": "choices", "value": THERE}]
    text = ["Grüße :: a reason\nand another"] if mode is Mode.COLLECT else ["„Gut“"]
    name = "why" if mode is Mode.COLLECT else "note"
    found.append({"from_name": name, "to_name": "question", "type": "textarea", "value": {"text": text}})
    if mode is Mode.VALIDATE:
        rating = {"from_name": "first_correctness", "to_name": "response_1", "type": "rating"}
        found.append({**rating, "value": {"rating": 3}})
    return found


def taken_back(folder: Path, mode: Mode, back: Rows) -> Rows:
    """Import what came back into a new project of the same pairs, and return its answers."""
    store = new_study(folder / "back.db", mode, ["zoe"], seed=7)
    return imported(store, folder / "back.json", back)


def imported(store: Store, path: Path, content: Rows) -> Rows:
    """Import answers by way of a file, and return all answers of the project."""
    path.write_text(json.dumps(content), encoding="utf-8")
    import_answers(store, path)
    return answer_rows(store)


def main(url: str, token: str, *options: str) -> None:
    api, found = Api(url, token), {}
    release = api.call("GET", "/api/version")["release"]
    for mode in Mode:
        with tempfile.TemporaryDirectory() as folder:
            found[mode.value] = exchange(api, Path(folder), mode)
            sent = {(row["item"], row["annotator"]): row for row in found[mode.value]["answers"]}
            rows = taken_back(Path(folder), mode, found[mode.value]["back"])
        same = sum(sent.get((row["item"], row["annotator"])) == row for row in rows)
        there = [
            f"{row['item']} {row['annotator']} {row['choice']}"
            for row in rows
            if row["annotator"] not in ("ada", "ben")
        ]
        print(f"Label Studio {release}, {mode}: {len(sent)} sent, {same} back the same; there: {', '.join(there)}")
    if "--record" in options:
        RECORDED.write_text(json.dumps({"release": release, **found}, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
