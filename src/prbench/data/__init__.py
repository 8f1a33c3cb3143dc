"""Datasets: open any source as checked examples, and write examples in the official layout."""

from prbench.data.export import write_dataset
from prbench.data.store import ExampleStore, MadeExamples, content_hash, open_examples, split_names

__all__ = ["ExampleStore", "MadeExamples", "content_hash", "open_examples", "split_names", "write_dataset"]
