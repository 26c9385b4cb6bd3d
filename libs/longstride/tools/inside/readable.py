"""A page of HTML as text that reads well. Runs inside the sandbox: the standard library alone, any Python from 3.9 on."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

UNSEEN = frozenset(("script", "style", "template", "noscript", "svg", "iframe", "object", "select", "head"))
BREAKS = {
    *(
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
    ),
    *("figure", "footer", "form", "header", "hr", "html", "li", "main", "nav", "ol", "p", "pre", "section", "summary"),
    *("table", "tbody", "tfoot", "thead", "tr", "ul"),
}
HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
APART = frozenset(("p", "ul", "ol", "dl", "table", "pre", "blockquote", "section", "article", *HEADINGS))
"""With an empty line before and after."""
SPACES = re.compile(r"[ \t\r\n\f]+")
VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"))
MARKS = {**{tag: f"{signs} " for tag, signs in HEADINGS.items()}, "li": "- "}


class Reader(HTMLParser):
    """Collects the text. Nesting costs nothing: there is no tree."""

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._parts: list[str] = []
        self._unseen: list[str] = []
        self._links: list[str | None] = []
        self._verbatim = 0
        self._in_title = False
        self.title = ""

    def text(self) -> str:
        """All of it, without trailing spaces and with one empty line at the most."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
        title = SPACES.sub(" ", self.title).strip()
        return f"{title}\n\n{body}".strip() if title and title not in body[:500] else body

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line, a link or something that is not shown."""
        self._in_title = tag == "title"
        if tag == "body":
            self._unseen.clear()  # a head that nobody closed ends here
        if tag in UNSEEN:
            self._unseen.append(tag)
        if self._unseen or tag in VOID:
            self._mark(tag, dict(attrs))
            return
        self._break(tag)
        if tag in MARKS:
            self._parts.append(MARKS[tag])
        elif tag in ("td", "th") and not self._at_line_start():
            self._parts.append(" | ")
        self._verbatim += tag == "pre"
        if tag == "a":
            self._links.append(self._target(dict(attrs).get("href")))

    def handle_endtag(self, tag: str) -> None:
        """The other end."""
        self._in_title = False
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
            return
        if self._unseen:
            return
        if tag == "a" and self._links and (target := self._links.pop()):
            self._parts.append(f" ({target})")
        self._verbatim -= tag == "pre" and self._verbatim > 0
        self._break(tag)

    def handle_data(self, data: str) -> None:
        """Text, its white space made one space outside ``pre``."""
        if self._in_title:
            self.title += data
        elif self._unseen:
            return
        elif self._verbatim and data:
            self._parts.append(data)
        else:
            self._say(SPACES.sub(" ", data))

    def _mark(self, tag: str, attributes: dict[str, str | None]) -> None:
        """Elements without content."""
        if self._unseen:
            return
        if tag in ("br", "hr"):
            self._parts.append("\n")
        elif tag == "img" and attributes.get("alt"):
            self._say(f"[{attributes['alt']}]")

    def _say(self, text: str) -> None:
        if self._at_line_start() or self._parts[-1].endswith(" "):
            text = text.lstrip(" ")
        if text:
            self._parts.append(text)

    def _break(self, tag: str) -> None:
        if self._parts and self._parts[-1] in MARKS.values():
            return
        if tag in APART:
            self._parts.append("\n\n")
        elif tag in BREAKS and not self._at_line_start():
            self._parts.append("\n")

    def _at_line_start(self) -> bool:
        return not self._parts or self._parts[-1].endswith("\n")

    def _target(self, href: str | None) -> str | None:
        """Where a link leads, when that is another page."""
        if not href or href.startswith("#"):
            return None
        try:
            target = urljoin(self._base, href.strip())
        except ValueError:
            return None
        return target if target.startswith(("http://", "https://")) else None


def readable(html: str, base: str) -> str:
    """The text of a page.

    Args:
        html: of any quality.
        base: the page's own address, which its links are relative to.
    """
    reader = Reader(base)
    reader.feed(html)
    reader.close()
    return reader.text()
