"""Replies, and how they are read: a table that `prbench.prompts.replies` and the documentation are held to."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prbench.schema import Json, Pick


@dataclass(frozen=True, slots=True)
class Form:
    """A reply, and how it is read."""

    reply: str
    reading: str
    note: str = ""


VERDICT_FORMS: tuple[Form, ...] = (
    Form("Result: A", Pick.FIRST, "the form that our prompts ask for"),
    Form("Result: B", Pick.SECOND),
    Form("result : b", Pick.SECOND, "any case, spaces before the colon"),
    Form("RESULT：B。", Pick.SECOND, "full-width punctuation"),
    Form("**Result:** A", Pick.FIRST, "bold, backticks and quotes, around the letter or around all of it"),
    Form("Result: **A**", Pick.FIRST),
    Form("Result: `A`", Pick.FIRST),
    Form('Result: "A".', Pick.FIRST),
    Form("Result: (B)", Pick.SECOND, "brackets and boxes"),
    Form("Result: [B]", Pick.SECOND),
    Form("Result: [[B]]", Pick.SECOND),
    Form("Result: <B>", Pick.SECOND),
    Form("Result: $\\boxed{\\text{B}}$", Pick.SECOND),
    Form("Result: Response A", Pick.FIRST, "Response, Answer, Option or Assistant before the letter"),
    Form("Verdict: Option B!", Pick.SECOND, "other keywords: Verdict, Winner, Final answer"),
    Form("Winner: Answer B", Pick.SECOND),
    Form("My final verdict is: [[A]]", Pick.FIRST, "so, thus, hence, therefore; my, the; final, overall; is"),
    Form("Final answer: A. It names the price.", Pick.FIRST, "a new sentence may follow on the line"),
    Form("Result:\nA", Pick.FIRST, "the letter alone on the next line"),
    Form("As a result: B misses the point. Result: A", Pick.FIRST, "the keyword begins a line or a sentence"),
    Form("Result: A\nOn second thoughts:\nResult: B", Pick.SECOND, "the last explicit verdict wins"),
    Form("Result: A\nResult: A or B", Pick.FIRST, "a line that is none does not undo it"),
    Form("<think>Result: A</think>Result: B", Pick.SECOND, "thinking is taken out first"),
    Form("B", Pick.SECOND, "the letter, plain or wrapped, as the whole reply"),
    Form("**(A).**", Pick.FIRST),
    Form("The first is cheaper.\n[[A]]", Pick.FIRST, "`[[A]]`, `\\boxed{A}` or `<answer>A</answer>` as the last line"),
    Form("The second is cheaper.\n\\boxed{B}", Pick.SECOND),
    Form("The second is cheaper.\n<answer>[[B]]</answer>", Pick.SECOND),
    Form("Result: tie", Pick.TIE, "also: a tie, tied, draw, a draw, no preference"),
    Form("Result: **Equal**", Pick.TIE, "also: equally good, both equal, both are equal, they are equal"),
    Form("Result: both", Pick.TIE),
    Form("Result: neither preferred", Pick.TIE, "also: neither"),
    Form("Response A is better", Pick.UNREADABLE, "a mention is no verdict"),
    Form("Answer B", Pick.UNREADABLE),
    Form("A or B", Pick.UNREADABLE),
    Form("Result: A or B", Pick.UNREADABLE, "two letters are no verdict"),
    Form("Result: A/B", Pick.UNREADABLE),
    Form("Result: A and B", Pick.UNREADABLE),
    Form("Result: A better choice is B", Pick.UNREADABLE, "an article is no verdict"),
    Form("Result: Although A is longer, B is kinder", Pick.UNREADABLE),
    Form("Result: B because it is kinder", Pick.UNREADABLE, "prose runs on in the same sentence"),
    Form("As a result: B", Pick.UNREADABLE, "a figure of speech, not our keyword"),
    Form("Your line would be Result: A or Result: B", Pick.UNREADABLE, "the task repeated"),
    Form("We saw [[A]] and [[B]] above.", Pick.UNREADABLE),
    Form("<think>Result: A", Pick.UNREADABLE, "thinking that never ends"),
    Form("", Pick.UNREADABLE),
)

SCORE_FORMS: tuple[Form, ...] = (  # on a scale from 1 to 10
    Form("Score: 8", "8", "the form that our prompts ask for"),
    Form("**Score:** 7.5", "7.5"),
    Form("Score: [[8]].", "8", "the same wrappers as above"),
    Form("Final score: \\boxed{8}", "8", "my, the; final, overall"),
    Form("Rating: 8/10", "8", "the denominator must be the top of the scale"),
    Form("Score: 8 out of 10", "8"),
    Form("Score: 3\nScore: 4", "4", "the last explicit score wins"),
    Form("8", "8", "the number, plain or wrapped, as the whole reply"),
    Form("It is cheap.\n\\boxed{8}", "8", "`[[8]]`, `\\boxed{8}` or `<answer>8</answer>` as the last line"),
    Form("Score: 8/100", "", "another scale"),
    Form("Score: 11", "", "out of range; an earlier score does not stand in for it"),
    Form("Score: 80%", "", "a percentage is read on a scale from 0 to 100 only"),
    Form("Score: 7-8", ""),
    Form("On a scale of 1 to 10 it deserves 8", "", "a mention is no score"),
)

JSON_SHAPE: Mapping[str, Json] = MappingProxyType(
    {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 2}, "quote": {"type": "string"}},
        "required": ["score"],
        "additionalProperties": False,
    }
)

JSON_FORMS: tuple[Form, ...] = (  # with the shape above: a `score` from 0 to 2, and maybe a `quote`
    Form('{"score": 2, "quote": "a"}', '{"score": 2, "quote": "a"}', "the form that our prompts ask for"),
    Form('```json\n{"score": 2}\n```', '{"score": 2}', "code fences and prose around it"),
    Form('Sure! Here it is: {"score": 2} I hope it helps.', '{"score": 2}'),
    Form("\\boxed{{“score”: 2}}", '{"score": 2}', "typographic quotes as delimiters"),
    Form('{“score”: 2, “quote”: “a "b" c”}', '{"score": 2, "quote": "a \\"b\\" c"}'),
    Form('{"score": 2, "quote": "“a”"}', '{"score": 2, "quote": "“a”"}', "inside a text they stay what they are"),
    Form('{"score": 2,}', '{"score": 2}', "a comma before the end"),
    Form('{"score": 2, // two\n"quote": "a" # b\n}', '{"score": 2, "quote": "a"}', "comments to the end of a line"),
    Form('{"score": 2, "quote": "a // b # c"}', '{"score": 2, "quote": "a // b # c"}'),
    Form('{"score": 2, "quote": "a\nb"}', '{"score": 2, "quote": "a\\nb"}', "a line break inside a text"),
    Form('{"score": 0}\nNo, rather:\n{"score": 2}', '{"score": 2}', "the last one that has the keys wins"),
    Form('{"score": 2} {"quote": "a"}', '{"score": 2}'),
    Form('{"result": {"score": 2}}', '{"score": 2}', "wrapped, as long as there is only one inside"),
    Form('[{"score": 2}]', '{"score": 2}'),
    Form('{"score": 2, "reason": "a"}', '{"score": 2, "reason": "a"}', "keys that nobody asked for stay"),
    Form('<think>{"score": 0}</think>{"score": 2}', '{"score": 2}', "thinking is taken out first"),
    Form('{"quote": "</think>{“score”: 0}", "score": 2}', '{"quote": "</think>{“score”: 0}", "score": 2}', "quoted"),
    Form('{"quote": "{\\"score\\": 0}", "score": 2}', '{"quote": "{\\"score\\": 0}", "score": 2}'),
    Form('{"score": <0, 1 or 2>}\n{"score": 2}', '{"score": 2}', "after a broken one, what begins a line counts"),
    Form('{"score": 2, "quote": "he wrote {"score": 0}"}', "", "else it may be a quotation"),
    Form('{"score": 2, "quote": "he wrote\n{"score": 0}\n"}', "", "also on a line of its own"),
    Form('{"score": 2, "quote": "he wrote "} {"score": 0}"}', "", "or where another brace is closed later"),
    Form('{"score": 2}}', '{"score": 2}', "right after the object that is a mere slip"),
    Form('{"score": 0}\n{"score": 3}', "", "out of range; an earlier one does not stand in for it"),
    Form('{"score": "2"}', "", "another type"),
    Form('{"score": true}', ""),
    Form('{"score": 1.5}', ""),
    Form('{"score": null}', ""),
    Form('{"score": 2/2}', ""),
    Form('{"quote": "a"}', "", "a missing value is never guessed"),
    Form('{"Score": 2}', ""),
    Form('{"score": }', ""),
    Form('{"score": 2', "", "cut off"),
    Form('{"items": [{"score": 2}, {"sc', ""),
    Form('[{"score": 0}, {"score": 2}]', "", "several at once"),
    Form('{"a": {"score": 0}, "b": {"score": 2}}', ""),
    Form('{a: {"score": 0}, b: {"score": 2}}', "", "keys without quotes"),
    Form("{'score': 2}", "", "single quotes"),
    Form('{"score": 0, "score": 2}', "", "a key twice"),
    Form('{"score": 2 "quote": "a"}', "", "a missing comma"),
    Form('{"score": 2, "quote": “a"}', "", "delimiters that do not match"),
    Form("score: 2", "", "no object"),
    Form('<think>{"score": 2}', "", "thinking that never ends"),
    Form("", ""),
)


def forms_table(forms: tuple[Form, ...]) -> str:
    """A table of forms in Markdown, as the documentation shows it."""
    lines = ["| reply | read as | note |", "| --- | --- | --- |"]
    for form in forms:
        shown = form.reply.replace("\n", " ↵ ")
        code = f"`` {shown} ``" if "`" in shown else f"`{shown}`" if shown else "(empty)"
        reading = f"`{form.reading}`" if form.reading.startswith("{") else form.reading or "unreadable"
        lines.append(f"| {code} | {reading} | {form.note} |")
    return "\n".join(lines)
