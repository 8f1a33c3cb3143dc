"""Argilla's SDK reads our export with its own classes; the one reply that it asks a server for stands in."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("argilla", reason="needs argilla: `make test-harness`")

import argilla
from tests.harness.label_studio import imported
from tests.harness.study import answered_study, new_study

from prbench.people.annotate.exchange import user_id, write_export
from prbench.people.annotate.records import Mode
from prbench.people.annotate.rows import answer_rows

pytestmark = pytest.mark.harness

OWNER = {
    "id": "6a4c3b1e-0000-4000-8000-000000000001",
    "username": "owner",
    "first_name": "Owner",
    "role": "owner",
    "inserted_at": "2026-01-01T00:00:00",
    "updated_at": "2026-01-01T00:00:00",
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of Argilla whose server only says who asks."""

    class WhoAmI(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(OWNER).encode()
            self.send_response(200 if self.path == "/api/v1/me" else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), WhoAmI)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield argilla.Argilla(api_url=f"http://127.0.0.1:{server.server_port}", api_key="key")
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("mode", list(Mode))
def test_argilla_reads_settings_and_records_and_gives_them_back(client: Any, mode: Mode, tmp_path: Path) -> None:
    store = answered_study(tmp_path / "sent.db", mode)
    path, settings_path = write_export(store, "argilla", tmp_path / "argilla.json")
    settings = argilla.Settings.from_json(settings_path)
    settings.validate()
    dataset = argilla.Dataset(name="study", settings=settings, client=client)
    sent = json.loads(path.read_text(encoding="utf-8"))
    records = [argilla.Record.from_dict(each, dataset=dataset) for each in sent]

    # As it would go to a server: every value under a question of the settings, every answer by its person.
    models = [record.api_model() for record in records]
    questions = {question.name for question in settings.questions}
    answered = [response for model in models for response in model.responses]
    assert len(answered) == 6
    assert all(set(response.values) <= questions for response in answered)
    assert {str(response.user_id) for response in answered} == {user_id("ada"), user_id("ben")}
    labels = {option["value"] for option in settings.questions["choice"].serialize()["settings"]["options"]}
    assert {response.values["choice"]["value"] for response in answered} <= labels
    assert [set(model.fields) for model in models] == [{field.name for field in settings.fields}] * 8

    # As `dataset.records.to_json` writes them.
    back = [record.to_dict() for record in records]
    fresh = new_study(tmp_path / "back.db", mode, ["zoe"], seed=7)
    key = ("item", "annotator")
    rows = [
        sorted(each, key=lambda row: [row[name] for name in key])
        for each in (imported(fresh, tmp_path / "back.json", back), answer_rows(store))
    ]
    assert rows[0] == rows[1]
