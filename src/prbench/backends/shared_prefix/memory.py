"""Lack of memory, told in one way whatever the device."""

from collections.abc import Iterator
from contextlib import contextmanager

ON_CPU = "DefaultCPUAllocator: "  # how PyTorch's message begins; the type of the error is no help there


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn PyTorch's errors about memory into `MemoryError`."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"out of memory: {error}") from error
    except RuntimeError as error:
        if ON_CPU not in str(error):
            raise
        raise MemoryError(f"out of memory: {error}") from error
