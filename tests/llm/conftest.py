"""A real llama.cpp server on loopback, with the packaged model: one per test session."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from prbench.backends.llm.client import LLM
from prbench.backends.packaged_weights import smollm2_gguf
from prbench.errors import UsageError

WINDOW = 2048
SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]) * 2, 2
params.hostnames, params.port, params.verbosity, params.warmup = ["127.0.0.1"], 0, 0, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # two that share a busy core wait for each other
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()  # until the test session closes the pipe
"""


@pytest.fixture(scope="session")
def smollm2() -> str:
    """The path of the packaged model."""
    try:
        return str(smollm2_gguf())
    except UsageError as error:
        pytest.skip(f"the SmolLM2 weights are not installed: {error}")


@pytest.fixture(scope="session")
def llama_server(smollm2: str) -> Iterator[str]:
    """The base URL of a llama.cpp server that speaks the OpenAI API, with a window of 2,048 tokens."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install 'prbench[llm]'")
    command = [sys.executable, "-c", SERVE, smollm2, str(WINDOW)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the llama.cpp server did not start"
        yield f"{address}/v1"
        process.stdin.close()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def local_llm(smollm2: str) -> LLM:
    """The packaged model in this process."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install 'prbench[llm]'")
    from prbench.backends.llm.local import LlamaCppLLM

    return LlamaCppLLM("smollm2", n_ctx=WINDOW, threads=1)
