"""Reward models under test, and the one place where their names are looked up."""

from dataclasses import dataclass, replace
from pathlib import Path

from prbench.errors import UsageError
from prbench.llm.client import LLM, CountsTokens
from prbench.reward_models.base import Loaded, PairJudge, RewardModel
from prbench.reward_models.custom import wrap
from prbench.reward_models.settings import AUTO, ModelSettings
from prbench.reward_models.spec import Spec, override, parse_spec
from prbench.schema import Json

__all__ = [
    "KnownModel",
    "Loaded",
    "ModelSettings",
    "PairJudge",
    "RewardModel",
    "known_models",
    "load_reward_model",
    "wrap",
]


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """One kind of model, as `prbench models` lists it."""

    kind: str
    example: str  # a spec
    what: str
    needs: str  # "" where the core is enough


def load_reward_model(spec: str, settings: ModelSettings) -> Loaded:  # noqa: C901 (one case per kind)
    """Build the model named by a spec, e.g. `classifier:org/name?dtype=float32`; options override the settings."""
    parsed = parse_spec(spec)
    settings = override(settings, parsed)
    if settings.batch_size < AUTO:
        raise UsageError(f"--batch-size {settings.batch_size} scores nothing. Give a number above 0.")
    match parsed.kind:
        case "control":
            return _control(parsed, settings)
        case "classifier":
            return _classifier(parsed, settings)
        case "judge":
            return _judge(parsed, settings)
        case "rating":
            return _rating(parsed, settings)
        case "implicit":
            return _implicit(parsed, settings)
        case "pmi":
            return _pmi(parsed, settings)
        case "head":
            return _head(parsed)
        case "planner":
            return _planner(parsed, settings)
        case "match":
            return _match(parsed)
        case "blend":
            return _blend(parsed, settings)
        case "fewshot":
            return _fewshot(parsed)
        case "server":
            return _server(parsed, settings)
        case "summary":
            return _summary(parsed, settings)
        case "rubric-chain":
            return _rubric_chain(parsed, settings)
        case "fake":
            return _fake(parsed)
        case _:
            raise AssertionError(f"parse_spec let the kind {parsed.kind!r} pass")


def known_models() -> list[KnownModel]:
    """Return every kind with an example, in the order of the documentation."""
    from prbench.reward_models.controls import CONTROLS

    hf, llm, serve = "pip install 'prbench[hf]'", "pip install 'prbench[llm]'", "pip install 'prbench[serve]'"
    controls = [
        KnownModel(kind="control", example=f"control:{name}", what=what, needs=hf if name == "embed" else "")
        for name, what in CONTROLS.items()
    ]
    others = (
        ("classifier", "classifier:org/name", "sequence classifier: a hub id, a folder or a LoRA adapter", hf),
        ("judge", "judge:openai:model@http://127.0.0.1:8000/v1", "chat model that compares, in both orders", llm),
        ("judge", "judge:local:smollm2?mode=logits", "the same, by the log-probabilities of A and B", llm),
        ("rating", "rating:local:smollm2", "chat model that gives each response a number", llm),
        ("implicit", "implicit:org/policy,org/reference", "DPO-style log-ratio of two language models", hf),
        ("pmi", "pmi:org/language-model", "what the context adds to a response's log-probability", hf),
        ("planner", "planner:DIR", "foreseen aspects as criteria: a folder of `prbench train --method planner`", hf),
        ("head", "head:lab-user", "trained head on embeddings: a folder, or lab-user, lab-average (shipped)", hf),
        ("match", "match:FOLDER", "trained weights on what a response touches of the user's likes and dislikes", hf),
        ("blend", "blend:FOLDER", "several trained models, weighed on held-out users", hf),
        ("fewshot", "fewshot:FOLDER", "trained model that adapts to a user's labelled pairs (--labels)", hf),
        (
            "server",
            "server:http://127.0.0.1:8000",
            "a reward server (the protocol is in docs/reward-models.md)",
            serve,
        ),
        ("server", "server:http://127.0.0.1:8000?api=classify", "a classifier behind vLLM", serve),
        ("summary", "summary:FOLDER?cache=FILE", "reads a short summary of the user, which may be edited", hf),
        ("rubric-chain", "rubric-chain:FOLDER?samples=64", "samples rubrics from a trained planner, and averages", hf),
        ("rubric-chain", "rubric-chain:local:smollm2", "a chat model writes rubrics, and scores by them", llm),
        ("fake", "fake:keyword=WORD", "stand-in for tests; also fake:constant and fake:length", ""),
    )
    return controls + [KnownModel(kind=k, example=e, what=w, needs=n) for k, e, w, n in others]


