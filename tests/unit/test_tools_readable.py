"""HTML as text: what a browser would show, line by line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longstride.tools.inside.readable import readable

BASE = "https://example.com/a/b.html"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>Some   <b>bold</b>\n text &amp; more.<br>Next</p>", "Some bold text & more.\nNext"),
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("a<div>b<div>c</div>d</div>", "a\nb\nc\nd"),
        ("<h2>Title</h2>text", "## Title\n\ntext"),
        ("<ul><li>one<li><p>two</p></ul>", "- one\n- two"),
        ("<pre>  keep\n   this</pre>", "  keep\n   this"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2"),
        ("<a href='c.html'>c</a> <a href='/d'>d</a>", "c (https://example.com/a/c.html) d (https://example.com/d)"),
        ("<a href='#x'>here</a> <a href='mailto:a@b'>mail</a> <a>no</a>", "here mail no"),
        ("<img alt='A cat' src=x> sits", "[A cat] sits"),
        ("a<script>var x = '<p>b</p>';</script><style>p {}</style>c", "ac"),
        ("<title>T</title><body>text", "T\n\ntext"),
        ("<title>Same</title><body><h1>Same</h1>", "# Same"),
        ("<head><title>T</title><link rel=x><body>never closed", "T\n\nnever closed"),
        ("", ""),
        ("<<>>", "<<>>"),
        ("<a href='http://[bad'>x</a>", "x"),
    ],
)
def test_what_is_read(html: str, text: str) -> None:
    assert readable(html, BASE) == text


@given(st.text(alphabet="<>/ab\"'= &;!-\nplitrdhe123scky", max_size=200))
def test_whatever_it_is_given_it_ends(html: str) -> None:
    assert isinstance(readable(html, BASE), str)


def test_nesting_costs_no_stack() -> None:
    assert readable("<div>" * 100_000 + "deep", BASE) == "deep"
