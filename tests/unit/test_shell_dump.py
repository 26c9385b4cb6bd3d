"""What a shell told of itself at its end."""

import pytest

from longstride.tools.shell_dump import DumpIncomplete, parts_of

DUMP = (
    b"trap -- 'echo caught' SIGINT\n\0braceexpand:errexit\0shopt -u autocd\nshopt -u login_shell\n\0umask 0022\n\0/workspace/a\0"
    b"1\0one\0"
    b"1\0ll\0ls -l\0"
    b"2\0declare -fx f\0f () \n{ \n    echo\n}\n\0declare -f trap\0trap () \n{ \n    echo\n}\n\0"
    b"variable\0x\0declare -x x=\"it's\"\n\x00002\x000\0it's\0"
    b'variable\0PPID\0declare -ir PPID="1"\n\x00002\x000\x001\0'
    b"end\0"
)


def test_it_is_restored_in_an_order_that_nothing_is_in_the_way_of() -> None:
    assert [part.script.decode() for part in parts_of(DUMP)] == [
        "builtin umask 0022",
        "builtin cd -- '/workspace/a' 2>/dev/null || builtin printf '%s%s\\n' "
        "'bash: /workspace/a is not there any more: this call starts in ' \"$PWD\" >&2",
        'declare -x x="it\'s"',
        "builtin unset -v ALL_PROXY HTTPS_PROXY HTTP_PROXY all_proxy http_proxy https_proxy",
        "function f () \n{ \n    echo\n}\nbuiltin declare -fx -- 'f'",
        "builtin alias -- 'll=ls -l'",
        "builtin set -- 'one'",
        "trap -- 'echo caught' SIGINT",
        "\\builtin shopt -u autocd",
        "\\builtin set +o hashall +o interactive-comments -o braceexpand -o errexit",
    ]


@pytest.mark.parametrize("length", range(len(DUMP) - 1))
def test_a_part_of_it_is_nothing(length: int) -> None:
    with pytest.raises(DumpIncomplete):
        parts_of(DUMP[:length])


def test_values_are_searched_for_secrets_as_they_are() -> None:
    [variable] = [part for part in parts_of(DUMP.replace(b'"it\'s"', b'"\\$it"').replace(b"it's", b"$it..."))
                  if part.what == "variable x"]  # fmt: skip
    assert variable.secret({"key": b"$it..."}) == "key"
    assert variable.secret({"key": b"other."}) is None
