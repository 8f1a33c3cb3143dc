"""A reward model behind HTTP: it batches what arrives together, and never answers with a number that it does not have.

`settings.py` says what a server takes, `queue.py` holds what waits, `worker.py` runs the model, `middleware.py` lets
requests in, `app.py` has the routes, `protocol.py` the bodies, `metrics.py` the figures; `server.py` starts it.
"""
