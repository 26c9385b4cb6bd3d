"""Against a real HTTP server on this machine, with chunks as OpenAI and vLLM send them."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from longstride.contracts.v1.action import ToolSpec
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.context import Message
from longstride.policies.base import ContextOverflow, PolicyTimeout, PolicyUnavailable, ToolCall, Turn
from longstride.policies.remote import RemotePolicy
from longstride.policies.remote_settings import RemoteSettings

SHELL = ToolSpec(name="shell", description="Run it.", parameters={"type": "object", "properties": {}})
TURNS = [Turn(Message(role="system", content="rules")), Turn(Message(role="user", content="what?"))]
KEY = "sk-secret-key"


def chunk(delta: dict, finish: str | None = None, **fields) -> dict:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None}
    return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], **fields}


USAGE = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}}
TEXT = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": '{"tool": "shell", '}),
    chunk({"content": '"arguments": {"command": "écho"}}'}),
    chunk({}, "stop"),
    USAGE,
]
CALL = [
    chunk({"role": "assistant", "content": None}),
    chunk({"content": "let me look"}),
    chunk(
        {
            "tool_calls": [
                {"index": 0, "id": "call_a", "type": "function", "function": {"name": "shell", "arguments": ""}}
            ]
        }
    ),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"command":'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ' "ls"}'}}]}),
    chunk({}, "tool_calls"),
    USAGE,
]


class Server:
    """Answers the n-th request with the n-th script, and the last for ever."""

    def __init__(self) -> None:
        self.scripts: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.requests: list[tuple[str, dict, dict]] = []
        self.released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.requests.append((self.path, dict(self.headers), json.loads(body) if body else {}))
                outer.scripts[min(len(outer.requests), len(outer.scripts)) - 1](self)

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        self.released.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


def wire(*chunks: dict, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(c, ensure_ascii=False)}\n\n" for c in chunks]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def stream(data: bytes, *, pieces: int = 7, pause: Callable[[int], None] | None = None, whole: bool = True):
    """Send ``data`` in chunked encoding, ``pieces`` bytes at a time; not ``whole``: hang up before the end."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        try:
            for number, start in enumerate(range(0, len(data), pieces)):
                part = data[start : start + pieces]
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                handler.wfile.flush()
                if pause:
                    pause(number)
            if whole:
                handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        handler.close_connection = True

    return respond


def status(code: int, body: object, **headers: str):
    def respond(handler: BaseHTTPRequestHandler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(code)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return respond


def policy(server: Server, url: str | None = None, **settings) -> RemotePolicy:
    defaults = {"model": "m", "backoff_s": 0.01, "url": server.url, "api_key": KEY}
    return RemotePolicy(url or server.url, RemoteSettings(**{**defaults, **settings}), jitter=random.Random(1))


def ask(server: Server, *, timeout_s: float = 10, sampling: Sampling = Sampling(), **settings):
    return policy(server, **settings).generate(TURNS, [SHELL], sampling, timeout_s)


def test_text_arrives_whole_from_bytes_cut_anywhere(server):
    server.scripts = [stream(wire(*TEXT), pieces=3)]
    generation = ask(server, tools=False, usd_per_million_input=2.0, usd_per_million_output=10.0)
    assert generation.text == '{"tool": "shell", "arguments": {"command": "écho"}}'
    assert generation.finish_reason == "stop"
    assert (generation.usage.input_tokens, generation.usage.output_tokens) == (20, 5)
    assert generation.usage.cost_usd == pytest.approx((20 * 2 + 5 * 10) / 1e6)
    assert generation.policy == f"remote:{server.url}"
    path, headers, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert (body["stream"], body["stream_options"], body["model"]) == (True, {"include_usage": True}, "m")
    assert "tools" not in body
    assert "The tools:" in body["messages"][0]["content"]


def test_a_function_call_keeps_its_thought(server):
    server.scripts = [stream(wire(*CALL))]
    generation = ask(server, sampling=Sampling(temperature=0.7, top_p=0.9, max_tokens=77, seed=5))
    assert generation.tool_call == ToolCall("shell", '{"command": "ls"}')
    assert (generation.text, generation.finish_reason) == ("let me look", "tool_calls")
    body = server.requests[0][2]
    assert body["tools"][0]["function"]["name"] == "shell"
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["seed"]) == (0.7, 0.9, 77, 5)


