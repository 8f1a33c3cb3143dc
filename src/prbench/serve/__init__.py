"""A reward model behind HTTP: it batches what arrives together, and never answers with a number that it does not have.

`settings.py` says what a server takes, `protocol.py` has the bodies, `queue.py` what waits and the thread that runs
the model, `metrics.py` the figures; `server.py` puts them behind one address. `people.annotate` shares `http.py`.
"""
