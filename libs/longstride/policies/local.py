"""A Llama or Qwen style model from a directory of safetensors or a GGUF file, run by transformers."""

import time
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from longstride.contracts.v1.action import ToolSpec, Usage
from longstride.contracts.v1.commands import Sampling
from longstride.contracts.v1.context import Message
from longstride.contracts.v1.tokens import TokenRecord
from longstride.policies.base import ContextOverflow, Generation, PolicyTimeout, PolicyUnavailable, Turn
from longstride.policies.chat import Chat, text_messages
from longstride.policies.sampling import Dice, choose

INSTALL = "pip install 'longstride[local]' (in a clone: pip install -e '.[local]')"
PLACEHOLDER = "LONGSTRIDE-ANSWER"
"""Stands for an answer when a chat template is asked what it puts behind one."""
LEAST_ROOM = 64


class LocalSettings(BaseSettings):
    """How local models are loaded: ``LONGSTRIDE_LOCAL_…``."""

    model_config = SettingsConfigDict(env_prefix="LONGSTRIDE_LOCAL_", extra="ignore")

    device: str | None = None
    """A torch device; ``None``: CUDA where there is one, else the CPU."""
    dtype: str | None = None
    """``float32``, ``bfloat16`` or ``float16``; ``None``: bfloat16 on an accelerator, float32 on the CPU."""
    context_window: int | None = Field(default=None, gt=LEAST_ROOM)
    """Tokens; ``None``: what the model's config says."""


