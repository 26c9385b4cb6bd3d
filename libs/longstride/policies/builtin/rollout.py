"""Episodes of the policy in the simulator, many side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from longstride.agent.action_format import FormatError, parse
from longstride.agent.reflect import reflect
from longstride.contracts.v1.action import Action, Observation
from longstride.contracts.v1.context import Message
from longstride.models.tokenizer import Tokenizer
from longstride.models.transformer import Transformer
from longstride.policies.builtin.decode import Output, decode
from longstride.policies.builtin.family import FamilyTask
from longstride.policies.builtin.grammar import Grammar
from longstride.policies.builtin.simulator import NotSimulated, Simulator
from longstride.policies.builtin.template import Template
from longstride.policies.sampling import Dice

MOST_TURNS = 7
MOST_TOKENS = 128
"""Of one action."""


@dataclass
class Episode:
    """One try at a task; it ends at the first ``submit``."""

    task: FamilyTask
    ids: list[int]
    """The whole sequence so far."""
    simulator: Simulator
    turns: list[tuple[int, Output]] = field(default_factory=list)
    """Each answer and where in ``ids`` it starts."""
    answer: str | None = None
    ended: bool = False
    failures: int = 0
    """Calls that did not go well."""

    @property
    def reward(self) -> float:
        """1 for the right answer, else 0."""
        return float(self.answer is not None and self.task.accepts(self.answer))


class Player:
    """Weights that play."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.grammar, self.template = Grammar(tokenizer), Template(tokenizer)

    def play(self, tasks: Iterable[FamilyTask], dice: Dice) -> list[Episode]:
        """Play every task once, in lock-step."""
        episodes = [self._begin(task) for task in tasks]
        for _ in range(MOST_TURNS):
            running = [episode for episode in episodes if not episode.ended]
            if not running:
                break
            self._turn(running, dice)
        return episodes

    def _begin(self, task: FamilyTask) -> Episode:
        question = Message(role="user", content=task.instruction)
        return Episode(task, self.template.prompt([(question, None)]), Simulator(task.files))

    def _turn(self, episodes: Sequence[Episode], dice: Dice) -> None:
        outputs = decode(self.model, self.grammar, [episode.ids for episode in episodes], dice, MOST_TOKENS)
        for episode, output in zip(episodes, outputs, strict=True):
            episode.turns.append((len(episode.ids), output))
            episode.ids += output.ids
            self._act(episode, self.tokenizer.decode(output.ids))

    def _act(self, episode: Episode, text: str) -> None:
        try:
            action = parse(text)
            if action.tool == "submit":
                episode.answer, episode.ended = str(action.arguments["answer"]), True
                return
            observation = episode.simulator.call(action)
            episode.failures += observation.status != "ok"
            episode.ids += self.template.reply(observed(action, observation))
        except (FormatError, NotSimulated):
            episode.ended = True


def observed(action: Action, observation: Observation) -> Message:
    """The observation as the planner would tell it."""
    text = "\n".join(filter(None, (observation.text, reflect(action, observation, ()))))
    return Message(role="tool", content=text)
