"""Names by Microsoft Presidio, for those who installed it: a model finds names that nothing introduces."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Protocol

from prbench.construction.privacy.names import find_names
from prbench.construction.privacy.spans import BLANK
from prbench.errors import UsageError

MODELS = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm")  # the first one that is installed is used
LEAST_SCORE = 0.5
INSTALL = "pip install 'prbench[redact]' and python -m spacy download en_core_web_lg"


class _Result(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def score(self) -> float: ...


class Analyzer(Protocol):
    """What we need of Presidio's AnalyzerEngine."""

    def analyze(self, text: str, language: str, *, entities: list[str]) -> Iterable[_Result]:
        """Return where entities stand in a text."""
        ...


class PresidioNames:
    """Finds what the model takes for a person, and what our patterns find besides."""

    def __init__(self, engine: Analyzer, name: str = "presidio") -> None:
        self._engine = engine
        self.name = name

    def __call__(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where names stand; what is masked already is not read as a part of one."""
        yield from find_names(text)
        for result in self._engine.analyze(text, "en", entities=["PERSON"]):
            if result.score >= LEAST_SCORE and BLANK not in text[result.start : result.end]:
                yield result.start, result.end


def load_presidio() -> PresidioNames:
    """Return Presidio with an installed spaCy model. By itself it would fetch one from the net: we never let it."""
    if find_spec("presidio_analyzer") is None:
        raise UsageError(f"Names by Presidio need packages that are not installed. Run: {INSTALL}")
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider
    from spacy.util import is_package

    model = next(filter(is_package, MODELS), None)
    if model is None:
        raise UsageError(f"Presidio has no English spaCy model here ({', '.join(MODELS)}). Run: {INSTALL}")
    wanted = {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": model}]}
    nlp = NlpEngineProvider(nlp_configuration=wanted).create_engine()
    return PresidioNames(AnalyzerEngine(nlp_engine=nlp, supported_languages=["en"]), name=f"presidio with {model}")


def has_presidio() -> bool:
    """True if Presidio and one of its models are installed."""
    return find_spec("presidio_analyzer") is not None and any(find_spec(model) for model in MODELS)