class LocalPolicy:
    """Weights and tokenizer in this process. Prompts are built from recorded ids; only what is new is tokenized."""

    version = 0
    """The weights are as they lie on the disk."""

    def __init__(self, model: Any, tokenizer: Any, name: str, context_window: int | None = None) -> None:
        """From a causal language model and a tokenizer with a chat template.

        Raises:
            PolicyUnavailable: the tokenizer has no usable chat template.
        """
        self.name = name
        self._model, self._tokenizer = model.eval(), tokenizer
        self.context_window = context_window or int(model.config.max_position_embeddings)
        self._ends = _end_ids(model, tokenizer)
        self._takes_system = _takes_system(tokenizer)
        # transformers 5.24 renamed the argument.
        self._cache_argument = "cache" if "cache" in signature(model.forward).parameters else "past_key_values"

    @classmethod
    def load(cls, path: Path, name: str) -> "LocalPolicy":
        """Read a directory or a ``.gguf`` file; nothing is fetched, and no code of the model's is run.

        Raises:
            PolicyUnavailable: transformers is missing, or the files are no model; the text says which.
        """
        settings = LocalSettings()
        model, tokenizer = _read(path, settings)
        return cls(model, tokenizer, name, settings.context_window)

    def generate(
        self, turns: Sequence[Turn], tools: Sequence[ToolSpec], sampling: Sampling, timeout_s: float
    ) -> Generation:
        """See ``Policy.generate``."""
        started = time.monotonic()
        prompt = self.prompt(turns, tools)
        room = min(sampling.max_tokens, self.context_window - len(prompt))
        ids, logprobs = self._decode(prompt, Dice.of(sampling, len(turns)), room, started + timeout_s)
        ended = ids[-1] in self._ends
        return Generation(
            text=self._tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=True),
            policy=self.name,
            policy_version=self.version,
            record=TokenRecord(
                policy=self.name,
                policy_version=self.version,
                prompt_ids=tuple(prompt),
                output_ids=tuple(ids),
                logprobs=tuple(logprobs),
                mask=(1,) * len(ids),
                temperature=sampling.temperature,
                top_p=sampling.top_p,
            ),
            usage=Usage(input_tokens=len(prompt), output_tokens=len(ids), wall_ms=(time.monotonic() - started) * 1000),
            finish_reason="stop" if ended else "length",
        )

    def prompt(self, turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> list[int]:
        """The ids that the answer follows: those of the last answer's record as they were, then what came after it.

        Raises:
            ContextOverflow: they leave too little of the window.
        """
        seen, rest = recorded(turns, self.name)
        if seen:
            ids = [*seen, *self._continuation(seen[-1], [turn.message for turn in rest])]
        else:
            ids = self._encode(self._render(text_messages([turn.message for turn in turns], tools)))
        if len(ids) + LEAST_ROOM > self.context_window:
            raise ContextOverflow(f"the conversation has {len(ids)} tokens; {self.name} takes {self.context_window}")
        return ids

    @torch.inference_mode()
    def _decode(self, prompt: list[int], dice: Dice, room: int, deadline: float) -> tuple[list[int], list[float]]:
        from transformers import DynamicCache

        ids: list[int] = []
        logprobs: list[float] = []
        cache = {self._cache_argument: DynamicCache(config=self._model.config)}
        piece = torch.tensor([prompt], device=self._model.device)
        while len(ids) < room and not (ids and ids[-1] in self._ends):
            if time.monotonic() > deadline:
                raise PolicyTimeout(f"{self.name} did not end its answer in time; it wrote {len(ids)} tokens")
            out = self._model(input_ids=piece, use_cache=True, logits_to_keep=1, **cache)
            token, logprob = choose(out.logits[:, -1].float().cpu(), dice)
            ids.append(int(token))
            logprobs.append(float(logprob))
            piece = token[:, None].to(self._model.device)
        return ids, logprobs

    def _continuation(self, last: int, messages: Sequence[Message]) -> list[int]:
        """What the template puts between an answer and the next: its end, unless ``last`` was that, the messages, the mark to answer."""
        chat: Chat = [{"role": "user", "content": "-"}, {"role": "assistant", "content": PLACEHOLDER}]
        text = self._render([*chat, *text_messages(messages, ())]).rpartition(PLACEHOLDER)[2]
        return self._encode(text.removeprefix(self._tokenizer.decode([last])) if last in self._ends else text)

    def _render(self, chat: Chat) -> str:
        if not self._takes_system:
            chat = _without_system(chat)
        return str(self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def recorded(turns: Sequence[Turn], policy: str) -> tuple[list[int], Sequence[Turn]]:
    """(ids up to and with the last answer, the turns after it); no ids where they are not all recorded.

    Each record holds what is new since the one that its ``prefix`` names; a missing link, or another policy's answer,
    breaks the chain, and the conversation is tokenized anew.
    """
    ids: list[int] = []
    rest, before = turns, None
    for number, (message, record) in enumerate((turn.message, turn.record) for turn in turns):
        if message.role != "assistant":
            continue
        linked = record is not None and record.policy == policy and record.prefix in (None, before)
        ids = [*(ids if record.prefix else ()), *record.prompt_ids, *record.output_ids] if linked and record else []
        rest, before = turns[number + 1 :], message.tokens if linked else None
    return ids, rest


def _read(path: Path, settings: LocalSettings) -> tuple[Any, Any]:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise PolicyUnavailable(f"local:{path} needs {error.name}: {INSTALL}") from error
    library: Any = transformers
    library.logging.disable_progress_bar()
    where, options = _source(path)
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = _dtype(settings.dtype, device)
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(where, **options)
        model = library.AutoModelForCausalLM.from_pretrained(where, dtype=dtype, **options)
        return model.to(device), tokenizer
    except ImportError as error:
        raise PolicyUnavailable(f"local:{path} needs a package more: {error}") from error
    except Exception as error:  # Broken files raise whatever their reader trips over.
        raise PolicyUnavailable(f"local:{path} cannot be loaded: {type(error).__name__}: {error}") from error


def _source(path: Path) -> tuple[str, dict[str, Any]]:
    """The arguments of ``from_pretrained``."""
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if path.is_file() and path.suffix == ".gguf":
        return str(path.parent), {**options, "gguf_file": path.name}
    if not (path / "config.json").is_file():
        raise PolicyUnavailable(f"local:{path} is neither a directory with a config.json nor a .gguf file")
    return str(path), options


def _dtype(name: str | None, device: str) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    chosen = name or ("float32" if device == "cpu" else "bfloat16")
    if chosen not in known:
        raise PolicyUnavailable(f"LONGSTRIDE_LOCAL_DTYPE is {chosen!r}; it must be one of {', '.join(known)}")
    return known[chosen]


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that end an answer: the generation config's, one or several, and the tokenizer's."""
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return frozenset(int(token) for token in [*several, tokenizer.eos_token_id] if token is not None)


def _takes_system(tokenizer: Any) -> bool:
    """Whether the chat template has a place for a system prompt.

    Raises:
        PolicyUnavailable: there is no template, or it cannot render a plain conversation.
    """
    from jinja2 import TemplateError

    user = {"role": "user", "content": "-"}
    try:
        tokenizer.apply_chat_template([user], tokenize=False, add_generation_prompt=True)
    except (TemplateError, ValueError) as error:
        raise PolicyUnavailable(f"the model has no usable chat template: {error}") from error
    try:
        system = {"role": "system", "content": PLACEHOLDER}
        return PLACEHOLDER in tokenizer.apply_chat_template([system, user], tokenize=False)
    except TemplateError:
        return False


def _without_system(chat: Chat) -> Chat:
    """The system prompt at the head of the first user turn."""
    if not chat or chat[0]["role"] != "system":
        return chat
    system, *rest = chat
    if rest and rest[0]["role"] == "user":
        return [{"role": "user", "content": f"{system['content']}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": system["content"]}, *rest]
