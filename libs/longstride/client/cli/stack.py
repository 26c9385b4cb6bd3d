"""``longstride up`` and ``longstride down``: the embedded stack."""

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from longstride.client.cli.options import Json
from longstride.client.embedded_stack import EmbeddedStack, RunningStack
from longstride.client.errors import UsageProblem
from longstride.client.screen.console import err, say, show, show_json
from longstride.client.settings import ClientSettings, load

Home = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="Its folder ($LONGSTRIDE_HOME, else ~/.local/share/longstride)."),
]


def up(home: Home = None, json: Json = False) -> None:
    """Start the embedded stack in the background, or say that it runs.

    Other commands start it by themselves when they need it. It stays until `longstride down`.

    Example:

      LONGSTRIDE_HOME=./.longstride longstride up
    """
    stack = EmbeddedStack(_home(home))
    with err().status("", spinner="dots") as status:
        running = stack.up(lambda sentence: status.update(sentence) if err().is_terminal else say(sentence))
    if json:
        show_json(described(running))
    else:
        show(f"the embedded stack runs: pid {running.pid}, {stack.home}, log {stack.log}")


def down(home: Home = None, json: Json = False) -> None:
    """Stop the embedded stack. Its data stays, and tasks that have not ended go on when it starts again.

    Calls that run get some seconds to end; one that does not is made again at the next start.

    Examples:

      longstride down

      longstride down --home ./.longstride
    """
    stack = EmbeddedStack(_home(home))
    with err().status("stopping the embedded stack", spinner="dots"):
        stopped = stack.down()
    if json:
        show_json({"stopped": described(stopped) if stopped else None})
    else:
        show(
            f"stopped pid {stopped.pid}; its data stays in {stack.home}"
            if stopped
            else f"no stack runs in {stack.home}"
        )


def _home(given: Path | None) -> Path:
    settings: ClientSettings = load()
    if given is None and not settings.embedded:
        raise UsageProblem(
            "LONGSTRIDE_AMQP_URL or LONGSTRIDE_DATABASE_URL names a stack that others run;"
            " unset them, or name the folder of an embedded one with --home"
        )
    return given or settings.home


def described(stack: RunningStack) -> dict[str, object]:
    """A running stack as JSON."""
    return dict(jsonlib.loads(jsonlib.dumps(asdict(stack), default=str)))