def test_token_ids_make_a_record(server):
    logprobs = {"content": [{"token": "a", "logprob": -0.25}, {"token": "b", "logprob": -0.5}]}
    choice = {
        "index": 0,
        "delta": {"content": "ab"},
        "token_ids": [7, 8],
        "logprobs": logprobs,
        "finish_reason": "stop",
    }
    server.scripts = [stream(wire(chunk({}, prompt_token_ids=[1, 2, 3]), {**chunk({}), "choices": [choice]}, USAGE))]
    record = ask(server, token_ids=True, weights_version=4, sampling=Sampling(temperature=1.0)).record
    assert record is not None
    assert (record.prompt_ids, record.output_ids, record.logprobs) == ((1, 2, 3), (7, 8), (-0.25, -0.5))
    assert (record.policy_version, record.mask) == (4, (1, 1))
    assert server.requests[0][2]["return_token_ids"] is True


def test_a_server_that_does_not_stream_is_understood(server):
    message = {"role": "assistant", "content": "hello"}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "length"}], "usage": USAGE["usage"]}
    server.scripts = [status(200, whole)]
    generation = ask(server)
    assert (generation.text, generation.finish_reason, generation.usage.output_tokens) == ("hello", "length", 5)


def test_usage_is_estimated_where_none_is_reported(server):
    server.scripts = [stream(wire(chunk({"content": "x" * 40}), chunk({}, "stop")))]
    assert ask(server).usage.output_tokens == 10


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 529])
def test_a_passing_trouble_is_tried_again(server, code):
    server.scripts = [status(code, {"error": {"message": "busy"}}), status(code, b"<html>"), stream(wire(*TEXT))]
    assert ask(server).finish_reason == "stop"
    assert len(server.requests) == 3


def test_tries_are_counted(server):
    server.scripts = [status(503, {"error": {"message": "busy"}})]
    with pytest.raises(PolicyUnavailable, match=r"answered 503: busy \(tried 3 times\)") as caught:
        ask(server, attempts=3)
    assert caught.value.retryable
    assert len(server.requests) == 3


def test_retry_after_is_honoured(server):
    server.scripts = [status(429, {"error": {"message": "slow down"}}, Retry_After="1"), stream(wire(*TEXT))]
    started = time.monotonic()
    ask(server)
    assert time.monotonic() - started >= 1


def test_a_wish_beyond_the_deadline_ends_the_call_at_once(server):
    server.scripts = [status(429, {"error": {"message": "slow down"}}, Retry_After="3600")]
    started = time.monotonic()
    with pytest.raises(PolicyUnavailable, match=r"slow down \(no time for another try in 3600\.0 s\)") as caught:
        ask(server, timeout_s=5)
    assert caught.value.retryable
    assert time.monotonic() - started < 4


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (400, "bad tool schema", "answered 400: bad tool schema"),
        (
            401,
            f"Incorrect API key provided: {KEY}",
            r"answered 401: Incorrect API key provided: \[key\] \(the key is LONGSTRIDE_REMOTE_API_KEY",
        ),
        (404, "The model `m` does not exist", "answered 404: The model"),
    ],
)
def test_a_lasting_trouble_is_not_tried_again_and_the_key_is_not_told(server, code, message, expected):
    server.scripts = [status(code, {"error": {"message": message, "type": "invalid_request_error"}})]
    with pytest.raises(PolicyUnavailable, match=expected) as caught:
        ask(server)
    assert not caught.value.retryable
    assert KEY not in str(caught.value)
    assert len(server.requests) == 1


def test_a_conversation_that_is_too_long_says_so(server):
    message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
    server.scripts = [status(400, {"error": {"message": message, "code": "context_length_exceeded"}})]
    with pytest.raises(ContextOverflow, match="maximum context length is 8192"):
        ask(server)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (stream(wire(*TEXT[:2], done=False), whole=False), "RemoteProtocolError"),
        (stream(wire(*TEXT[:2], done=False)), "broke off after 18 characters"),
        (stream(wire(*TEXT[:2])), "broke off after 18 characters"),
        (stream(b"data: {nonsense\n\n"), "not JSON"),
        (stream(b"data: [1]\n\n"), "sent a list for an object"),
        (stream(wire({"error": {"message": "CUDA out of memory", "code": 500}})), "CUDA out of memory"),
        (status(200, b"{"), "not JSON"),
    ],
)
def test_a_broken_stream_is_tried_again(server, broken, why):
    server.scripts = [broken, stream(wire(*TEXT))]
    assert ask(server).text.startswith('{"tool"')
    server.scripts = [broken]
    with pytest.raises(PolicyUnavailable, match=why) as caught:
        ask(server, attempts=2)
    assert caught.value.retryable


