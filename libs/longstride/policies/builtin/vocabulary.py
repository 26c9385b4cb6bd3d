"""The tokens: the words of the task family, the pieces of its JSON and Python, and bytes for everything else."""

import re

from longstride.models.tokenizer import Tokenizer
from longstride.policies.builtin import family

BEGIN, USER, ASSISTANT, TOOL, END, CUT = "<begin>", "<user>", "<assistant>", "<tool>", "<end>", "<cut>"
SPECIALS = (BEGIN, USER, ASSISTANT, TOOL, END, CUT)

OPEN_THOUGHT, OPEN_TOOL = '{"thought": "', '{"tool": "'
TO_PLAN, NEXT_ITEM, TO_TOOL, PLAN_TO_TOOL = '", "plan": ["', '", "', '", "tool": "', '"], "tool": "'
TO_ARGUMENTS, TO_VALUE, CLOSE = '", "arguments": {"', '": "', '"}}'
JSON = (OPEN_THOUGHT, OPEN_TOOL, TO_PLAN, NEXT_ITEM, TO_TOOL, PLAN_TO_TOOL, TO_ARGUMENTS, TO_VALUE, CLOSE)
"""Punctuation of an action, each one token; ``grammar`` says where it may stand."""
ESCAPES = ('\\"', "\\\\", "\\n", "\\t")
TOOLS = {"python": "code", "search_files": "pattern", "submit": "answer"}
"""The tools that the policy knows, each with its one argument."""

PYTHON = (
    *("import csv\\n", "rows = list(", "csv.DictReader(", "open('", "delimiter='", "values = [", "float(", "r['"),
    *(
        " for r in rows]",
        "print(",
        "round(",
        "sum(",
        "max(",
        "min(",
        "len(",
        "')",
        "))",
        "[-1]['",
        "'])",
        ", 2)",
        " / ",
    ),
)
MESSAGES = (
    *("[Errno 2] No such file or directory: '", "FileNotFoundError: ", "KeyError: '", "SyntaxError: ", "ValueError: "),
    *("NameError: ", "exit code ", "no match", "checks passed", "search_files", ".csv"),
)
THOUGHTS = (
    *(
        "Read the table",
        "The file is not here: search for it",
        "No such column: the fields may be separated by ;",
        "Found it",
    ),
    *("That is the answer", "compute the ", "compute it again", "find the file", "read it with ;", "submit it"),
)


def tokenizer() -> Tokenizer:
    """The tokenizer of a policy trained now; a trained one carries its own in its files."""
    phrases = [*JSON, *ESCAPES, *PYTHON, *MESSAGES, *THOUGHTS, " of ", " in ", ", "]
    return Tokenizer(SPECIALS, list(dict.fromkeys(phrases)), _words(phrases))


def _words(phrases: list[str]) -> list[str]:
    """Every word of the family's instructions and names, and of the tools."""
    sentences = [p for phrasings in family.PHRASINGS.values() for p in phrasings]
    sentences += [*family.ENDINGS, *TOOLS, *TOOLS.values()]
    names = [*family.MEASURES, *family.QUALIFIERS, *family.LABELS, *family.SUBJECTS, *family.SUFFIXES]
    names += [*family.DIRECTORIES, *family.PLACES, *family.KINDS, "rows", "values"]
    text = re.sub(r"\{\w+\}", " ", " ".join([*sentences, *names, *phrases]))
    return sorted(set(re.findall(r"[A-Za-z]{2,}", text)) - set(phrases))
