"""What commands leave behind: the store that writes runs, and the one way to read them."""

from prbench.runs.find import FoundRuns, StoredRun, find_runs
from prbench.runs.names import ITEMS, MANIFEST, SUMMARY, TIMING
from prbench.runs.rows import from_record, read_rows, to_record
from prbench.runs.store import RunStore, run_id

__all__ = [
    "ITEMS",
    "MANIFEST",
    "SUMMARY",
    "TIMING",
    "FoundRuns",
    "RunStore",
    "StoredRun",
    "find_runs",
    "from_record",
    "read_rows",
    "run_id",
    "to_record",
]
