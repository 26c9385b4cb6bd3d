"""Processes that live between the steps of a task, through the full stack's service processes."""

from longstride.contracts.v1.check import CommandCheck
from longstride.contracts.v1.commands import SubmitTask
from tests.support.deployment import Deployment
from tests.support.eventually import eventually
from tests.support.serving import keepers, serving_lines, serving_processes


def spans(deployment: Deployment, task_id: str) -> set[str]:
    with deployment.database.begin() as uow:
        return {span.name for span in uow.spans.for_task(task_id)}


def test_a_process_lives_between_steps_that_different_children_carry_out(forked_deployment: Deployment) -> None:
    deployment = forked_deployment
    if "tool-executor" not in deployment.processes:
        deployment.start("tool-executor")
    tools = ("bash", "write_file", "process_start", "process_poll", "submit")
    check = CommandCheck(name="seen", run="grep -x 'once twice' seen")
    policy = deployment.script(serving_lines(port := 8418))
    task_id = deployment.submit(SubmitTask(instruction="Serve it.", policy=policy, tools=tools, checks=(check,)))
    (head,) = deployment.ended(task_id, timeout_s=90)
    assert head.outcome == "succeeded", deployment.steps(task_id)
    eventually(lambda: serving_processes(port) == [])
    # The checks ran in the keeper, and their spans are where all are.
    eventually(lambda: "evaluate seen" in spans(deployment, task_id))
    service = deployment.processes["tool-executor"].pid
    assert keepers(service) != []
    assert deployment.terminate("tool-executor", 60) == 0
    eventually(lambda: keepers(service) == [])
