"""Redaction: no generated secret survives, whatever stands around it, and ordinary text does."""

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longstride.observability.redact import REDACTED, Redactor, is_secret_name

redact = Redactor()
ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

TRIGGER = re.compile(
    "(?i)passw|passphrase|secret|credential|key|token|cookie|bearer|authorization|hf|a[ksri][iods]a|aiza|eyj|xox"
)


def of(alphabet: str, least: int, most: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most)


SHAPED = st.one_of(
    of(ALNUM + "-_", 20, 60).map("sk-{}".format),
    of(ALNUM + "-_", 20, 60).map("sk-proj-{}".format),
    of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, 16).map("AKIA{}".format),
    of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, 16).map("ASIA{}".format),
    of(ALNUM, 36, 36).map("ghp_{}".format),
    of(ALNUM, 34, 34).map("hf_{}".format),
    st.tuples(of(ALNUM, 10, 30), of(ALNUM + "-_", 10, 80), of(ALNUM + "-_", 10, 40)).map(lambda p: "eyJ" + ".".join(p)),
)
TELLING = """
    password passwd token access_token api_key apiKey API-KEY x-api-key client_secret SECRET DB_PASSWORD GITHUB_TOKEN
    AWS_SECRET_ACCESS_KEY OPENAI_API_KEY SIGNING_KEY Authorization
"""
NAMES = st.sampled_from(TELLING.split())
VALUE = of(ALNUM + "!#$%*+-./:?@^_|~", 6, 40)
AROUND = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)
BOUNDARY = st.sampled_from([" ", "\n", "\t", ", ", "; ", "(", "[", ">"])


@settings(deadline=None)
@given(AROUND, BOUNDARY, SHAPED, AROUND)
def test_tokens_of_a_known_shape_go(before: str, gap: str, secret: str, after: str) -> None:
    assert secret not in redact(f"{before}{gap}{secret} {after}")


@settings(deadline=None)
@given(AROUND, BOUNDARY, NAMES, st.sampled_from(["=", ": ", " = ", ":"]), VALUE, AROUND)
def test_values_beside_a_telling_name_go(before: str, gap: str, name: str, sep: str, secret: str, after: str) -> None:
    text = redact(f"{before}{gap}{name}{sep}{secret} {after}")
    assert text.count(secret) <= (before + after + name).count(secret) + REDACTED.count(secret)


@settings(deadline=None)
@given(NAMES, st.text(min_size=6, max_size=40))
def test_json_stays_json_without_them(name: str, secret: str) -> None:
    wire = json.dumps({"a": 1, name: secret, "b": [1, 2]})
    assert json.loads(redact(wire)) == {"a": 1, name: REDACTED, "b": [1, 2]}


@settings(deadline=None)
@given(NAMES, of(ALNUM + " ", 6, 30))
def test_json_in_json(name: str, secret: str) -> None:
    wire = json.dumps({"log": json.dumps({name: secret, "n": 1})})
    assert json.loads(json.loads(redact(wire))["log"]) == {name: REDACTED, "n": 1}


@settings(deadline=None)
@given(of(ALNUM, 1, 10), of(ALNUM + "-._~!$&'()*+,;=:@%", 6, 30), of("bdfgh.-0123456789", 1, 20))
def test_passwords_in_urls_go_and_the_rest_stays(user: str, password: str, host: str) -> None:
    assert redact(f"amqp://{user}:{password}@{host}:5672/vhost") == f"amqp://{user}:{REDACTED}@{host}:5672/vhost"


@settings(deadline=None)
@given(of(ALNUM + "-._~+/", 10, 60))
def test_bearer_tokens_go(token: str) -> None:
    assert redact(f"Authorization: Bearer {token}") == f"Authorization: {REDACTED}"
    assert redact(f"sent Bearer {token}, got 401") in (
        f"sent Bearer {REDACTED}, got 401",
        f"sent {REDACTED}, got 401",
    )


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["S3_SECRET_KEY", "OPENAI_API_KEY", "PGPASSWORD", "DB_PASSWORD"]), of(ALNUM, 8, 40)
    ),
    AROUND,
)
def test_values_of_secret_variables_go_wherever_they_stand(environment: dict[str, str], around: str) -> None:
    secrets = {name: value for name, value in environment.items() if name != "PGPASSWORD" and not value.isdigit()}
    text = Redactor.of(environment)(around + "".join(f"<{value}>" for value in secrets.values()) + around)
    assert not any(f"<{value}>" in text for value in secrets.values())


@settings(deadline=None)
@given(st.one_of(AROUND, st.tuples(AROUND, NAMES, st.sampled_from("=: "), VALUE, SHAPED).map("".join)))
def test_again_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@settings(deadline=None)
@given(st.text("abcdefghijklmnopqrstuvwxyz ABCXYZ0123456789.,()[]äß→\n", max_size=300))
def test_prose_without_a_trigger_stays(text: str) -> None:
    while TRIGGER.search(text):
        text = TRIGGER.sub("", text)
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "input_tokens=512 output_tokens: 40 max_tokens=1024",
        "MAX_TOKENS=1024 TOKENIZERS_PARALLELISM=false",
        "routing_key=generate.fast idempotency_key=order-7 key=sess/workspace/0a1b",
        "https://example.org:8080/path?mail=a@b.example",
        "token generation took 3 s; the secret of success",
        "task_0199c1d0 step 3: shell ok in 230 ms",
        "git@github.com:owner/name.git",
        "risk-assessment-of-the-whole-project-2026",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql --user root --password hunter2 db", f"mysql --user root --password {REDACTED} db"),
        ("{'token': 'a b', 'n': 1}", f"{{'token': '{REDACTED}', 'n': 1}}"),
        ('say "password=hunter2" now', f'say "password={REDACTED} now'),
        ("postgresql://u:p@ss:w@rd@db/x", f"postgresql://u:{REDACTED}@db/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nrest", f"{REDACTED}\nrest"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", REDACTED),
        ("https://h/cb?access_token=abc123&state=7", f"https://h/cb?access_token={REDACTED}&state=7"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert redact(text) == expected


def test_values_under_a_telling_key_go_whole() -> None:
    fields = {"password": "a b c", "nested": {"api_key": ["x", "y"]}, "step": 3, "text": "token=abc"}
    assert redact.value("fields", fields) == {
        "password": REDACTED,
        "nested": {"api_key": [REDACTED, REDACTED]},
        "step": 3,
        "text": f"token={REDACTED}",
    }


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True),
        ("DB_PASSWORD", True),
        ("x-auth-token", True),
        ("max_tokens", False),
        ("routing_key", False),
        ("gen_ai.usage.input_tokens", False),
        ("gen_ai.token.type", False),
        ("longstride.step", False),
    ],
)
def test_secret_names(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


@pytest.mark.parametrize(
    "text",
    [
        "a" * 400_000,
        "A" * 400_000,
        "A_-" * 100_000 + "KEY",
        "--" * 200_000,
        "token" + " " * 400_000,
        "bearer " * 50_000,
        "password=" * 40_000,
        'password="' + "\\" * 400_000,
        "password=" + "\\" * 400_000,
        "eyJ" * 100_000,
        "://a:" * 80_000,
        "://a:" + "b" * 400_000,
        "-----BEGIN PRIVATE KEY-----" * 10_000,
        "-----BEGIN " + "A " * 200_000 + "key",
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_takes_no_more_than_linear_time(text: str) -> None:
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 5  # linear: 0.1 to 0.5 s; quadratic: minutes
