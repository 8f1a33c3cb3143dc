"""Datasets: open any source as checked examples, and write examples in the official layout."""

from prbench.data.export import write_dataset
from prbench.data.settings import DataSettings, Rows, load_dataset, open_data, select_rows
from prbench.data.source import is_named, kind_of_dataset
from prbench.data.store import ExampleStore, MadeExamples, content_hash, open_examples, raw_rows, split_names

__all__ = [
    "DataSettings",
    "ExampleStore",
    "MadeExamples",
    "Rows",
    "content_hash",
    "is_named",
    "kind_of_dataset",
    "load_dataset",
    "open_data",
    "open_examples",
    "raw_rows",
    "select_rows",
    "split_names",
    "write_dataset",
]
