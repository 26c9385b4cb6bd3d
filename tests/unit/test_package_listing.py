"""Pages of package indexes: the two kinds, as PEP 503, 592, 658 and 691 write them."""

import json

import pytest

from longstride.tools.packages.listing import BadPage, PackageFile, packed, read, unpacked, written

SHA, OTHER = "a" * 64, "b" * 64
PAGE = "https://index.example/simple/holygrail/"
EXPECTED = PackageFile(
    name="holygrail-1.0-py3-none-any.whl",
    url="https://files.example/holygrail-1.0-py3-none-any.whl",
    sha256=SHA,
    requires_python=">=3.7",
    yanked="Had a vulnerability",
    metadata_sha256=OTHER,
)
# The examples of PEP 691 and PEP 503, with hashes of full length.
JSON = {
    "meta": {"api-version": "1.0"},
    "name": "holygrail",
    "files": [
        {
            "filename": "holygrail-1.0.tar.gz",
            "url": "../../files/holygrail-1.0.tar.gz",
            "hashes": {"sha256": OTHER, "blake2b": "c" * 128},
        },
        {
            "filename": "holygrail-1.0-py3-none-any.whl",
            "url": "https://files.example/holygrail-1.0-py3-none-any.whl",
            "hashes": {"sha256": SHA.upper()},
            "requires-python": ">=3.7",
            "dist-info-metadata": {"sha256": OTHER},
            "yanked": "Had a vulnerability",
        },
    ],
}
HTML = f"""<!DOCTYPE html><html><body><h1>Links for holygrail</h1>
<a href="../../files/holygrail-1.0.tar.gz#sha256={OTHER}">holygrail-1.0.tar.gz</a>
<a href="https://files.example/holygrail-1.0-py3-none-any.whl#sha256={SHA}" data-requires-python="&gt;=3.7"
   data-core-metadata="sha256={OTHER}" data-yanked="Had a vulnerability">holygrail-1.0-py3-none-any.whl</a>
</body></html>"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (json.dumps(JSON), "application/vnd.pypi.simple.v1+json"),
        (HTML, "text/html; charset=utf-8"),
        (HTML, "application/vnd.pypi.simple.v1+html"),
    ],
)
def test_both_kinds(body: str, kind: str) -> None:
    source, wheel = read(body.encode(), kind, PAGE)
    assert (source.name, source.url, source.sha256) == (
        "holygrail-1.0.tar.gz",
        "https://index.example/files/holygrail-1.0.tar.gz",
        OTHER,
    )
    assert (source.yanked, source.requires_python, source.metadata_sha256) == (False, None, None)
    assert wheel == EXPECTED


def test_a_base_and_a_yank_without_a_reason() -> None:
    html = f"<base href='https://m.example/x/'><a href='y-1.zip#sha256={SHA}' data-yanked>y-1.zip</a>"
    (file,) = read(html.encode(), "text/html", PAGE)
    assert (file.url, file.yanked) == ("https://m.example/x/y-1.zip", True)


@pytest.mark.parametrize(
    ("name", "url", "hashes"),
    [
        ("x-1.whl", "https://f.example/x-1.whl", {}),
        ("x-1.whl", "https://f.example/x-1.whl", {"md5": "d" * 32}),
        ("x-1.whl", "https://f.example/x-1.whl", {"sha256": "short"}),
        ("x-1.whl", "ftp://f.example/x-1.whl", {"sha256": SHA}),
        ("x-1.whl", "file:///etc/passwd", {"sha256": SHA}),
        ("../x-1.whl", "https://f.example/x-1.whl", {"sha256": SHA}),
        ("x-1.exe", "https://f.example/x-1.exe", {"sha256": SHA}),
    ],
)
def test_what_cannot_be_verified_or_had_is_left_out(name: str, url: str, hashes: dict[str, str]) -> None:
    page = {"files": [{"filename": name, "url": url, "hashes": hashes}, JSON["files"][1]]}
    assert read(json.dumps(page).encode(), "application/json", PAGE) == [EXPECTED]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"files": [{}]}', "application/json"),
        (b"\xff\xfe", "text/html"),
    ],
)
def test_what_is_no_page(body: bytes, kind: str) -> None:
    with pytest.raises(BadPage, match=f"{PAGE} is not a page of a package index: "):
        read(body, kind, PAGE)


def test_what_is_written_reads_the_same_but_for_its_addresses() -> None:
    (again,) = read(
        written("holygrail", [EXPECTED]), "application/vnd.pypi.simple.v1+json", "http://packages.longstride/"
    )
    assert again.url == f"http://packages.longstride/files/holygrail/{SHA}/holygrail-1.0-py3-none-any.whl"
    assert (again.name, again.sha256, again.requires_python, again.yanked, again.metadata_sha256) == (
        EXPECTED.name,
        SHA,
        ">=3.7",
        "Had a vulnerability",
        OTHER,
    )
    assert unpacked(packed([EXPECTED])) == [EXPECTED]


def test_what_old_pips_break_off_at_is_not_written() -> None:
    """PEP 714 and https://github.com/pypa/pip/issues/12042: they take it for a string, as in HTML."""
    assert b"dist-info-metadata" not in written("holygrail", [EXPECTED])


@pytest.mark.parametrize("beside", ["../../etc/passwd", "b" * 63, "b" * 64 + "\n", 7, None, ["b" * 64]])
def test_a_metadata_hash_that_is_none_counts_as_absent(beside: object) -> None:
    page = {"files": [{**JSON["files"][1], "core-metadata": {"sha256": beside}}]}
    [file] = read(json.dumps(page).encode(), "application/json", PAGE)
    assert file.metadata_sha256 is None


def test_nor_does_one_of_an_html_page_lead_anywhere() -> None:
    page = HTML.replace(f'data-core-metadata="sha256={OTHER}"', 'data-core-metadata="sha256=../../etc/passwd"')
    assert [file.metadata_sha256 for file in read(page.encode(), "text/html", PAGE)] == [None, None]
