"""What the policy may write next: the tokens that keep its text one well-formed action of a known tool.

The grammar decides punctuation only. Thought, plan, the choice of tool and every argument are the model's; where one
token alone is allowed there is nothing to choose, and the record's mask is 0.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from longstride.models.tokenizer import Tokenizer
from longstride.policies.builtin import vocabulary as v

START = 0
"""The state before the first token."""
FORBIDDEN = -1


class Grammar:
    """A finite automaton over token ids. It depends on the tokenizer alone, so a record's masks can be made again from its ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._rows: list[Tensor] = []
        self.done = self._state()
        self.table = self._build()
        """(states, vocab_size) int64: the state after a token, or ``FORBIDDEN``."""
        self.allowed = self.table != FORBIDDEN
        """(states, vocab_size) bool."""
        count = self.allowed.sum(1)
        self.forced = torch.where(count == 1, self.allowed.int().argmax(1), FORBIDDEN)
        """(states,) int64: the one token allowed, or ``FORBIDDEN`` where there is a choice."""
        # Lists are read much faster than single elements of tensors.
        self._after, self._only = self.table.tolist(), self.forced.tolist()

    @property
    def longest_forced(self) -> int:
        """The most tokens that can follow each other without a choice."""
        return max(self._forced_run(state) for state in range(len(self._only)))

    def after(self, state: int, token: int) -> int:
        """The state after a token, or ``FORBIDDEN``."""
        return int(self._after[state][token])

    def only(self, state: int) -> int:
        """The one token allowed, or ``FORBIDDEN`` where there is a choice."""
        return int(self._only[state])

    def states(self, output_ids: Tensor) -> Tensor:
        """The state before each id of an output, (N,).

        Raises:
            ValueError: an id is not allowed where it stands; the text names it and its position.
        """
        before, state = torch.empty_like(output_ids), START
        for position, token in enumerate(output_ids.tolist()):
            before[position] = state
            state = self.after(state, token)
            if state == FORBIDDEN:
                raise ValueError(f"id {token} at position {position} is not allowed by the grammar")
        return before

    def support(self, output_ids: Tensor) -> Tensor:
        """What might have been written instead of each id of an output: (N,) → (N, vocab_size) bool; raises as ``states``."""
        return self.allowed[self.states(output_ids)]

    def _forced_run(self, state: int) -> int:
        length = 0
        while (token := self.only(state)) != FORBIDDEN:
            state, length = self.after(state, token), length + 1
        return length

    def _build(self) -> Tensor:
        """States are added from the last to the first; ``START`` is swapped to the front."""
        end = self._state({v.END: self.done}.items())
        value = self._text({v.CLOSE: end})
        tools = {name: self._arguments(key, value) for name, key in v.TOOLS.items()}
        tool = self._state(tools.items())
        plan = self._text({v.PLAN_TO_TOOL: tool}, again=v.NEXT_ITEM)
        thought = self._text({v.TO_PLAN: plan, v.TO_TOOL: tool})
        start = self._state({v.OPEN_THOUGHT: thought, v.OPEN_TOOL: tool}.items())
        return self._renumbered(start)

    def _arguments(self, key: str, value: int) -> int:
        to_value = self._state({v.TO_VALUE: value}.items())
        named = self._state({key: to_value}.items())
        return self._state({v.TO_ARGUMENTS: named}.items())

    def _text(self, exits: dict[str, int], again: str | None = None) -> int:
        """Inside a JSON string: any content, then one of the exits; ``again`` starts another string of the same list."""
        state = self._state(exits.items())
        self._rows[state][self._content()] = state
        if again is not None:
            self._rows[state][self._id(again)] = state
        return state

    def _state(self, steps: Iterable[tuple[str, int]] = ()) -> int:
        row = torch.full((self._tokenizer.vocab_size,), FORBIDDEN)
        for piece, target in steps:
            row[self._id(piece)] = target
        self._rows.append(row)
        return len(self._rows) - 1

    def _id(self, piece: str) -> int:
        if piece in self._tokenizer.specials:
            return self._tokenizer.special(piece)
        (token,) = self._tokenizer.encode(piece)
        return token

    def _content(self) -> list[int]:
        """Tokens that may stand in a JSON string: printable ASCII without quote and backslash, and whole escapes."""
        escapes = {escape.encode() for escape in v.ESCAPES}
        return [token for token in range(self._tokenizer.vocab_size) if _plain(self._tokenizer.piece(token), escapes)]

    def _renumbered(self, start: int) -> Tensor:
        """The rows with ``start`` and state 0 swapped."""
        order = torch.arange(len(self._rows))
        order[[START, start]] = order[[start, START]]
        table = torch.stack(self._rows)[order]
        self.done = start if self.done == START else self.done
        return torch.where(table == FORBIDDEN, FORBIDDEN, order[table.clamp(min=0)])


def _plain(piece: bytes, escapes: set[bytes]) -> bool:
    if not piece:
        return False
    for escape in escapes:
        piece = piece.replace(escape, b"")
    return all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in piece)
