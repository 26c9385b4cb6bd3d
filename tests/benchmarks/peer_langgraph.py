"""LangGraph: an agent node and a tool node, a super-step each, checkpointed by ``PostgresSaver`` with durability ``sync``."""

import operator
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from tests.benchmarks.peer import Laps, serve

Message = dict[str, Any]
MOST_TASKS = 16


class State(TypedDict):
    """What is checkpointed."""

    messages: Annotated[list[Message], operator.add]
    steps: int


starts: dict[str, list[float]] = {}


def call_model(state: State, config: RunnableConfig) -> dict[str, list[Message]]:
    """The scripted policy's answer follows from the conversation alone."""
    starts[config["configurable"]["thread_id"]].append(time.perf_counter())
    turn = len(state["messages"]) // 2 + 1
    return {"messages": [{"role": "policy", "thought": "", "tool": "noop", "arguments": {"turn": turn}}]}


def call_tool(state: State) -> dict[str, list[Message]]:
    """``noop``."""
    return {"messages": [{"role": "tool", "status": "ok", "text": "done"}]}


def after_tool(state: State) -> str:
    """On to the next step, or the end."""
    return END if len(state["messages"]) >= 2 * state["steps"] else "agent"


def graph(saver: PostgresSaver) -> Any:
    """agent → tool → agent …"""
    builder = StateGraph(State)
    builder.add_node("agent", call_model)
    builder.add_node("tool", call_tool)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tool")
    builder.add_conditional_edges("tool", after_tool)
    return builder.compile(checkpointer=saver)


def make_laps(agent: Any) -> Laps:
    """Runs of the graph, one in a thread each."""

    def run(thread_id: str, steps: int) -> None:
        config = {"configurable": {"thread_id": thread_id}, "recursion_limit": 2 * steps + 2}
        state = agent.invoke({"messages": [], "steps": steps}, config, durability="sync")
        assert len(state["messages"]) == 2 * steps
        starts[thread_id].append(time.perf_counter())

    def laps(steps: int, tasks: int) -> tuple[list[list[float]], float]:
        starts.clear()
        starts.update({f"bench-{time.time_ns()}-{number}": [] for number in range(tasks)})
        begun = time.perf_counter()
        with ThreadPoolExecutor(tasks) as threads:
            list(threads.map(run, starts, [steps] * tasks))
        return list(starts.values()), time.perf_counter() - begun

    return laps


if __name__ == "__main__":
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with ConnectionPool(sys.argv[1], min_size=MOST_TASKS, max_size=MOST_TASKS, kwargs=settings, open=True) as pool:
        saver = PostgresSaver(pool)  # type: ignore[arg-type]
        saver.setup()
        serve(make_laps(graph(saver)))