def test_a_stream_that_drips_for_ever_is_cut_at_the_deadline(server):
    server.scripts = [
        stream(wire(*[chunk({"content": "x"})] * 2000), pieces=50, pause=lambda _: server.released.wait(0.02))
    ]
    started = time.monotonic()
    with pytest.raises(PolicyTimeout, match="did not answer in time"):
        ask(server, timeout_s=0.5)
    assert 0.4 < time.monotonic() - started < 3, "all of it takes 40 s"


def test_a_server_that_says_nothing_is_tried_again_within_the_deadline(server):
    server.scripts = [lambda _: server.released.wait(30), stream(wire(*TEXT))]
    assert ask(server, first_byte_s=0.2).finish_reason == "stop"
    server.scripts = [lambda _: server.released.wait(30)]
    with pytest.raises(PolicyTimeout, match="did not answer in time"):
        ask(server, timeout_s=0.5, first_byte_s=30)


def test_a_stalled_stream_is_tried_again(server):
    stalled = stream(wire(*TEXT), pieces=200, pause=lambda number: server.released.wait(30) if number else None)
    server.scripts = [stalled, stream(wire(*TEXT))]
    assert ask(server, stall_s=0.2).finish_reason == "stop"


def test_an_endless_answer_is_cut(server):
    server.scripts = [stream(wire(*[chunk({"content": "x" * 60_000})] * 40), pieces=65_536)]
    generation = ask(server)
    assert generation.finish_reason == "length"
    assert len(generation.text) < 1_200_000


def test_nobody_there(server):
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(PolicyUnavailable, match=r"ConnectError.*\(tried 2 times\)") as caught:
        ask(server, attempts=2)
    assert caught.value.retryable


@pytest.mark.parametrize("url", [None, "https://api.openai.com/v1", "http://127.0.0.1:1/v1"])
def test_the_key_goes_to_its_own_origin_alone(server, url):
    server.scripts = [stream(wire(*TEXT))]
    settings = RemoteSettings(model="m", url=url, api_key=KEY)
    RemotePolicy(server.url, settings).generate(TURNS, [SHELL], Sampling(), 10)
    assert "Authorization" not in server.requests[0][1]


def test_the_key_does_not_go_over_the_network_in_clear():
    settings = RemoteSettings(model="m", url="http://models.example/v1", api_key=KEY)
    with pytest.raises(PolicyUnavailable, match="not https"):
        RemotePolicy("http://models.example/v1", settings).generate(TURNS, [], Sampling(), 1)


def test_the_only_model_is_found_and_one_of_several_must_be_named(server):
    server.scripts = [status(200, {"object": "list", "data": [{"id": "qwen"}]}), stream(wire(*TEXT))]
    ask(server, model=None)
    assert [r[0] for r in server.requests] == ["/v1/models", "/v1/chat/completions"]
    assert server.requests[1][2]["model"] == "qwen"
    server.scripts = [status(200, {"data": [{"id": "a"}, {"id": "b"}]})]
    with pytest.raises(PolicyUnavailable, match=r"name one, remote:URL#MODEL \(it lists: a, b\)"):
        ask(server, model=None)


def test_a_name_may_hold_the_model(server):
    server.scripts = [stream(wire(*TEXT))]
    policy(server, f"{server.url}#other").generate(TURNS, [], Sampling(), 10)
    assert server.requests[0][2]["model"] == "other"


@pytest.mark.parametrize("url", ["ftp://host/v1", "host:8000", "http://", "http://user:secret@host/v1"])
def test_other_urls_are_refused(url):
    with pytest.raises(PolicyUnavailable, match="http or https URL") as caught:
        RemotePolicy(url, RemoteSettings())
    assert "secret" not in str(caught.value)


def test_settings_do_not_show_the_key():
    assert KEY not in repr(RemoteSettings(api_key=KEY))
