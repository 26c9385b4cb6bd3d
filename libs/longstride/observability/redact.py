"""Takes secrets out of text before it leaves the process, in logs and spans alike.

It knows three kinds: values of this process's own secret environment variables, tokens of a known shape, and values beside
a name that says what they are. It errs towards taking out too much; numbers of tokens stay readable.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

REDACTED = "[redacted]"

_SHAPES = r"""
  -----BEGIN[A-Z ]{0,40}PRIVATE\ KEY-----(?s:.*?)(?:-----END[A-Z ]*+-----|\Z)
| (?<![A-Za-z0-9])(?:
    sk-[A-Za-z0-9_-]{16,}                      # OpenAI, Anthropic
  | (?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}        # AWS
  | gh[oprsu]_[A-Za-z0-9]{30,} | github_pat_[A-Za-z0-9_]{22,}
  | glpat-[A-Za-z0-9_-]{20,}                   # GitLab
  | hf_[A-Za-z0-9]{30,}                        # Hugging Face
  | xox[abeoprs]-[A-Za-z0-9-]{10,}             # Slack
  | AIza[A-Za-z0-9_-]{35}                      # Google
  | [rs]k_(?:live|test)_[A-Za-z0-9]{16,}       # Stripe
  | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # JWT
  )
"""
_SECRET_NAME = r"""(?<![\w-])(?=
    [\w-]*(?i:passw(?:or)?d|passphrase|secret|credential|api[_-]?key|access[_-]?key|private[_-]?key|authorization)
  | [\w-]*(?i:token|cookie)["'\\]*+[ \t]*[:=]
  | [A-Z0-9_]*(?:KEY|TOKEN)[A-Z0-9_]*(?![\w-])
)[\w-]++"""
_VALUE = r"""(?:(?i:basic|bearer|digest|negotiate|token)[ \t]+)?(?:
    "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'?
  | \\+["'].*?(?:\\+["']|(?=\n)|\Z)
  | [^\s&;"'\\][^\s&;]*+
)"""
_PATTERN = re.compile(
    rf"""(?P<shape>{_SHAPES})
    | (?P<url>(?<=://)(?P<user>[^\s:/@?\#]*+:)[^\s/]*@)
    | (?P<name>{_SECRET_NAME})(?P<between>["'\\]*+[ \t]*+[:=][ \t]*+)(?P<value>{_VALUE})
    | (?P<flag>(?<![\w-])--[\w-]*(?i:password|secret|token|key)(?P<gap>[ \t]++))(?P<argument>{_VALUE})
    | (?P<scheme>\b(?i:bearer)[ \t]++)[A-Za-z0-9._~+/=-]{{8,}}
    """,
    re.VERBOSE,
)
_TRIGGERS = (
    *("passw", "passphrase", "secret", "credential", "key", "authorization", "token", "cookie", "bearer", "://"),
    *("-----begin", "sk-", "akia", "asia", "aroa", "aida", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_"),
    *("glpat-", "hf_", "xox", "aiza", "k_live_", "k_test_", "eyj"),
)
"""Text without any of these, in lower case, cannot match: most lines are done after a microsecond."""
_COUNTED = re.compile(r"[A-Z0-9_]*(?:TOKENS|TOKENIZ|KEYS)[A-Z0-9_]*")
_PLAIN = re.compile(r"(?:\d{1,12}|true|false|none)\W*", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT)(?:_|$)")
MAX_CACHED = 256
"""Characters of texts that are remembered: most values of spans come again and again."""
MIN_SECRET = 8
"""Shorter values of secret variables are not looked for: they would turn up in ordinary words."""


_hiding: ContextVar[Callable[[str], str] | None] = ContextVar("longstride_hiding", default=None)


@contextmanager
def hiding(take_out: Callable[[str], str]) -> Iterator[None]:
    """Also take this out of what the current thread logs, and of the errors that its spans record, in a ``with`` block."""
    token = _hiding.set(take_out)
    try:
        yield
    finally:
        _hiding.reset(token)


def hidden(text: str) -> str:
    """``text`` without what ``hiding`` takes out."""
    take_out = _hiding.get()
    return text if take_out is None else take_out(text)


class Redactor:
    """Text in, the same text without its secrets out. Applying it again changes nothing."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets`` are values to take out wherever they stand."""
        longest_first = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._cached = lru_cache(2048)(self._redact)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Redactor":
        """One that knows the values of the variables whose names say they are secret; paths and numbers are not."""
        return cls(
            value
            for name, value in environment.items()
            if _SECRET_VARIABLE.search(name.upper()) and not value.startswith(("/", "./", "~")) and not value.isdigit()
        )

    def __call__(self, text: str) -> str:
        text = hidden(text)
        return self._cached(text) if len(text) <= MAX_CACHED else self._redact(text)

    def _redact(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        lower = text.lower()
        return _PATTERN.sub(_replacement, text) if any(trigger in lower for trigger in _TRIGGERS) else text

    def value(self, key: str, value: object) -> object:
        """A value under a key, as in a log record's fields: strings are redacted, wholly so under a secret key."""
        if isinstance(value, str):
            return REDACTED if value and is_secret_name(key) else self(value)
        if isinstance(value, Mapping):
            return {str(k): self.value(str(k), v) for k, v in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(key, item) for item in value]
        return value


def is_secret_name(name: str) -> bool:
    """Whether what goes by this name is a secret: ``api_key``, ``DB_PASSWORD``, ``x-auth-token``; not ``max_tokens`` or ``routing_key``."""
    return _NAME.match(f"{name}=") is not None


def _replacement(found: re.Match[str]) -> str:
    if found["shape"]:
        return REDACTED
    if found["url"]:
        return f"{found['user']}{REDACTED}@"
    if found["scheme"]:
        return f"{found['scheme']}{REDACTED}"
    if found["flag"]:
        return f"{found['flag']}{_quoted(found['argument'])}"
    if _COUNTED.fullmatch(found["name"]) and _PLAIN.fullmatch(found["value"]):
        return found[0]
    return f"{found['name']}{found['between']}{_quoted(found['value'])}"


def _quoted(value: str) -> str:
    """The replacement in the value's own quotes, so that JSON stays JSON."""
    quote = re.match(r"\\*[\"']", value)
    return f"{quote[0]}{REDACTED}{quote[0]}" if quote else REDACTED


_NAME = re.compile(_SECRET_NAME + "=", re.VERBOSE)
