"""Make the screenshots of docs/pages.md and docs/annotate.md: every page at 390 and at 1,400 px.

    python experiments/screenshots.py --work /tmp/pages

Runs prbench's own commands on the lab in the folder --work, where what is finished is kept; the answers of annotators
are drawn at random, and so are the numbers of the page of PPO. Needs pip install 'prbench[hf,serve]' playwright, and a
Chromium. The images have 256 colors.
"""

import argparse
import base64
import math
import random
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prbench.data import DataSettings, open_data
from prbench.downstream.ppo.evaluate import summarize
from prbench.pages.ppo import TEMPLATE, page_of
from prbench.pages.shell import Origin, render_page
from prbench.people.annotate import Store
from prbench.people.annotate.exchange import write_export
from prbench.people.annotate.people import AnnotateSettings
from prbench.people.annotate.records import ItemAnswer, Mode, Ratings, Status
from prbench.people.annotate.server import AnnotateServer
from prbench.people.annotate.store import Links, Plan, create
from prbench.schema import Verdict

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZES = {"phone": (390, 844), "desktop": (1400, 900)}
TALLEST = {"phone": 1700, "desktop": 1900}  # what of a page is shown
PEOPLE = ("ada", "ben", "cleo", "dora")
MODELS = (
    "head:lab-user",
    "head:lab-average?context=none",
    "control:embed",
    "control:overlap",
    "control:longest",
    "control:random",
)
PIXELS = """async (png) => {
  const image = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let start = 0; start < bytes.length; start += 32768)
    text += String.fromCharCode(...bytes.subarray(start, start + 32768));
  return [image.width, image.height, btoa(text)];
}"""


@dataclass
class Camera:
    """A browser, and where its pictures go."""

    browser: Any
    folder: Path

    def shoot(self, page: Any, name: str, size: str) -> None:
        """Save what a page shows, from its top."""
        width, height = SIZES[size]
        page.evaluate("scrollTo(0, 0)")
        whole = page.evaluate("document.documentElement.scrollHeight")
        shown = min(max(whole, height), TALLEST[size])
        page.set_viewport_size({"width": width, "height": shown})  # what sticks to the bottom belongs there
        png = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": shown})
        page.set_viewport_size({"width": width, "height": height})
        blank = self.browser.new_page()
        columns, rows, text = blank.evaluate(PIXELS, base64.b64encode(png).decode())
        blank.close()
        pixels = np.frombuffer(base64.b64decode(text), dtype=np.uint8).reshape(rows, columns, 4)[:, :, :3]
        (self.folder / f"{name}_{size}.png").write_bytes(palette_png(pixels))

    def shoot_file(self, path: Path, name: str) -> None:
        """Save a page at all widths, and once in the dark."""
        for size, (width, height) in SIZES.items():
            page = self.browser.new_page(viewport={"width": width, "height": height})
            page.goto(path.resolve().as_uri())
            self.shoot(page, name, size)
            page.close()


