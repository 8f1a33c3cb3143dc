"""What commands leave behind: the store that writes runs, and the one way to read them."""

from prbench.runs.files import ITEMS, MANIFEST, SUMMARY, TIMING
from prbench.runs.find import FoundRuns, ItemValue, StoredRun, find_runs, item_values
from prbench.runs.manifest import Keyed, Keys, differences, environment, run_id
from prbench.runs.rows import from_record, is_retried, read_rows, to_record
from prbench.runs.store import Checkpoint, Layout, RowKey, RowLog, RunConfig, RunStore, read_latest

__all__ = [
    "ITEMS",
    "MANIFEST",
    "SUMMARY",
    "TIMING",
    "Checkpoint",
    "FoundRuns",
    "ItemValue",
    "Keyed",
    "Keys",
    "Layout",
    "RowKey",
    "RowLog",
    "RunConfig",
    "RunStore",
    "StoredRun",
    "differences",
    "environment",
    "find_runs",
    "from_record",
    "is_retried",
    "item_values",
    "read_latest",
    "read_rows",
    "run_id",
    "to_record",
]
