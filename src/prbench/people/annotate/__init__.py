"""People check the pairs: a small web app on SQLite, which asks annotators blind and keeps everything they save.

`records.py` has the records, `database.py` the tables, `store.py` items and answers, `people.py` links and sessions,
`assignment.py` who gets which item, `rows.py` and `exchange.py` what goes out and comes back, `progress.py` the
figures, `pages.py` the pages; `server.py` has the routes, and `auth.py` knows who asks.
"""

from prbench.people.annotate.store import Store, create, forget

__all__ = ["Store", "create", "forget"]
