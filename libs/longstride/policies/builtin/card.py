"""The model card that is written beside each version's weights."""

from typing import TYPE_CHECKING

from longstride.policies.builtin import family
from longstride.policies.builtin.evaluate import Evaluation, Success

if TYPE_CHECKING:
    from longstride.policies.builtin.train import StageReport, TrainingPlan

CARD_FILE = "MODEL_CARD.md"


def write_card(report: "StageReport", plan: "TrainingPlan") -> None:
    """Write ``MODEL_CARD.md`` beside the weights."""
    text = TEXT.format(
        report=report,
        parameters=f"{report.parameters:,}",
        plan=plan,
        origin=ORIGINS[report.stage].format(s=plan.supervision, r=plan.reinforcement),
        kinds=", ".join(family.KINDS),
        results=_results(report.evaluations),
    )
    (report.directory / CARD_FILE).write_text(text)


def _results(evaluations: tuple[Evaluation, ...]) -> str:
    if not evaluations:
        return "Not measured."
    greedy, sampled = evaluations
    rows = [("**all**", greedy.overall, sampled.overall)]
    rows += [(kind, greedy.by_kind[kind], sampled.by_kind[kind]) for kind in greedy.by_kind]
    rows += [(TROUBLES[name], greedy.by_trouble[name], sampled.by_trouble[name]) for name in greedy.by_trouble]
    rows += [("a call of the episode failed", greedy.corrected, sampled.corrected)]
    lines = [f"| {name} | {_cell(one)} | {_cell(other)} |" for name, one, other in rows]
    return "\n".join(["| tasks | greedy | sampled, temperature 1 |", "|---|---|---|", *lines])


def _cell(success: Success) -> str:
    return f"{success.rate:.1%} ({success.right}/{success.tries})" if success.tries else "–"


TROUBLES = {
    "none": "no trouble",
    "moved": "the file lies in a directory that is not named",
    "semicolons": "fields separated by `;`",
    "both": "both troubles",
}

ORIGINS = {
    "supervised": (
        "{s.steps} supervised steps of {s.batch} demonstrations each, played by an expert that makes a mistake at each "
        "decision with chance {s.slip:g} (a wrong operation, the same failing call again, giving up, a digit lost while copying). "
        "It is the version to improve on: nothing has unlearned those mistakes yet."
    ),
    "reinforced": (
        "Version 0, then {r.steps} GRPO updates on {r.tasks} tasks with {r.siblings} rollouts each in the simulated "
        "environment, reward 1 for the right answer and 0 otherwise, with the same trainer that serves `update_policy`."
    ),
}

TEXT = """\
# builtin, version {report.version}

A decoder-only transformer of {parameters} parameters ({plan.layers} layers, width {plan.width}, context {plan.context} tokens), \
trained from nothing on one family of tasks. It exists so that the whole loop (plan, act, observe, correct, submit, learn) is real \
on a laptop's CPU. It is no language model and no general agent.

## What it does
Questions about one column of one CSV table, in English: {kinds}. It writes each action whole, token by token: thought, plan, tool and \
arguments of `python`, `search_files` and `submit`. A grammar keeps the JSON well-formed and the tool known; it decides nothing else. \
Where a file is not where the question says, it reads the error, searches and tries again; where a column is missing because the \
fields are separated by semicolons, it reads the error and tries again with that delimiter.

## What it cannot do
- Anything outside that family: other questions, several columns or files, filters, joins, other formats. It will still write a \
well-formed action, and it will be wrong.
- Names of files and columns that are not made of its generator's words (`longstride.policies.builtin.family`): they are often \
copied with errors, short ones, too. Nor names outside ASCII.
- Use other tools than those three, or do without one of them: it does not read the tools' descriptions.
- Recover from a submission that its checks refuse.

It has a chat template of its own: the system prompt and the list of files are left out, of a traceback only the last line is shown, and \
long messages are cut in the middle.

## How it was made
{origin} Seed {report.seed}; {report.cpu_seconds:.0f} s of one core's time for this stage. Again: `longstride policy train-builtin --seed {report.seed}`. \
Data: generated, none of it from people. Licence: that of this repository.

## How often it is right
Held-out tasks, drawn from the same generator with a seed that training never uses, played in the simulated environment:

{results}

Log-probabilities in its token records are those of the distribution that was sampled from: within the grammar, after temperature and top-p. \
Tokens that the grammar forces have mask 0.
"""
