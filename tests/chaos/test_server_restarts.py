"""RabbitMQ, PostgreSQL and S3 die in the middle of twenty tasks: all end, none twice."""

import pytest

from infra.native import Stack
from longstride.contracts.v1.check import FileCheck
from longstride.contracts.v1.commands import SubmitTask
from tests.chaos.test_kill_points import NOTHING, audited, left
from tests.support.deployment import Deployment

APPENDS = [{"tool": "shell", "arguments": {"command": f"echo {i} >> log; cat log"}} for i in range(3)]
LINES = [*APPENDS, {"tool": "submit", "arguments": {"answer": "done"}}]
TASKS = 20


@pytest.mark.timeout(300)
@pytest.mark.parametrize("server", ["rabbitmq", "postgres", "s3"])
def test_a_server_is_killed_and_restarted_under_twenty_tasks(deployment: Deployment, stack: Stack, server: str) -> None:
    policy = deployment.script(LINES)
    checks = (FileCheck(path="log", equals="0\n1\n2\n"),)
    task_ids = [
        deployment.submit(SubmitTask(instruction=f"Count {i}.", policy=policy, checks=checks)) for i in range(TASKS)
    ]
    deployment.eventually(lambda: sum(bool(deployment.steps(t)) for t in task_ids) >= TASKS // 4, 60)
    stack.restart(server, kill=True)
    heads = deployment.ended(*task_ids, timeout_s=200)
    assert [(h.outcome, h.reason, h.steps) for h in heads] == [("succeeded", "checks_passed", 4)] * TASKS
    for task_id in task_ids:
        with deployment.database.begin() as uow:
            types = [event.type for event in uow.events.read(task_id)]
        assert types.count("ended") == 1
        assert types.count("action_observed") == 4
        assert audited(deployment, task_id) == ["task_accepted", *["action"] * 4, "task_ended"]
        deployment.eventually(lambda task_id=task_id: left(deployment, task_id) == NOTHING, 60)
        assert left(deployment, task_id) == NOTHING