def main() -> None:
    """Make the pages, and their pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder for runs and pages")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where the images go")
    parser.add_argument("--only", nargs="+", default=[], help="pages, by name")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    project = asked.work / "study.db"
    links = make_project(project)
    pages = {} if asked.only == ["annotate"] else make_pages(asked.work)
    with sync_playwright() as play:
        chromium = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        camera = Camera(browser, asked.out)
        for name, path in pages.items():
            if not asked.only or name in asked.only:
                camera.shoot_file(path, name)
        if not asked.only or "annotate" in asked.only:
            shoot_annotate(camera, project, links)
            collecting = asked.work / "collect.db"
            shoot_collect(camera, collecting, make_project(collecting, mode=Mode.COLLECT))
        browser.close()


def make_pages(work: Path) -> dict[str, Path]:
    """Return the pages by name, each made by its command unless it is there."""
    prbench(work, "board.html", "demo", "--limit", "200", "--out", "runs/demo", "--html", "board.html")
    user = next(path.parent for path in (work / "runs/demo").glob("*/manifest.json") if is_run_of(path, "profile"))
    prbench(
        work,
        "check.html",
        "data",
        "check",
        "--data",
        "lab",
        "--limit",
        "400",
        "--audit-encoder",
        "none",
        "--html",
        "check.html",
    )
    run = str(user.relative_to(work))
    prbench(work, "diagnose.html", "diagnose", run, "--label-next", "5", "--html", "diagnose.html")
    prbench(work, "agreement.html", "annotate", "agreement", "answers.jsonl", "--html", "agreement.html")
    models = [part for model in MODELS for part in ("--model", model)]
    many = ("--posts", "30", "--n", "8", "--users", "24", "--limit", "48", "--group-by", "level")
    prbench(work, "bon", "bon", "--policy", "lab", *models, *many, "--out", "bon")
    bon = next((work / "bon").glob("*/bon.html"))
    boards = ("--benchmark", "runs/demo", "--downstream", str(bon.parent.relative_to(work)))
    prbench(work, "meta.html", "meta", *boards, "--html", "meta.html")
    (work / "ppo.html").write_text(made_up_ppo(), encoding="utf-8")
    make_leaderboard(work)
    load = ("--shape", "tiny", "--prefix", "400", "--response", "40", "--candidates", "32", "--sweep")
    prbench(work, "bench/bench.html", "bench", *load, "--out", "bench")
    names = ("board", "check", "diagnose", "agreement", "meta")
    own = {"bon": bon, "ppo": work / "ppo.html", "bench": work / "bench/bench.html"}
    own |= {"leaderboard": work / "site/index.html", "submission": next((work / "site/runs").glob("*.html"))}
    return {name: work / f"{name}.html" for name in names} | own


def make_leaderboard(work: Path) -> None:
    """Build the site of six runs on the lab, and of one whose verdicts somebody changed."""
    models = [part for model in MODELS for part in ("--model", model)]
    prbench(work, "submissions", "eval", *models, "--limit", "200", "--out", "submissions")
    forged = work / "submissions" / "forged"
    if not forged.exists():
        shutil.copytree(next((work / "submissions").glob("*/items.jsonl")).parent, forged)
        rows = (forged / "items.jsonl").read_text(encoding="utf-8")
        (forged / "items.jsonl").write_text(rows.replace('"rejected"', '"chosen"'), encoding="utf-8")
    title = ("--title", "Leaderboard of the lab")
    prbench(work, "site", "leaderboard", "build", "submissions", "--data", "lab", "--limit", "200", *title)


def made_up_ppo() -> str:
    """Return the page of a run that was not made: training takes an hour. Reward rises, gold turns down in the end."""
    draw = random.Random(0)
    rows: list[dict[str, Any]] = []
    for step in range(81):
        kl, noise = 9 * (1 - math.exp(-step / 30)), draw.gauss(0, 0.03)
        gold = 0.12 * kl - 0.008 * kl**2 + noise
        rows.append({"step": step, "reward": 0.25 * kl + 4 * noise, "gold": gold, "kl": kl, "entropy": 5 - kl / 4})
        rows[-1] |= {"length": 60 + 2 * kl + draw.gauss(0, 2), "failure_rate": 0.0}
    answers = [
        {
            "step": step,
            "id": f"i{item}",
            "user_id": f"u{item // 2}",
            "majority": item % 2 == 0,
            "gold": rows[step]["gold"] + (0.1 if item % 2 == 0 else -0.1) + draw.gauss(0, 0.15),
            "kl": rows[step]["kl"],
            "length": rows[step]["length"],
            "truncated": 0.0,
        }
        for step in range(0, 81, 10)
        for item in range(120)
    ]
    evaluation = {
        "held_out": {"samples": 4, "seed": 0, "split": "test"},
        "policies": summarize(answers),
    }
    summary = {
        "run_id": "made up",
        "algorithm": "ppo",
        "policy": "smollm2",
        "reward_model": "head:lab-average",
        "context": "profile",
        "reward_context": "none",
        "seed": 0,
        "ended": "steps",
        "updates": 80,
        "first": rows[0],
        "last": rows[-1],
        "rewards_asked": 10_240,
        "rewards_failed": 0,
    }
    command = "prbench ppo --policy smollm2 --model head:lab-average --steps 80 --eval-split test --out runs/ppo"
    origin = Origin(command=command, data="numbers made up for this picture")
    return render_page(TEMPLATE, page_of(summary, rows, evaluation, answers), origin)


def is_run_of(manifest: Path, context: str) -> bool:
    """True for the run of the head that knows users, in this context."""
    text = manifest.read_text(encoding="utf-8")
    return '"model": "head:lab-user"' in text and f'"context": "{context}"' in text


def prbench(work: Path, made: str, *args: str) -> None:
    """Run a command in the folder, unless what it makes is there; `data check` exits with 1 where a check is bad."""
    if not (work / made).exists():
        done = subprocess.run([sys.executable, "-m", "prbench", *args], cwd=work, check=False)
        if done.returncode and not (work / made).exists():
            raise SystemExit(done.returncode)


def make_project(path: Path, mode: Mode = Mode.VALIDATE) -> Links:
    """Return the links of a new project with answers to most of its items, and export them beside it."""
    path.unlink(missing_ok=True)
    with open_data(DataSettings(source="lab", limit=60)) as examples:
        links = create(
            path, examples, Plan(mode=mode, annotators=list(PEOPLE), overlap=3, items=40, seed=0, data="lab")
        )
    if mode is Mode.COLLECT:
        return links
    store, draw = Store(path), random.Random(0)
    for person in store.people.all():
        for position, _, _ in store.positions(person.id)[:-4]:
            store.task(person.id, position)
            action, answer = Status.DONE, drawn_answer(draw, person.name)
            seconds = draw.uniform(20, 70)
            store.save(person.id, position, answer, action, seen=0, tab="t", seconds=seconds)
    write_export(store, "rows", path.parent / "answers.jsonl")
    store.close()
    return links


def drawn_answer(draw: random.Random, name: str) -> ItemAnswer:
    """Return an answer that is mostly the label, of somebody who rates both responses alike."""
    sure = 0.93 if name != "dora" else 0.75
    choice = Verdict.CHOSEN if draw.random() < sure else draw.choice([Verdict.REJECTED, Verdict.TIE])
    base = draw.choice([3, 4, 4])

    def ratings() -> Ratings:
        parts = [max(1, min(5, base + draw.choice([-1, 0, 0, 0, 1]))) for _ in range(3)]
        return Ratings(correctness=parts[0], relevance=parts[1], helpfulness=parts[2])

    return ItemAnswer(choice=choice, chosen=ratings(), rejected=ratings(), is_flagged=draw.random() < 0.02)


@contextmanager
def serving(project: Path) -> Iterator[str]:
    """Yield where a project is served."""
    server, ready = AnnotateServer(project, AnnotateSettings(port=0)), threading.Event()
    thread = threading.Thread(target=server.run, args=(lambda url: ready.set(),))
    thread.start()
    ready.wait(30)
    try:
        yield server.url
    finally:
        server.stop()
        thread.join(30)


def shoot_annotate(camera: Camera, project: Path, links: Links) -> None:
    """Save the pages of a project in which others' pairs are checked."""
    with serving(project) as url:
        for size, (width, height) in SIZES.items():
            page = camera.browser.new_page(viewport={"width": width, "height": height})
            enter(page, url, links.annotators["ada"], "start")
            camera.shoot(page, "annotate_start", size)
            page.get_by_role("link", name="Continue").click()
            page.wait_for_url("**/items/*")
            page.keyboard.press("1")
            camera.shoot(page, "annotate_item", size)
            page.emulate_media(color_scheme="dark")
            camera.shoot(page, "annotate_item_dark", size)
            page.emulate_media(color_scheme="light")
            page.get_by_role("button", name="Keys").click()
            camera.shoot(page, "annotate_keys", size)
            enter(page, url, links.owner, "owner")
            camera.shoot(page, "annotate_owner", size)
            page.goto(f"{url}/owner/items/1")
            camera.shoot(page, "annotate_owner_item", size)
            page.goto(f"{url}/owner")
            page.get_by_label("Invite somebody").fill(f"guest at a {size}")
            page.get_by_role("button", name="Make a link").click()
            page.get_by_label("Personal link").wait_for()
            camera.shoot(page, "annotate_invitation", size)
            page.close()


