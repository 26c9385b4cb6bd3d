"""``longstride feedback``: a person's score of a finished task."""

from typing import Annotated

import typer

from longstride.client import person
from longstride.client.cli.options import Json, TaskId
from longstride.client.connect import connect
from longstride.client.errors import WrongState
from longstride.client.screen import units
from longstride.client.screen.console import say, show, show_json
from longstride.client.soundness import message
from longstride.contracts.v1.commands import RecordFeedback


def feedback(
    task: TaskId,
    score: Annotated[float, typer.Argument(metavar="SCORE", min=0, max=1, help="0 is useless, 1 is perfect.")],
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    json: Json = False,
) -> None:
    """Score a finished task; the score is a new version of its reward, and training uses it.

    Example:

      longstride feedback 3f9a12bc 0.5 --comment "right, but it took twenty steps"
    """
    with connect(say) as deployment:
        head = deployment.reader.find(task)
        if head.ended_at is None:
            raise WrongState(
                f"{units.short(head.id)} has not ended yet ({head.status}): only what is finished can be scored"
            )
        command = message(RecordFeedback, score=score, comment=comment, by=person.name())
        deployment.client.send(command, head.id, tenant=head.tenant)
    if json:
        show_json({"task_id": head.id, "sent": command.model_dump(mode="json")})
    else:
        show(f"{units.short(head.id)}  scored {score:.2f}")
