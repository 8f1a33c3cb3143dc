"""A reward model behind HTTP: it batches what arrives together, and never answers with a number that it does not have.

`settings.py` says what a server takes, `waiting.py` holds what waits, `worker.py` runs the model, `gate.py` lets
requests in, `app.py` has the routes, `wire.py` the bodies, `counts.py` the metrics; `server.py` starts and ends it.
"""