def shoot_collect(camera: Camera, project: Path, links: Links) -> None:
    """Save the pages of a project that collects people's own choices."""
    with serving(project) as url:
        for size, (width, height) in SIZES.items():
            page = camera.browser.new_page(viewport={"width": width, "height": height})
            enter(page, url, links.annotators["ada"], "start")
            camera.shoot(page, "annotate_collect_start", size)
            page.goto(f"{url}/items/1")
            camera.shoot(page, "annotate_collect_item", size)
            page.goto(f"{url}/about")
            camera.shoot(page, "annotate_about", size)
            page.close()


def enter(page: Any, url: str, token: str, where: str) -> None:
    """Come in by a personal link, which leads on by itself."""
    page.goto(f"{url}/in/{token}")
    page.wait_for_url(f"**/{where}")
    page.wait_for_load_state("networkidle")


def palette_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return pixels (rows, columns, 3) as a PNG file of the 256 most frequent colors, or the nearest of them."""
    codes = (pixels.astype(np.uint32) >> 2) @ np.array([1 << 12, 1 << 6, 1], dtype=np.uint32)
    known, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:256]
    first = np.zeros((len(known), 3), dtype=np.int32)
    first[place.ravel()] = pixels.reshape(-1, 3)
    nearest = np.array([np.abs(first[kept] - color).sum(axis=1).argmin() for color in first], dtype=np.uint8)
    rows, columns = codes.shape
    lines = np.zeros((rows, columns + 1), dtype=np.uint8)  # each begins with its filter, which is none
    lines[:, 1:] = nearest[place.ravel()].reshape(rows, columns)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", first[kept].astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    ]
    parts = [struct.pack(">I", len(c)) + kind + c + struct.pack(">I", zlib.crc32(kind + c)) for kind, c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


if __name__ == "__main__":
    main()
