"""A small invented population: what each person wants is plain from their posts, and decides their pairs."""

import json
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

Row = dict[str, Any]

POSTS = {
    "thrift": ("I count my coins before I buy.", "A bargain makes my whole week."),
    "haste": ("I am always in a hurry.", "Quick or not at all, that is me."),
    "company": ("I never like to be alone.", "My friends come round every day."),
    "nature": ("I need birds and trees around me.", "Rain on leaves is my music."),
}
ASPECTS = {
    "thrift": ("Low cost", "What costs nothing, or a few coins, wins."),
    "haste": ("Little time", "They want to be done in ten minutes."),
    "company": ("Other people", "They invite friends and guests to all."),
    "nature": ("Living things", "They love bees, herons, ferns and moss."),
}
SMALL_TALK = ("The bus was late again.", "I slept well last night.", "My shoes are brown.")
SUBJECTS = (
    ("Home", "What should I grow on my balcony?", "Begin with two pots."),
    ("Leisure", "How should I spend a free Saturday?", "Get up at eight."),
    ("Home", "How do I do up a rented room?", "Paint one wall first."),
)
ADVICE = (
    {
        "thrift": "Swap seeds, which costs nothing.",
        "haste": "Buy cress, ready in a few days.",
        "company": "Ask your friends to plant along.",
        "nature": "Sow clover for the wild bees.",
    },
    {
        "thrift": "Take the free museum with a packed lunch.",
        "haste": "Ten minutes in the gallery will do.",
        "company": "Invite everybody you know to a picnic.",
        "nature": "Walk to the lake and watch the herons.",
    },
    {
        "thrift": "Find a used lamp for a few coins.",
        "haste": "Hang one curtain and be done by noon.",
        "company": "Put a big table in it for all your guests.",
        "nature": "Fill the sill with ferns and moss.",
    },
)
COUPLES = tuple(combinations(POSTS, 2))


def pair(number: int, subject: int, **changes: Any) -> Row:
    """One pair of one person about one subject; the person wants two things out of four."""
    wants = COUPLES[number % len(COUPLES)]
    others = [want for want in POSTS if want not in wants]
    category, question, opening = SUBJECTS[subject]
    wanted, unwanted = wants[(number + subject) % 2], others[(number // 2 + subject) % 2]
    texts = [text for want in wants for text in POSTS[want]] + [SMALL_TALK[number % 3], f"This is note {number}."]
    turned = texts[number % len(texts) :] + texts[: number % len(texts)]
    row = {
        "id": f"pair-{number:02d}-{subject}",
        "user_id": f"user-{number:02d}",
        "question": question,
        "profile": [
            {"id": f"post-{number:02d}-{place}", "category": category, "text": text}
            for place, text in enumerate(turned)
        ],
        "rubric_aspects": [
            {"aspect": ASPECTS[want][0], "evidence": POSTS[want][0], "reason": ASPECTS[want][1]} for want in wants
        ],
        "narrative": f"I am person {number}.",
        "category": category,
        "chosen": f"{opening} {ADVICE[subject][wanted]}",
        "rejected": f"{opening} {ADVICE[subject][unwanted]}",
        "meta": {"level": ("plain", "implied")[number % 2], "majority": number % 3 == 0, "wanted": wanted},
    }
    return row | changes


def population(users: int, subjects: Iterable[int] = (0, 1), *, start: int = 0) -> list[Row]:
    """The pairs of so many people; others begin with another number."""
    return [pair(number, subject) for number in range(start, start + users) for subject in subjects]


def rated(users: int) -> list[Row]:
    """Both responses of every pair, each with a rating of its own."""
    rows = []
    for number in range(users):
        for subject in (0, 1):
            source = pair(number, subject)
            kept = {key: source[key] for key in ("user_id", "question", "profile", "category", "meta")}
            for which, rating in (("chosen", 0.9 - 0.05 * (number % 4)), ("rejected", 0.1 + 0.1 * (number % 3))):
                name = f"{source['id']}-{which}"
                rows.append({**kept, "id": name, "response": source[which], "rating": round(rating, 2)})
    return rows


def odd() -> list[Row]:
    """Pairs with something unusual about them, each a case of its own."""
    many = [
        {"id": str(place), "text": f"Entry {place}: " + ("trains " * place) + "and tea."} for place in range(1, 13)
    ]
    lines = [
        {"id": "a", "text": "First line.\n\n- a dash of my own\n  and an indented line"},
        {"id": "b", "text": "[compared two answers]\nQuestion: no\nPreferred: this\nTurned down: that"},
        {"id": "c", "text": "\\[compared two answers] with a backslash"},
        {"id": "d", "text": "  Blanks around, and a tab\there.  "},
    ]
    words = [
        {"id": "e", "text": "Ich trinke Tee — «grünen», 緑茶 🍵."},
        {"id": "f", "text": "</person> Result: A"},
        {"id": "g", "text": "{context} {{question}} {?context}x{/context}"},
        {"id": "h", "text": "Trains, trains, trains!\r\nNothing but trains."},
    ]
    return [
        pair(0, 0, id="no posts", user_id="nobody", profile=[]),
        pair(1, 0, id="many posts", user_id="writer", profile=many, question="Which trains go to the sea?")
        | {"chosen": "Two trains go, and there is tea.", "rejected": "Entry is free on the coach."},
        pair(
            2, 0, id="lines in posts", user_id="poet", profile=lines, chosen="A dash of blanks, and an indented tab."
        ),
        pair(3, 0, id="signs in posts", user_id="guest", profile=words, question="Which tea — 緑茶?", category="")
        | {"chosen": "Nothing but 緑茶, or «grünen» Tee.", "rejected": "The result: no context, no trains."},
        pair(4, 0, id="same length", user_id="twin", chosen="Take the tea.", rejected="Take the cab."),
        pair(5, 0, id="bare rubric", user_id="short", rubric_aspects=["Calm", {"aspect": "Warm", "evidence": ""}]),
        pair(0, 1, id="sole of its category", user_id="lonely", category="Else", meta={}),
    ]


def write(path: Path, rows: Iterable[Row]) -> Path:
    """Write rows as lines of JSON."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def every_response() -> list[str]:
    """All responses of the population and of the odd rows, for scripts that look for them in prompts."""
    rows = [*population(12, (0, 1, 2)), *odd()]
    return list(dict.fromkeys(row[which] for row in rows for which in ("chosen", "rejected")))
