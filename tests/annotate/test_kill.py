"""kill -9 in the middle of the work loses no answer that was acknowledged."""

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

import httpx

from .conftest import hidden

ENOUGH = 40


def test_kill_9_loses_no_acknowledged_answer(make) -> None:
    names = [f"person-{number}" for number in range(4)]
    made = make(4, annotators=names, overlap=4)
    command = [sys.executable, "-m", "prbench", "annotate", "serve", str(made.path), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    acknowledged: list[tuple[int, str]] = []
    heard = Semaphore(0)

    def work(url: str, name: str) -> None:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            client.get(f"/in/{made.links.annotators[name]}")
            page = client.get("/items/1").text
            body = {each: hidden(page, each) for each in ("csrf", "tab")}
            for number in range(100_000):
                note = f"{name} says {number}"
                try:
                    reply = client.post("/items/1", data=body | {"note": note}, headers={"Accept": "application/json"})
                except httpx.HTTPError:
                    return
                acknowledged.append((reply.json()["version"], note))
                heard.release()

    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(work, url, name) for name in names]
            for _ in range(ENOUGH):
                assert heard.acquire(timeout=60)
            process.kill()
        for each in done:
            each.result()
    finally:
        process.kill()
        process.stdout.close()
        code = process.wait(30)
    assert code == -signal.SIGKILL
    store = made.open()
    kept = {row["id"]: json.loads(row["answer"])["note"] for row in store.database.rows("SELECT * FROM events")}
    assert len(acknowledged) >= ENOUGH
    assert [note for version, note in acknowledged if kept.get(version) != note] == []
    last = {name: max(version for version, note in kept.items() if note.startswith(name)) for name in names}
    assert {saved.version for saved in store.answers()} == set(last.values()), "the view shows the last one of each"
    store.close()
