"""The policy's own chat template: turns to ids, short, so that an episode fits a small window.

It leaves out the system prompt and the tools' schemas (the policy was trained on its tools), the list of files (it
searches for what it does not find), and of a traceback everything but the last line, which is also the part that
does not change between Python versions. What is left is cut in the middle when it is long.
"""

import re
from collections.abc import Sequence

from longstride.contracts.v1.context import Message
from longstride.models.tokenizer import Tokenizer
from longstride.policies.builtin import vocabulary as v

USER_TOKENS, TOOL_TOKENS = 160, 96
"""The most that is shown of a message."""

_LISTING = re.compile(r"\n\nFiles in the workspace:\n.*", re.DOTALL)
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Iteration)(?:: .*)?$", re.MULTILINE)


class Template:
    """Renders messages with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._begin, self._user, self._assistant, self._tool, self._end, self._cut = map(tokenizer.special, v.SPECIALS)

    def prompt(self, turns: Sequence[tuple[Message, Sequence[int] | None]]) -> list[int]:
        """The ids that the next answer follows.

        Args:
            turns: messages, oldest first; beside an assistant message the ids that were generated, which are used as
                they are, or ``None`` where there is no record: then its text is tokenized.
        """
        ids = [self._begin]
        for message, generated in turns:
            ids += self._turn(message, generated)
        return [*ids, self._assistant]

    def reply(self, message: Message) -> list[int]:
        """What a message adds between an answer and the next one: itself and the mark to answer."""
        return [*self._turn(message, None), self._assistant]

    def _turn(self, message: Message, generated: Sequence[int] | None) -> list[int]:
        match message.role:
            case "system":
                return []
            case "user":
                return [self._user, *self._shown(_LISTING.sub("", message.content), USER_TOKENS)]
            case "tool":
                return [self._tool, *self._shown(essence(message.content), TOOL_TOKENS)]
            case "assistant":
                said = generated if generated is not None else [*self._tokenizer.encode(message.content), self._end]
                return [self._assistant, *said]

    def _shown(self, text: str, most: int) -> list[int]:
        """At most ``most`` ids of a text, the middle cut out."""
        half = most // 2
        if len(text) > most * 32:
            text = text[: most * 16] + text[-most * 16 :]
        ids = self._tokenizer.encode(text.strip())
        return ids if len(ids) <= most else [*ids[:half], self._cut, *ids[-(most - half - 1) :]]


def essence(observation: str) -> str:
    """The last line of a traceback, or the whole text when there is none."""
    if _TRACEBACK not in observation and "SyntaxError" not in observation:
        return observation
    raised = _RAISED.findall(observation)
    return raised[-1] if raised else observation
