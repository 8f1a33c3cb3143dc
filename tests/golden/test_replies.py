"""What the readers of verdicts, scores, JSON and lists make of a table of replies."""

from tests.golden.conftest import Golden
from tests.golden.extract import readings

from prbench.prompts.replies import read_score

SHAPE = {
    "type": "object",
    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 2}, "quote": {"type": "string"}},
    "required": ["score"],
    "additionalProperties": False,
}
REPLIES = (
    "Result: A",
    "Result: B",
    "result : b",
    "RESULT：B。",
    "**Result:** A",
    "Result: **A**",
    'Result: "A".',
    "Result: [[B]]",
    "Result: $\\boxed{\\text{B}}$",
    "Result: Response A",
    "Verdict: Option B!",
    "Winner: Answer B",
    "My final verdict is: [[A]]",
    "Final answer: A. It names the price.",
    "Result:\nA",
    "As a result: B misses the point. Result: A",
    "Result: A\nOn second thoughts:\nResult: B",
    "Result: A\nResult: A or B",
    "<think>Result: A</think>Result: B",
    "[THINK]Result: A[/THINK]Result: B",
    "Result: A</think>Result: B",
    "<think>Result: A",
    "<reasoning depth=2>one</reasoning> Result: A",
    "B",
    "a",
    "**(A).**",
    "The first is cheaper.\n[[A]]",
    "The second is cheaper.\n<answer>[[B]]</answer>",
    "Result: tie",
    "Result: **Equal**",
    "Result: neither preferred",
    "Response A is better",
    "A or B",
    "Result: A/B",
    "Result: A better choice is B",
    "As a result: B",
    "We saw [[A]] and [[B]] above.",
    "Thus, the overall winner is: B",
    "> Result: A",
    "Result: C",
    "",
    "Score: 8",
    "**Score:** 7.5",
    "Score: [[8]].",
    "Final score: \\boxed{8}",
    "Rating: 8/10",
    "Score: 8 out of 10",
    "Score: 80/100",
    "Score: 80%",
    "Score: 3\nScore: 4",
    "8",
    "0",
    "-3",
    "1e1",
    "It is cheap.\n\\boxed{8}",
    "Score: 8/100",
    "Score: 11",
    "Score: 100",
    "Score: 7-8",
    "Score: eight",
    "On a scale of 1 to 10 it deserves 8",
    '{"score": 2, "quote": "a"}',
    '```json\n{"score": 2}\n```',
    'Sure! Here it is: {"score": 2} I hope it helps.',
    "\\boxed{{“score”: 2}}",
    '{"score": 2,}',
    '{"score": 2, // two\n"quote": "a" # b\n}',
    '{"score": 2, "quote": "a\nb"}',
    '{"score": 0}\nNo, rather:\n{"score": 2}',
    '{"result": {"score": 2}}',
    '[{"score": 2}]',
    '{"score": 2, "reason": "a"}',
    '<think>{"score": 0}</think>{"score": 2}',
    '{"quote": "</think>{“score”: 0}", "score": 2}',
    '{"score": <0, 1 or 2>}\n{"score": 2}',
    '{"score": 2, "quote": "he wrote {"score": 0}"}',
    '{"score": 2}}',
    '{"score": 0}\n{"score": 3}',
    '{"score": "2"}',
    '{"score": true}',
    '{"score": 1.0}',
    '{"score": 2',
    '[{"score": 0}, {"score": 2}]',
    "{'score': 2}",
    '{"score": 0, "score": 2}',
    "1. **Low cost**: money is short\n2. Birds - they love them\n3) Quiet",
    "- Low cost: money is short\n  - an inner point: no\n- low cost: again\n- None",
    "* Warmth — by the stove\n• Light：much of it\n– Space",
    "Here are the aspects:\n1. Cheap: yes\n\nI hope that helps.\n2. Green",
    "- aspect: why\n- Aspect\n-no blank\n- : nothing",
    "1: Cheap: because\n12. Twelve: it is\n100. Hundred: no",
    "<think>- hidden: x</think>\n- shown: y",
    "    - deep: one\n\t- deeper: two",
)


def test_every_reply_is_read_as_before(golden: Golden) -> None:
    assert len(set(REPLIES)) == len(REPLIES)
    golden("replies", {reply: readings(reply, SHAPE) for reply in REPLIES})


def nested(levels: int) -> str:
    """A score beside lists in lists: so many levels in all."""
    return '{"score": 1, "more": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def test_replies_at_the_limits_of_json(golden: Golden) -> None:
    replies = {f"{levels} levels": nested(levels) for levels in (30, 31, 32, 33, 34)}
    replies |= {f"{size} digits": f'{{"score": 1, "more": {"7" * size}}}' for size in (29, 31, 39, 40, 41)}
    golden("replies_at_limits", {name: "json" in readings(reply, SHAPE) for name, reply in replies.items()})


SCALES = ((0.0, 9.0), (1.0, 5.0), (-5.0, 5.0), (0.0, 1.0), (1.0, 9.5), (0.0, 100.0), (0.0, 290.0))
NUMBERS = ("0", "1", "2.9", "3", "4.75", "5", "6", "7.08", "9", "9.5", "-5", "+0.96", "90", "0290", ".5", "1,5")
FRAMES = ("Score: {}", "{}", "Score: {}/9", "Score: {} / 5", "Rating: {} out of 9.5", "Score: {}%", "Score: {}/290")


def test_scores_on_other_scales(golden: Golden) -> None:
    found = {
        f"{low:g} to {high:g}": {
            reply: score
            for frame in FRAMES
            for number in NUMBERS
            if (score := read_score(reply := frame.format(number), low, high)) is not None
        }
        for low, high in SCALES
    }
    golden("score_scales", found)
