"""The search after a forgetting: however a trace is written or packed, it is found, or its file is named as unread."""

import base64
import bz2
import gzip
import html
import io
import json
import lzma
import quopri
import random
import sqlite3
import tarfile
import unicodedata
import zipfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from prbench.people.forget import forget

USER = 'żaneta "k" o\'brien'
DIARY = "I dropped the kettle into the harbour of Ullapool twice in the rain"
LINE = "log: " + json.dumps({"user": USER, "said": DIARY}, ensure_ascii=False)
RAW = LINE.encode()


def tar_of(content: bytes, mode: Any) -> bytes:
    tape = io.BytesIO()
    with tarfile.open(fileobj=tape, mode=mode) as archive:
        header = tarfile.TarInfo("log.txt")
        header.size = len(content)
        archive.addfile(header, io.BytesIO(content))
    return tape.getvalue()


def zip_of(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.txt", content)
    return file.getvalue()


WRITTEN = {
    "percent": f"GET /in?user={quote(USER)} HTTP/1.1".encode(),
    "percent, twice": f"GET /in?user={quote(quote(USER))} HTTP/1.1".encode(),
    "every letter in percent": "".join(f"%{byte:02x}" for byte in USER.encode()).encode(),
    "JSON escapes": b"log: " + json.dumps({"user": USER}).encode(),
    "JSON in JSON in JSON": json.dumps(json.dumps(json.dumps({"user": USER}))).encode(),
    "Python escapes": ascii(USER).encode(),
    "JavaScript escapes": "".join(f"\\u{{{ord(letter):x}}}" for letter in USER).encode(),
    "HTML entities": html.escape(USER).encode(),
    "HTML, every letter": "".join(f"&#x{ord(letter):x};" for letter in USER).encode(),
    "CSV": b'"name"\n"' + USER.replace('"', '""').encode() + b'"\n',
    "SQL": b"VALUES ('" + USER.replace("'", "''").encode() + b"')",
    "base64": b"data:text/plain;base64," + base64.b64encode(RAW),
    "base64 for URLs": b"cursor=" + base64.urlsafe_b64encode(b"?>" + RAW),
    "base64 behind a word": b"token-" + base64.b64encode(RAW).rstrip(b"="),
    "base64, twice": base64.b64encode(base64.b64encode(RAW)),
    "base64 of a mail": base64.encodebytes(b"Dear all, " * 20 + RAW + b" yours" * 20),
    "hexadecimal": b"0x" + RAW.hex().encode(),
    "gzip in base64": b'{"blob": "' + base64.b64encode(gzip.compress(RAW)) + b'"}',
    "zlib in base64": b'{"blob": "' + base64.b64encode(zlib.compress(RAW)) + b'"}',
    "gzip in hexadecimal": gzip.compress(RAW).hex().encode(),
    "quoted-printable": quopri.encodestring(RAW),
    "UTF-16 with a mark": USER.encode("utf-16"),
    "UTF-16 without one": ("log: " + USER).encode("utf-16-le"),
    "UTF-16, big end first": ("log: " + USER).encode("utf-16-be"),
    "decomposed letters": unicodedata.normalize("NFD", USER).encode(),
    "full-width letters": "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in USER).encode(),
    "invisible letters": "\u200b".join(USER).encode(),
    "capitals": USER.upper().encode(),
    "gzip": gzip.compress(RAW),
    "bzip2": bz2.compress(RAW),
    "xz": lzma.compress(RAW),
    "lzma": lzma.compress(RAW, format=lzma.FORMAT_ALONE),
    "zip": zip_of(RAW),
    "tar": tar_of(RAW, "w:"),
    "tar with gzip inside": tar_of(gzip.compress(RAW), "w:"),
    "tar.gz": tar_of(RAW, "w:gz"),
    "tar.xz in a zip": zip_of(tar_of(RAW, "w:xz")),
}


@pytest.mark.parametrize("form", WRITTEN)
def test_a_name_is_found_however_it_is_written_or_packed(form: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(WRITTEN[form])
    report = forget(USER, [tmp_path])
    assert report.search is not None
    assert "id" in {trace.what.partition(":")[0] for trace in report.search.traces}
    assert not report.is_gone


def test_a_name_in_latin_1_is_found(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"caf\xe9 for ren\xe9e_m, please")
    report = forget("renée_m", [tmp_path])
    assert report.search is not None
    assert [trace.what for trace in report.search.traces] == ["id: renée_m"]


def test_a_text_is_found_where_the_name_is_not(tmp_path: Path) -> None:
    (tmp_path / "posts.jsonl").write_text(json.dumps({"user_id": USER, "text": DIARY}) + "\n")
    (tmp_path / "copy.txt").write_bytes(base64.b64encode(f"she said: {DIARY}.".encode()))
    report = forget(USER, [tmp_path])
    assert report.search is not None
    assert [trace.what[:22] for trace in report.search.traces] == ["text: i dropped the ke"]


def test_letters_of_another_name_are_no_trace(tmp_path: Path) -> None:
    others = [USER.replace("brien", "briens"), "żaneta k o'brien", "przebieg " + USER.replace("ż", "z")]
    (tmp_path / "log.txt").write_text("\n".join([*others, *(base64.b64encode(o.encode()).decode() for o in others)]))
    assert forget(USER, [tmp_path]).is_gone


# The first bytes are those of the format; what follows need not be whole to be named.
NOISE = random.Random(0).randbytes(4096)
SEALED = {
    "rows.jsonl.zst": b"\x28\xb5\x2f\xfd" + NOISE,
    "rows.lz4": b"\x04\x22\x4d\x18" + NOISE,
    "rows.sz": b"\xff\x06\x00\x00sNaPpY" + NOISE,
    "rows.7z": b"7z\xbc\xaf\x27\x1c" + NOISE,
    "rows.rar": b"Rar!\x1a\x07\x01\x00" + NOISE,
    "rows.Z": b"\x1f\x9d\x90" + NOISE,
    "rows.lz": b"LZIP\x01" + NOISE,
    "rows.br": b"\x0b\x02\x80abc\x03",
    "rows.zlib": zlib.compress(RAW),
    "rows.gpg": b"\x85\x01\x0c\x03" + NOISE,
    "rows.asc": b"-----BEGIN PGP MESSAGE-----\n\nhQEMA\n",
    "rows.enc": b"Salted__" + NOISE,
    "vault": NOISE,  # nobody says what it is
    "scan.pdf": b"%PDF-1.7\n" + zlib.compress(RAW),
    "photo.png": b"\x89PNG\r\n\x1a\n" + NOISE,
    "photo.jpg": b"\xff\xd8\xff\xe0" + NOISE,
    "voice.ogg": b"OggS" + NOISE,
}


@pytest.mark.parametrize("name", SEALED)
def test_what_cannot_be_opened_is_named_and_ends_with_1(name: str, tmp_path: Path, shell: Any) -> None:
    (tmp_path / name).write_bytes(SEALED[name])
    code, out = shell("data", "forget", USER, "--in", str(tmp_path))
    assert code == 1
    assert f"could not be read: {tmp_path / name} (" in out
    assert "this is no proof" in out


@pytest.mark.parametrize("name", ["rows.jsonl.zst", "photo.png", "rows.zlib"])
def test_what_cannot_be_opened_is_named_inside_an_archive_too(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr(name, SEALED[name])
    assert list(forget(USER, [tmp_path]).unread) == [str(tmp_path / "all.zip")]


def test_a_packed_text_that_breaks_off_is_named(tmp_path: Path) -> None:
    (tmp_path / "blob.txt").write_bytes(base64.b64encode(gzip.compress(RAW)[:60]))
    assert list(forget(USER, [tmp_path]).unread) == [str(tmp_path / "blob.txt")]


def test_weights_and_texts_are_no_noise(tmp_path: Path) -> None:
    import numpy as np

    draws = np.random.default_rng(0).normal(size=40_000)
    for name, kind in (("a", np.float64), ("b", np.float32), ("c", np.float16)):
        (tmp_path / name).write_bytes(draws.astype(kind).tobytes())
    (tmp_path / "d.txt").write_text("one line of a log\n" * 500)
    assert forget(USER, [tmp_path]).is_gone


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of somebody else."""
    path = tmp_path / "forum.db"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute('CREATE TABLE "the ""posts""" (id INTEGER PRIMARY KEY, body)')
        for number in range(200):
            made.execute('INSERT INTO "the ""posts""" VALUES (?, ?)', (number, f"{number} " + "hello " * 200))
    return path


def rows_found(report: Any) -> set[str]:
    return {Path(trace.path).name for trace in report.search.traces}


def test_a_deleted_row_of_a_database_is_found_in_its_free_pages(database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database)) as made, made:
        made.execute("PRAGMA secure_delete = OFF")
        made.execute('INSERT INTO "the ""posts""" VALUES (999, ?)', (LINE,))
    with closing(sqlite3.connect(database)) as made, made:
        made.execute("PRAGMA secure_delete = OFF")
        made.execute('DELETE FROM "the ""posts""" WHERE id > 100')
        assert made.execute('SELECT count(*) FROM "the ""posts""" WHERE id > 100').fetchone() == (0,)
    assert rows_found(forget(USER, [tmp_path])) == {"forum.db"}


def test_a_row_that_is_only_in_the_log_of_a_database_is_found(database: Path, tmp_path: Path) -> None:
    keeper = sqlite3.connect(database)
    keeper.execute("PRAGMA journal_mode = WAL")
    keeper.execute("PRAGMA wal_autocheckpoint = 0")
    with keeper:
        keeper.execute('INSERT INTO "the ""posts""" VALUES (999, ?)', (LINE,))
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "old.db-wal").write_bytes((tmp_path / "forum.db-wal").read_bytes())  # a backup without its database
    keeper.close()
    assert rows_found(forget(USER, [copy])) == {"old.db-wal"}


def test_a_backup_of_a_database_and_what_is_packed_in_its_cells_are_searched(database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database)) as made, made:
        made.execute('INSERT INTO "the ""posts""" VALUES (999, ?)', (gzip.compress(RAW),))
    (tmp_path / "forum.db.bak").write_bytes(database.read_bytes())
    assert rows_found(forget(USER, [tmp_path])) == {"forum.db", "forum.db.bak"}
