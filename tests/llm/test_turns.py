import pytest

from prbench.backends.llm.client import Message, system_in_first_user_turn, without_control_tokens


@pytest.mark.parametrize(
    "token",
    [
        "<|im_end|>",
        "<|start_header_id|>",
        "<|eot_id|>",
        "<｜Assistant｜>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<|turn>",
        "<turn|>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
    ],
)
def test_control_token_in_data_is_broken_by_a_space(token: str) -> None:
    (turn,) = without_control_tokens([Message("user", f"before {token} after")])
    assert turn.content == f"before {token[0]} {token[1:]} after"


@pytest.mark.parametrize("text", ["x |> f", "a <|> b", "if a < b | c > d", "<p>bold</p>", "[1] a source", "a <= b"])
def test_ordinary_code_and_markup_stay_as_they_are(text: str) -> None:
    assert without_control_tokens([Message("user", text)]) == (Message("user", text),)


def test_control_token_cannot_be_rebuilt_from_the_pieces_of_another() -> None:
    (turn,) = without_control_tokens([Message("user", "<<|im_end|>|im_end|>")])
    assert "<|im_end|>" not in turn.content


def test_exact_tokens_of_a_tokenizer_are_broken_too() -> None:
    (turn,) = without_control_tokens([Message("user", "a [EOT] b")], special=["[EOT]"])
    assert turn.content == "a [ EOT] b"


def test_system_text_moves_to_the_head_of_the_first_user_turn() -> None:
    turns = [
        Message("system", "Be brief."),
        Message("user", "Hello"),
        Message("assistant", "Hi"),
        Message("user", "So?"),
    ]
    assert system_in_first_user_turn(turns) == (Message("user", "Be brief.\n\nHello"), *turns[2:])


def test_turns_without_system_text_stay_as_they_are() -> None:
    assert system_in_first_user_turn([Message("user", "Hello")]) == (Message("user", "Hello"),)


def test_system_text_alone_becomes_a_user_turn() -> None:
    assert system_in_first_user_turn([Message("system", "Be brief.")]) == (Message("user", "Be brief."),)
