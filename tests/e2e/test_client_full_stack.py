"""Clients of the full stack: a stranger's program, the SDK and the command line, over a real broker to real services."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from longstride.client.sdk import AnswerCheck, Client, InputFile, SubmitTask
from tests.support.deployment import LINES_AND_SUBMIT, Deployment, deployed
from tests.support.pika_example import example
from tests.support.servers import Servers

CSV = InputFile(path="a.csv", text="a\n1\n2\n")
LARGER = [
    {"tool": "shell", "arguments": {"command": "sort -n numbers.txt | tail -1"}},
    {"tool": "submit", "arguments": {"answer": "42"}},
]


@pytest.fixture(scope="module")
def deployment(
    servers: Servers, module_database_url: str, amqp_url: str, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Services whose default policy knows the answer to the README's question."""
    folder = tmp_path_factory.mktemp("clients")
    script = folder / "larger.json"
    script.write_text(json.dumps({"version": 1, "lines": LARGER}))
    policy = {"LONGSTRIDE_MODEL_WORKER_POLICY": f"scripted:{script}"}
    with deployed(servers, module_database_url, amqp_url, bucket, folder, forked=True, **policy) as running:
        ready = SubmitTask(instruction="Say x.", policy=running.script(LARGER[1:]))
        running.ended(running.submit(ready))
        yield running


def test_the_readmes_program_gets_its_answer(deployment: Deployment, tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", example()],
        cwd=tmp_path,
        env={**os.environ, "LONGSTRIDE_AMQP_URL": deployment.amqp_url},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert told.returncode == 0, told.stderr
    accepted, ended = told.stdout.splitlines()
    assert accepted.startswith("task_accepted")
    assert "'outcome': 'succeeded'" in ended
    assert "'answer': '42'" in ended


UNSOUND = {
    "inputs that clash": (
        {"inputs": [{"path": "a", "text": "1"}, {"path": "a/b", "text": "2"}]},
        "inputs: 'a' would be a file and the folder of 'a/b'",
    ),
    "an unknown policy": ({"policy": "gpt-5"}, "unknown policy 'gpt-5': a policy is builtin, builtin@VERSION"),
    "an unknown tool": ({"tools": ["shell", "fly"]}, "there is no tool 'fly'; the tools are shell, python, "),
}


@pytest.mark.parametrize(("fields", "why"), UNSOUND.values(), ids=UNSOUND)
def test_a_stranger_hears_why_a_message_is_no_task(deployment: Deployment, fields: dict[str, object], why: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(deployment.amqp_url)) as connection:
        channel = connection.channel()
        replies = channel.queue_declare("", exclusive=True).method.queue
        task = {"message_id": uuid.uuid4().hex, "type": "submit_task", "body": {"instruction": "x", **fields}}
        properties = pika.BasicProperties(reply_to=replies, correlation_id="mine")
        channel.basic_publish("longstride", "submit_task", json.dumps(task), properties, mandatory=True)
        _, found, body = next(channel.consume(replies, auto_ack=True, inactivity_timeout=30))
    assert found is not None, "nobody answered"
    answer = json.loads(body)
    assert (found.correlation_id, answer["type"]) == ("mine", "task_rejected")
    assert why in answer["body"]["reason"]


def test_everybody_who_submits_one_task_gets_its_outcome_with_reward_and_trace(deployment: Deployment) -> None:
    task = SubmitTask(
        instruction="Lines?",
        policy=deployment.script(LINES_AND_SUBMIT),
        inputs=(CSV,),
        checks=(AnswerCheck(number=3),),
        idempotency_key=uuid.uuid4().hex,
    )
    with Client(deployment.amqp_url) as client, Client(deployment.amqp_url) as another:
        handles = [client.submit(task), client.submit(task), another.submit(task)]
        # Which of them comes first is nobody's promise.
        assert sorted(handle.accepted().duplicate for handle in handles) == [False, True, True]
        (task_id,) = {handle.task_id for handle in handles}
        outcome, *same = [handle.outcome(timeout_s=60) for handle in handles]
    assert same == [outcome, outcome]
    assert (outcome.outcome, outcome.reward, outcome.answer) == ("succeeded", 1.0, "3")
    head = deployment.head(task_id)
    assert head is not None
    assert head.traceparent is not None
    assert outcome.trace_id == head.traceparent.split("-")[1]


def longstride(deployment: Deployment, *arguments: str, **environment: str | None) -> tuple[int, str, str]:
    merged = {**deployment.environment, "COLUMNS": "120", **environment}
    told = subprocess.run(
        [sys.executable, "-m", "longstride.client.main", *arguments],
        cwd=deployment.folder,
        env={name: value for name, value in merged.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=90,
    )
    return told.returncode, told.stdout, told.stderr


def test_the_command_line_publishes_over_the_broker_and_follows_in_the_database(deployment: Deployment) -> None:
    (deployment.folder / "a.csv").write_text("a\n1\n2\n")
    policy = deployment.script(LINES_AND_SUBMIT)
    arguments = ["run", "Lines?", "--input", "a.csv", "--policy", policy, "--expect-number", "3"]
    code, out, err = longstride(deployment, *arguments)
    assert code == 0, err
    assert "✗ failed" in out
    assert "answer 3 · reward 1.00" in out


def test_with_a_broker_alone_the_outcome_comes_without_the_steps(deployment: Deployment) -> None:
    policy = deployment.script(LARGER[1:])
    nothing_else = {"LONGSTRIDE_DATABASE_URL": None, "LONGSTRIDE_S3_ENDPOINT": None}
    code, out, err = longstride(deployment, "run", "Say x.", "--policy", policy, "--json", **nothing_else)
    assert code == 0, err
    (line,) = map(json.loads, out.splitlines())
    assert (line["type"], line["outcome"], line["answer"]) == ("task_ended", "succeeded", "42")
    assert "without its steps" in err


def test_a_running_command_is_cancelled_over_the_broker(deployment: Deployment) -> None:
    policy = deployment.script([{"tool": "shell", "arguments": {"command": "sleep 60"}}])
    code, out, err = longstride(deployment, "submit", "Sleep.", "--policy", policy)
    assert code == 0, err
    code, told, err = longstride(deployment, "cancel", out.strip())
    assert code == 0, err
    assert "cancelled" in told
    assert longstride(deployment, "watch", out.strip())[0] == 5


def test_doctor_finds_the_services(deployment: Deployment) -> None:
    code, out, _ = longstride(deployment, "doctor", "--json")
    found = {finding["name"]: finding for finding in map(json.loads, out.splitlines())}
    assert code == 0, found
    assert found["RabbitMQ"]["told"].startswith("RabbitMQ ")
    assert "planner" in found["PostgreSQL"]["told"]
    assert found["S3"]["state"] == "good"
