"""What commands leave behind: the store that writes runs, and the one way to read them."""

from prbench.runs.environment import environment
from prbench.runs.find import FoundRuns, StoredRun, find_runs
from prbench.runs.identity import Keys, differences, run_id
from prbench.runs.items import ItemValue, item_values
from prbench.runs.names import ITEMS, MANIFEST, SUMMARY, TIMING
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
