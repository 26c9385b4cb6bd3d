"""Any server that speaks OpenAI's chat completions, over a stream."""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn
from urllib.parse import urldefrag, urlsplit

import httpx

from longstride.contracts.v1.action import ToolSpec, Usage
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.tokens import TokenRecord
from longstride.policies.base import (
    ContextOverflow,
    Generation,
    PolicyError,
    PolicyTimeout,
    PolicyUnavailable,
    Turn,
)
from longstride.policies.chat import function_messages, function_schemas, text_messages
from longstride.policies.remote_settings import RemoteSettings
from longstride.policies.reply import BrokenReply, Reply
from longstride.policies.sse import EventReader

MOST_TEXT = 1 << 20
"""Characters of an answer that are read; the stream is closed after them."""
CHARACTERS_PER_TOKEN = 4
"""Counts usage where a server reports none."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Refused(PolicyError):
    """One try failed; ``after_s`` is the server's wish for the next."""

    def __init__(self, message: str, *, retryable: bool, after_s: float | None = None) -> None:
        super().__init__(message, retryable=retryable)
        self.after_s = after_s


class RemotePolicy:
    """One server and one model."""

    def __init__(self, url: str, settings: RemoteSettings, *, jitter: random.Random | None = None) -> None:
        """Set up; nothing is sent.

        Args:
            url: base URL, ``#MODEL`` at its end optional.
            settings: everything else.
            jitter: for the back-off.

        Raises:
            PolicyUnavailable: it is no http or https URL, or holds a user name.
        """
        base, model = urldefrag(url)
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise PolicyUnavailable(
                f"remote:URL needs an http or https URL without a user name, got {parts.scheme or base[:80]!r}"
            )
        self.name, self.version = f"remote:{url}", settings.weights_version
        self.context_window = settings.context_window
        self._base, self._model, self._settings = base.rstrip("/"), model or settings.model, settings
        self._jitter = jitter or random.Random()

    @classmethod
    def configured(cls, url: str | None) -> "RemotePolicy":
        """With the environment's settings; without a URL, the configured one.

        Raises:
            PolicyUnavailable: neither is given.
        """
        settings = RemoteSettings()
        chosen = url or settings.url
        if chosen is None:
            raise PolicyUnavailable("the policy 'remote' needs LONGSTRIDE_REMOTE_URL; or name it: remote:URL")
        return cls(chosen, settings)

    def generate(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], sampling: Sampling, timeout_s: float
    ) -> Generation:
        """See ``Policy.generate``; this is the one place that retries."""
        started = time.monotonic()
        reply = asyncio.run(self._within(started + timeout_s, turns, tools, sampling))
        return self._generation(reply, turns, sampling, (time.monotonic() - started) * 1000)

    async def _within(
        self, deadline: float, turns: Sequence[Turn], tools: Sequence[ToolSpec], sampling: Sampling
    ) -> Reply:
        last: list[Refused] = []
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await self._persist(deadline, self._body(turns, tools, sampling), last)
        except TimeoutError as error:
            why = f"; the last try: {last[-1]}" if last else ""
            raise PolicyTimeout(f"{self.name} did not answer in time{why}", retryable=True) from error

    async def _persist(self, deadline: float, body: dict[str, Any], failures: list[Refused]) -> Reply:
        timeout = httpx.Timeout(self._settings.stall_s, connect=self._settings.connect_s, read=None)
        async with httpx.AsyncClient(timeout=timeout, headers=self._headers()) as client:
            while True:
                try:
                    return await self._try(client, {"model": await self._chosen_model(client), **body})
                except Refused as refused:
                    failures.append(refused)
                    await asyncio.sleep(self._pause(refused, len(failures), deadline))

    def _pause(self, refused: Refused, failures: int, deadline: float) -> float:
        """Seconds to wait before the next try; raises where there is none."""
        if not refused.retryable:
            raise PolicyUnavailable(str(refused)) from refused
        if failures >= self._settings.attempts:
            raise PolicyUnavailable(f"{refused} (tried {failures} times)", retryable=True) from refused
        longest = min(self._settings.backoff_max_s, self._settings.backoff_s * 2 ** (failures - 1))
        pause = max(self._jitter.uniform(0, longest), refused.after_s or 0.0)
        if time.monotonic() + pause >= deadline:
            raise PolicyUnavailable(
                f"{refused} (no time for another try in {pause:.1f} s)", retryable=True
            ) from refused
        return pause

    async def _try(self, client: httpx.AsyncClient, body: dict[str, Any]) -> Reply:
        request = client.build_request("POST", f"{self._base}/chat/completions", json=body)
        try:
            async with self._patience(first=True):
                response = await client.send(request, stream=True)
            async with contextlib.aclosing(response):
                return await self._read(response)
        except httpx.HTTPError as error:
            raise Refused(f"{self._base}: {_named(error)}", retryable=True) from error
        except BrokenReply as error:
            raise Refused(f"{self._base}: {self._redacted(str(error))}", retryable=True) from error

    async def _read(self, response: httpx.Response) -> Reply:
        if response.status_code != 200:
            await self._refuse(response)
        if response.headers.get("content-type", "").startswith("application/json"):
            async with self._patience(first=True):
                return Reply.whole(_json_object((await response.aread()).decode("utf-8", "replace")))
        return await self._follow(response)

    async def _follow(self, response: httpx.Response) -> Reply:
        reply, reader, chunks = Reply(), EventReader(), response.aiter_bytes()
        while (chunk := await self._next(chunks, first=not reader.started)) is not None:
            for data in reader.feed(chunk):
                if data == "[DONE]":
                    return reply.checked()
                reply.add(_json_object(data))
            if reply.size > MOST_TEXT:
                return reply.cut()
        return reply.checked()

    async def _next(self, chunks: AsyncIterator[bytes], *, first: bool) -> bytes | None:
        async with self._patience(first=first):
            return await anext(chunks, None)

    @contextlib.asynccontextmanager
    async def _patience(self, *, first: bool) -> AsyncIterator[None]:
        """Not ``wait_for``: in Python 3.11 it can swallow the cancellation by which the call's own deadline comes."""
        limit = self._settings.first_byte_s if first else self._settings.stall_s
        patience = asyncio.timeout(limit)
        try:
            async with patience:
                yield
        except TimeoutError as error:
            if not patience.expired():
                raise
            what = "sent nothing" if first else "stalled in the middle of its answer"
            raise Refused(f"{self._base} {what} for {limit:g} s", retryable=True) from error

    async def _refuse(self, response: httpx.Response) -> NoReturn:
        """Say what a status means."""
        async with self._patience(first=False):
            text = self._redacted(_error_text(await response.aread()))
        status = f"{self._base} answered {response.status_code}"
        if response.status_code in (400, 413, 422) and _speaks_of_length(text):
            raise ContextOverflow(f"{status}: {text}")
        if response.status_code in (401, 403):
            text += " (the key is LONGSTRIDE_REMOTE_API_KEY, and goes to LONGSTRIDE_REMOTE_URL alone)"
        retryable = response.status_code in (408, 425, 429) or response.status_code >= 500
        raise Refused(f"{status}: {text}", retryable=retryable, after_s=_retry_after(response.headers))

    async def _chosen_model(self, client: httpx.AsyncClient) -> str:
        if self._model is None:
            self._model = await self._only_model(client)
        return self._model

    async def _only_model(self, client: httpx.AsyncClient) -> str:
        try:
            response = await client.get(f"{self._base}/models", timeout=self._settings.connect_s)
        except httpx.HTTPError as error:
            raise Refused(f"{self._base}: {_named(error)}", retryable=True) from error
        if response.status_code != 200:
            await self._refuse(response)
        listed = _json_object(response.text).get("data")
        ids = (
            [str(item["id"]) for item in listed if isinstance(item, dict) and "id" in item]
            if isinstance(listed, list)
            else []
        )
        if len(ids) != 1:
            known = ", ".join(ids[:20]) or "none"
            raise Refused(
                f"{self._base} has several models or none; name one, remote:URL#MODEL (it lists: {known})",
                retryable=False,
            )
        return ids[0]

    def _body(self, turns: Sequence[Turn], tools: Sequence[ToolSpec], sampling: Sampling) -> dict[str, Any]:
        messages = [turn.message for turn in turns]
        as_functions = self._settings.tools and bool(tools)
        body: dict[str, Any] = {
            "messages": function_messages(messages) if as_functions else text_messages(messages, tools),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if as_functions:
            body |= {"tools": function_schemas(tools), "tool_choice": "auto", "parallel_tool_calls": False}
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if self._settings.token_ids:
            body |= {"logprobs": True, "return_token_ids": True}
        return body

    def _headers(self) -> dict[str, str]:
        """The key goes to its own origin, encrypted or within this machine."""
        key, url = self._settings.api_key, self._settings.url
        if key is None or url is None or _origin(url) != _origin(self._base):
            return {}
        parts = urlsplit(self._base)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise PolicyUnavailable(f"{self._base} is not https: the key would go over the network in clear")
        return {"Authorization": f"Bearer {key.get_secret_value()}"}

    def _redacted(self, text: str) -> str:
        key = self._settings.api_key
        return text.replace(key.get_secret_value(), "[key]") if key and key.get_secret_value() else text

    def _generation(self, reply: Reply, turns: Sequence[Turn], sampling: Sampling, wall_ms: float) -> Generation:
        text, call = reply.answer()
        read, written = reply.usage or (
            sum(len(turn.message.content) for turn in turns) // CHARACTERS_PER_TOKEN,
            reply.size // CHARACTERS_PER_TOKEN,
        )
        cost = (read * self._settings.usd_per_million_input + written * self._settings.usd_per_million_output) / 1e6
        return Generation(
            text=text,
            tool_call=call,
            policy=self.name,
            policy_version=self.version,
            record=self._record(reply, sampling),
            usage=Usage(input_tokens=read, output_tokens=written, cost_usd=cost, wall_ms=wall_ms),
            finish_reason=reply.finish_reason or "stop",
        )

    def _record(self, reply: Reply, sampling: Sampling) -> TokenRecord | None:
        """The sample, where the server told all of it."""
        ids, logprobs = reply.output_ids, reply.logprobs
        if self.version is None or not reply.prompt_ids or not ids or len(ids) != len(logprobs):
            return None
        return TokenRecord(
            policy=self.name,
            policy_version=self.version,
            prompt_ids=tuple(reply.prompt_ids),
            output_ids=tuple(ids),
            logprobs=tuple(logprobs),
            mask=(1,) * len(ids),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
        )


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _named(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenReply(f"the server sent what is not JSON: {text[:300]!r}") from error
    if not isinstance(value, dict):
        raise BrokenReply(f"the server sent a {type(value).__name__} for an object: {text[:300]!r}")
    return value


def _error_text(body: bytes) -> str:
    """The message of an OpenAI-style error, or the start of whatever it is."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        pass
    return text[:1000].strip() or "(no text)"


def _speaks_of_length(text: str) -> bool:
    return any(
        sign in text.lower()
        for sign in ("context length", "context_length", "maximum context", "too many tokens", "too long")
    )


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds (RFC 9110, 10.2.3: a number, or a date)."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