def _control(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.controls import load_control

    if "encoder" in spec.options and spec.target != "embed":
        raise UsageError(f"{spec.text}: only control:embed takes an encoder.")
    model = load_control(spec.target, seed=settings.seed, encoder=spec.options.get("encoder", "minilm"))
    return Loaded(spec=spec.text, kind="control", model=model, identity=model.identity, items_per_step=256)


def _classifier(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.adapters import load_adapted
    from prbench.reward_models.classifier import HEADS, LOADERS, ClassifierReward

    head = spec.choice("head", HEADS, "logit")
    if head != "logit" and "logit" in spec.options:
        raise UsageError(f"{spec.text}: head={head} and logit exclude each other. Give one of them.")
    loader = spec.choice("loader", tuple(LOADERS), "classifier")
    adapter = _adapter(spec, settings)
    device = spec.options.get("device", "auto")
    bos = spec.choice("bos", ("one", "none"), "one")
    model = (
        ClassifierReward(
            spec.target,
            settings,
            logit=spec.options.get("logit"),
            head=head,
            loader=loader,
            device=device,
            bos=bos,
        )
        if adapter == "none"
        else load_adapted(adapter, spec.target, settings, device=device, bos=bos)
    )
    return Loaded(
        spec=spec.text,
        kind="classifier",
        model=model,
        identity=model.identity,
        template_hash=model.template_hash,
        fits=model.fits,
        tokens=model.tokens,
        note=model.note,
    )


def _adapter(spec: Spec, settings: ModelSettings) -> str:
    """Return the adapter that the spec names, or the one that the model's config asks for."""
    from prbench.reward_models.adapters import ADAPTERS, choose_adapter

    named = spec.choice("adapter", ("auto", "none", *ADAPTERS), "auto")
    rules = [name for name in ("logit", "head", "loader") if name in spec.options]
    if named in ADAPTERS and rules:
        raise UsageError(f"{spec.text}: {rules[0]} is for plain classifiers, and adapter={named} has its own rule.")
    if named != "auto":
        return named
    return "none" if rules else choose_adapter(spec.target, settings.revision)


def _judge(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.prompts import load_template
    from prbench.reward_models.generative import JudgeModel

    mode = spec.choice("mode", ("parse", "logits"), "parse")
    max_tokens = spec.whole("max_tokens", 512)
    template = load_template(settings.template or ("judge_pair" if mode == "parse" else "judge_pair_direct"))
    inner, llm_identity = _llm(spec, settings)
    model = JudgeModel(_cached(inner, settings), template, "parse" if mode == "parse" else "logits", max_tokens)
    return Loaded(
        spec=spec.text,
        kind="judge",
        model=model,
        identity={**llm_identity, "mode": mode, "max_tokens": max_tokens},
        template_hash=template.hash,
        fits=model.fits,
        items_per_step=8,
        tokens=inner.tokens if mode == "logits" and isinstance(inner, CountsTokens) else None,
    )


def _rating(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.prompts import load_template
    from prbench.reward_models.generative import RatingModel

    template = load_template(settings.template or "rate").require("question", "context", "response", answer="score")
    low, high = template.scale or (1, 10)
    max_tokens = spec.whole("max_tokens", 512)
    llm, llm_identity = _llm(spec, settings)
    model = RatingModel(_cached(llm, settings), template, low, high, max_tokens)
    return Loaded(
        spec=spec.text,
        kind="rating",
        model=model,
        identity={**llm_identity, "max_tokens": max_tokens},
        template_hash=template.hash,
        fits=model.fits,
        items_per_step=8,
    )


def _llm(spec: Spec, settings: ModelSettings) -> tuple[LLM, dict[str, Json]]:
    """Return the chat model inside a judge or a rating model, and all of it that changes replies."""
    from prbench.llm import load_llm
    from prbench.llm.cache import Fingerprinted

    window = spec.whole("window", 1) if "window" in spec.options else None
    llm = load_llm(
        spec.target,
        window=window,
        concurrency=spec.whole("concurrency", 1) if "concurrency" in spec.options else None,
        timeout_seconds=spec.number("timeout", 120.0),
        seed=settings.seed,
        answers_as=spec.options.get("answers_as", ""),
    )
    identity = {
        "llm": llm.name,
        "window": window,  # only a given one: what a server says of itself may come late or not at all
        "seed": settings.seed,
        "fingerprint": llm.fingerprint if isinstance(llm, Fingerprinted) else "",
    }
    return llm, identity


def _cached(llm: LLM, settings: ModelSettings) -> LLM:
    from prbench.llm import CachedLLM

    return CachedLLM(llm, settings.cache) if settings.cache else llm


def _implicit(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.implicit import ImplicitReward

    policy, comma, reference = spec.target.partition(",")
    if not comma or not policy or not reference or "," in reference:
        raise UsageError(f"{spec.text}: write implicit:<policy>,<reference>, two models and one comma.")
    model = ImplicitReward(
        policy,
        reference,
        settings,
        beta=spec.number("beta", 1.0),
        per_token=spec.truth("per_token", False),
        device=spec.options.get("device", "auto"),
        bos=spec.choice("bos", ("one", "none"), "one"),
    )
    return Loaded(
        spec=spec.text,
        kind="implicit",
        model=model,
        identity=model.identity,
        template_hash=model.template_hash,
        fits=model.fits,
        tokens=model.tokens,
        note=model.note,
    )


def _head(spec: Spec) -> Loaded:
    from prbench.arrays import open_encoder
    from prbench.encoders import load_encoder
    from prbench.lab import SHIPPED_HEADS
    from prbench.reward_models.head import HeadReward, load_weights

    folder = SHIPPED_HEADS.get(spec.target, Path(spec.target))
    weights = load_weights(folder)
    model = HeadReward(weights, open_encoder(folder, load_encoder, spec.options.get("encoder")), name=spec.target)
    return Loaded(spec=spec.text, kind="head", model=model, identity=model.identity, items_per_step=256)


def _match(spec: Spec) -> Loaded:
    from prbench.arrays import open_encoder
    from prbench.encoders import load_encoder
    from prbench.reward_models.match import Matcher, MatchReward, load_weights

    folder = Path(spec.target)
    weights = load_weights(folder)
    matcher = Matcher(open_encoder(folder, load_encoder, spec.options.get("encoder")))
    model = MatchReward(weights, matcher, name=spec.target)
    return Loaded(spec=spec.text, kind="match", model=model, identity=model.identity, items_per_step=64)


def _blend(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.blend import BlendReward, load_voices

    voices = load_voices(Path(spec.target), lambda member: load_reward_model(member, settings))
    if not all(isinstance(voice.loaded.model, RewardModel) for voice in voices):
        raise UsageError(f"{spec.text}: a member compares pairs and gives no scores, so it cannot be blended.")
    model = BlendReward(voices, name=spec.target)
    step = min(voice.loaded.items_per_step for voice in voices)
    return Loaded(
        spec=spec.text, kind="blend", model=model, identity=model.identity, fits=model.fits, items_per_step=step
    )


def _fewshot(spec: Spec) -> Loaded:
    from prbench.arrays import open_encoder
    from prbench.encoders import load_encoder
    from prbench.reward_models.fewshot import FewshotReward, load_weights

    folder = Path(spec.target)
    weights = load_weights(folder)
    encoder = open_encoder(folder, load_encoder, spec.options.get("encoder"), otherwise=weights.encoder)
    model = FewshotReward(weights, encoder, name=spec.target)
    return Loaded(spec=spec.text, kind="fewshot", model=model, identity=model.identity, items_per_step=256)


def _planner(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.arrays import open_encoder
    from prbench.context.aspect_planner import WEIGHTS, AspectPlanner, read_planner
    from prbench.encoders import load_encoder
    from prbench.reward_models.criteria import CriteriaScorer, load_criteria
    from prbench.reward_models.planner import SCORER, WEIGHINGS, PlannerReward

    folder = Path(spec.target)
    if (folder / SCORER).is_file() and not (folder / WEIGHTS).is_file():
        return _lm_planner(spec, folder, settings)
    weighing = spec.choice("weights", WEIGHINGS, "probability")
    read, criteria = read_planner(folder), load_criteria(folder)
    encoder = open_encoder(folder, load_encoder, spec.options.get("encoder"), otherwise=read.encoder)
    model = PlannerReward(
        AspectPlanner(read.weights, read.bank, encoder), CriteriaScorer(criteria, encoder), weighing=weighing
    )
    return Loaded(spec=spec.text, kind="planner", model=model, identity=model.identity, items_per_step=256)


def _lm_planner(spec: Spec, folder: Path, settings: ModelSettings) -> Loaded:
    """Return a language model that plans, with the scorer beside it."""
    from prbench.arrays import open_encoder
    from prbench.encoders import load_encoder
    from prbench.fingerprint import fingerprint
    from prbench.llm import load_llm
    from prbench.reward_models.criteria import CriteriaScorer, load_criteria
    from prbench.reward_models.planner import LmPlannerReward, scorer_encoder

    if "weights" in spec.options:
        raise UsageError(f"{spec.text}: a language model's plan has no tags or probabilities. Leave weights out.")
    asked, otherwise = spec.options.get("encoder"), scorer_encoder(folder)
    scorer = CriteriaScorer(load_criteria(folder), open_encoder(folder, load_encoder, asked, otherwise=otherwise))
    planner = _cached(load_llm(f"hf:{folder}", seed=settings.seed), settings)
    model = LmPlannerReward(planner, scorer, identity={"adapter": fingerprint(folder)}, name=spec.target)
    return Loaded(spec=spec.text, kind="planner", model=model, identity=model.identity, items_per_step=128)


def _pmi(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.implicit import PmiReward

    model = PmiReward(
        spec.target,
        settings,
        per_token=spec.truth("per_token", False),
        device=spec.options.get("device", "auto"),
        bos=spec.choice("bos", ("one", "none"), "one"),
    )
    return Loaded(
        spec=spec.text,
        kind="pmi",
        model=model,
        identity=model.identity,
        template_hash=model.template_hash,
        fits=model.fits,
        tokens=model.tokens,
        note=model.note,
    )


def _server(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.server import APIS, PrbenchServerReward, Requests, VllmReward

    api = spec.choice("api", APIS, "prbench")
    requests = Requests(
        spec.target,
        timeout_seconds=spec.number("timeout", 120.0),
        patience_seconds=spec.number("patience", 120.0),
    )
    model: PrbenchServerReward | VllmReward
    if api == "prbench":
        for name in ("model", "logit", "template"):
            if name in spec.options:
                raise UsageError(
                    f"{spec.text}: {name} is for vLLM. Say ?api=classify, or choose it where the server starts."
                )
        model = PrbenchServerReward(
            requests, settings, concurrency=spec.whole("concurrency", 4), expect=spec.options.get("expect")
        )
    else:
        if "expect" in spec.options:
            raise UsageError(f"{spec.text}: expect is for `prbench serve`. For vLLM, say ?model=NAME.")
        logit = spec.options.get("logit")
        if logit is not None and not logit.isdecimal():
            raise UsageError(f"{spec.text}: logit={logit} is not an index. Count from 0.")
        model = VllmReward(
            requests,
            settings,
            api=api,
            model=spec.options.get("model"),
            logit=None if logit is None else int(logit),
            concurrency=spec.whole("concurrency", 16),
        )
    return Loaded(
        spec=spec.text,
        kind="server",
        model=model,
        identity=model.identity,
        template_hash=model.template_hash,
        fits=model.fits,
    )


def _summary(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.summaries import load_summary_reward

    def ask(summariser: str) -> LLM:
        return _cached(_llm(replace(spec, target=summariser), settings)[0], settings)

    cache = spec.options.get("cache")
    model = load_summary_reward(Path(spec.target), encoder=spec.options.get("encoder"), cache=cache, ask=ask)
    return Loaded(spec=spec.text, kind="summary", model=model, identity=model.identity, items_per_step=256)


def _rubric_chain(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.llm import KINDS
    from prbench.reward_models.rubric_chain import RubricChain

    if spec.target.partition(":")[0] not in KINDS or ":" not in spec.target:
        return _sampled_rubrics(spec, settings)
    if settings.template:
        raise UsageError(f"{spec.text}: a rubric chain has two prompts of its own, so --template means nothing here.")
    samples = spec.whole("samples", 4)
    llm, llm_identity = _llm(spec, settings)
    model = RubricChain(
        _cached(llm, settings),
        samples=samples,
        temperature=spec.number("temperature", 0.7) if samples > 1 or "temperature" in spec.options else 0.0,
        max_tokens=spec.whole("max_tokens", 512),
        seed=settings.seed,
    )
    return Loaded(
        spec=spec.text,
        kind="rubric-chain",
        model=model,
        identity={**llm_identity, **model.identity},
        template_hash=model.template_hash,
        fits=model.fits,
        items_per_step=8,
    )


def _sampled_rubrics(spec: Spec, settings: ModelSettings) -> Loaded:
    from prbench.reward_models.sampled_rubrics import SAMPLES, load_sampled_rubrics

    foreign = sorted(spec.options.keys() - {"samples", "seed"})
    if foreign:
        raise UsageError(f"{spec.text}: {foreign[0]} is for chat models. A trained folder takes samples and seed.")
    model = load_sampled_rubrics(Path(spec.target), samples=spec.whole("samples", SAMPLES), seed=settings.seed)
    return Loaded(spec=spec.text, kind="rubric-chain", model=model, identity=model.identity, items_per_step=256)


def _fake(spec: Spec) -> Loaded:
    from prbench.reward_models.fake import load_fake

    model = load_fake(spec.target)
    return Loaded(spec=spec.text, kind="fake", model=model, identity=model.identity)
