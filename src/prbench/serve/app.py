"""The routes: read the body, ask the model, write the reply."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from prbench.schema import Json, Score
from prbench.serve.metrics import CONTENT_TYPE
from prbench.serve.middleware import Gate
from prbench.serve.protocol import (
    FitsBody,
    PairsBody,
    RefusedError,
    RerankBody,
    ScoreBody,
    pairs_reply,
    read_body,
    rerank_reply,
    score_rows,
)
from prbench.serve.queue import Task
from prbench.serve.service import Service

CLIENT_LEFT = 499  # nobody reads this reply; the number is for the counts


def make_app(service: Service) -> ASGIApp:
    """Return the application behind its gate."""
    # The pages that FastAPI offers load scripts from elsewhere; docs/serve.md is the documentation.
    app = FastAPI(title="prbench", docs_url=None, redoc_url=None, openapi_url=None)
    _add_errors(app)
    _add_probes(app, service)
    _add_own(app, service)
    _add_v1(app, service)
    return Gate(app, service)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return JSONResponse(error.body, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        return JSONResponse(RefusedError(error.status_code, error.detail).body, error.status_code, headers)

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_LEFT)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        return JSONResponse(RefusedError(500, f"The server failed: {type(error).__name__}.").body, 500)


def _add_probes(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> dict[str, Json]:
        loaded = service.check_ready()
        return {"status": "ready", **service.sender, "fits": loaded.fits is not None}

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics(), media_type=CONTENT_TYPE)


def _add_own(app: FastAPI, service: Service) -> None:
    @app.post("/score")
    async def score(request: Request) -> Response:
        _, inputs = read_body(ScoreBody, await request.body(), service.settings)
        answers = await service.ask(Task.SCORE, inputs, request)
        return JSONResponse({**service.sender, "scores": score_rows(_scores(answers))})

    @app.post("/fits")
    async def fits(request: Request) -> Response:
        _, inputs = read_body(FitsBody, await request.body(), service.settings)
        return JSONResponse({**service.sender, "fits": await service.ask(Task.FITS, inputs, request)})


def _add_v1(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models")
    async def models() -> dict[str, Json]:
        service.check_ready()
        row = {"id": service.sender["model"], "object": "model", "owned_by": "prbench"}
        return {"object": "list", "data": [row]}

    @app.post("/v1/score")
    async def v1_score(request: Request) -> Response:
        body, inputs = read_body(PairsBody, await request.body(), service.settings)
        _check_model(service, body.model)
        answers = await service.ask(Task.SCORE, inputs, request)
        return JSONResponse({**service.sender, **pairs_reply(_scores(answers))})

    @app.post("/v1/rerank")
    async def v1_rerank(request: Request) -> Response:
        body, inputs = read_body(RerankBody, await request.body(), service.settings)
        _check_model(service, body.model)
        answers = await service.ask(Task.SCORE, inputs, request)
        return JSONResponse({**service.sender, **rerank_reply(body, _scores(answers))})


def _check_model(service: Service, asked: str | None) -> None:
    """Refuse a request for another model than the one that is served, by its whole id or its spec."""
    served = service.sender["model"]
    if asked not in (None, served, served.rpartition("#")[0]):
        raise RefusedError(404, f"This server has no model {asked!r}; it has {served!r}.")


def _scores(answers: list[Score | bool]) -> list[Score]:
    return [answer for answer in answers if isinstance(answer, Score)]
