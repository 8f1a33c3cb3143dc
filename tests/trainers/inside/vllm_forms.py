"""vLLM's own records of requests and replies, read from its wheel: what they send, and whether they can read replies.

Runs in the trainers' environment: python vllm_forms.py FOLDER SERVER, where the folder holds `vllm/entrypoints`. What
these modules import beyond it needs all of vLLM; types of it stand for anything here. The last line is JSON.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

OURS = ("pooling.base.protocol", "pooling.scoring.protocol", "pooling.scoring.typing", "pooling.classify.protocol")
REAL = {f"vllm.entrypoints.{name}" for name in (*OURS, "serve.engine.protocol")}
CHAT = [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "beans"}]


class Quiet:
    def __getattr__(self, name):
        return lambda *_, **__: None


class Rest(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the rest of vLLM: packages to look in, and names that mean anything."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "vllm" or name in REAL:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(self.folder.joinpath(*name.split(".")))]
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        known = {
            "random_uuid": lambda: "one",
            "init_logger": lambda name: Quiet(),
            "validate_cache_salt": lambda salt: None,
            "check_removed_pooling_task": lambda task: None,
            "VLLMValidationError": ValueError,
        }
        module.__getattr__ = lambda name: known.get(name, Any)


def send(server, path, body):
    sent = body.model_dump(exclude_unset=True)
    request = urllib.request.Request(server + path, data=json.dumps(sent).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as reply:
        return json.load(reply)


def main():
    folder, server = Path(sys.argv[1]), sys.argv[2]
    sys.meta_path.insert(0, Rest(folder))
    classify = importlib.import_module("vllm.entrypoints.pooling.classify.protocol")
    scoring = importlib.import_module("vllm.entrypoints.pooling.scoring.protocol")
    texts = ["beans", "parks and beans"]
    found = {}
    for name, body in (
        ("queries", scoring.ScoreQueriesDocumentsRequest(queries="Q?", documents=texts, use_activation=False)),
        ("text", scoring.ScoreTextRequest(text_1="Q?", text_2=texts, model="longest")),
        ("data", scoring.ScoreDataRequest(data_1=["Q?", "Q?"], data_2=texts)),
    ):
        for path in ("/score", "/v1/score"):
            rows = [scoring.ScoreResponseData.model_validate(row) for row in send(server, path, body)["data"]]
            found[f"{name} {path}"] = [(row.index, row.score) for row in rows]
    ranked = scoring.RerankRequest(query="Q?", documents=texts, top_n=1, use_activation=False)
    results = [scoring.RerankResult.model_validate(row) for row in send(server, "/rerank", ranked)["results"]]
    found["rerank"] = [(row.index, row.document.text, row.relevance_score) for row in results]
    asked = classify.ClassificationChatRequest(messages=CHAT, use_activation=False)
    rows = [classify.ClassificationData.model_validate(row) for row in send(server, "/classify", asked)["data"]]
    found["classify"] = [(row.index, row.probs, row.num_classes) for row in rows]
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
