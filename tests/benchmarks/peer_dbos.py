"""DBOS: a workflow whose every model call and tool call is a ``@DBOS.step``, recorded before the next begins."""

import sys
import time
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from tests.benchmarks.peer import serve

starts: dict[str, list[float]] = {}
Message = dict[str, Any]


@DBOS.step()
def call_model(messages: list[Message]) -> Message:
    """The scripted policy's answer follows from the conversation alone."""
    assert DBOS.workflow_id is not None
    starts[DBOS.workflow_id].append(time.perf_counter())
    turn = len(messages) // 2 + 1
    return {"role": "policy", "thought": "", "tool": "noop", "arguments": {"turn": turn}}


@DBOS.step()
def call_tool(action: Message) -> Message:
    """``noop``."""
    return {"role": "tool", "status": "ok", "text": "done"}


@DBOS.workflow()
def agent(steps: int) -> int:
    """One agent step is one model call and one tool call."""
    messages: list[Message] = []
    for _ in range(steps):
        messages.append(call_model(messages))
        messages.append(call_tool(messages[-1]))
    return len(messages)


def laps(steps: int, tasks: int) -> tuple[list[list[float]], float]:
    """Workflows at the same time, each in a thread of DBOS's own."""
    starts.clear()
    begun = time.perf_counter()
    handles = []
    for number in range(tasks):
        workflow_id = f"bench-{time.time_ns()}-{number}"
        starts[workflow_id] = []
        with SetWorkflowID(workflow_id):
            handles.append(DBOS.start_workflow(agent, steps))
    for handle in handles:
        assert handle.get_result(polling_interval_sec=0.01) == 2 * steps
        starts[handle.workflow_id].append(time.perf_counter())
    return list(starts.values()), time.perf_counter() - begun


if __name__ == "__main__":
    config: DBOSConfig = {"name": "bench", "system_database_url": sys.argv[1], "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    serve(laps)
    DBOS.destroy()
