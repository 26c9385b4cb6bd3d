import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.models.tokenizer import Tokenizer

TOKENIZER = Tokenizer(
    specials=["<end>", "<user>"],
    phrases=['{"tool": "', '"}', "\\n", "['", "csv.DictReader("],
    words=["total", "of", "amount", "csv", "unit"],
)
FRAGMENTS = st.sampled_from(["total", "of", " ", "amount", "_", "csv", '{"tool": "', "\\n", "s", "é", "1", "<end>"])


def pieces(text: str) -> list[str]:
    return [TOKENIZER.piece(token).decode("latin-1") for token in TOKENIZER.encode(text)]


@given(st.text())
@settings(deadline=None)
def test_any_text_comes_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.lists(FRAGMENTS).map("".join))
@settings(deadline=None)
def test_text_of_known_pieces_comes_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text())
@settings(deadline=None)
def test_no_text_makes_a_special_token(text):
    assert not any(TOKENIZER.is_special(token) for token in TOKENIZER.encode(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("total of", ["total", " ", "of"]),
        ("subtotal totals", [*"subtotal", " ", *"totals"]),
        ("unit_total", ["unit", "_", "total"]),
        ("csv.DictReader(csv", ["csv.DictReader(", "csv"]),
        ("x['amount']", ["x", "['", "amount", "'", "]"]),
        ("é", ["Ã", "©"]),
        ("<end>", [*"<end>"]),
    ],
)
def test_words_need_their_borders_and_phrases_do_not(text, expected):
    assert pieces(text) == expected


def test_a_lone_surrogate_is_not_text():
    assert TOKENIZER.decode(TOKENIZER.encode("a\ud800b")) == "a?b"


def test_specials_have_ids_and_no_text():
    end = TOKENIZER.special("<end>")
    assert TOKENIZER.is_special(end)
    assert TOKENIZER.decode([end, *TOKENIZER.encode("total")]) == "total"


def test_saved_and_loaded(tmp_path):
    TOKENIZER.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.encode("total of é") == TOKENIZER.encode("total of é")
    assert loaded.vocab_size == TOKENIZER.vocab_size == 2 + 256 + 5 + 5


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "is missing"), ("{", "is not JSON"), ('{"version": 2}', "is not a version 1 tokenizer")],
)
def test_a_broken_file_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=f"tokenizer.json {message}"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("phrases", "words", "message"),
    [(["ab"], ["ab"], "distinct"), ([], ["a"], "two or more"), ([], ["a_b"], "ASCII letters"), (["x"], [], "two or")],
)
def test_ambiguous_vocabularies_are_refused(phrases, words, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer([], phrases, words)
