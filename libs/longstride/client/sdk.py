"""What a Python program imports to use Longstride over a broker.

from longstride.client.sdk import Client, SubmitTask

with Client("amqp://guest:guest@localhost:5672/%2F") as client:
    task = client.submit(SubmitTask(instruction="Write the numbers 1 to 3 into numbers.txt, then submit."))
    print(task.outcome(timeout_s=300))
"""

from longstride.client.amqp import Client, Handle
from longstride.client.errors import (
    BrokerRefused,
    ClientError,
    NoAnswer,
    NotFound,
    TaskRefused,
    Unreachable,
    Unroutable,
    UsageProblem,
)
from longstride.contracts.v1.check import AnswerCheck, CommandCheck, FileCheck
from longstride.contracts.v1.commands import (
    ApproveAction,
    CancelTask,
    MessageTask,
    PauseTask,
    RecordFeedback,
    ResumeTask,
    Sampling,
    SubmitTask,
)
from longstride.contracts.v1.events import TaskAccepted, TaskEnded
from longstride.contracts.v1.input_file import InputFile
from longstride.contracts.v1.limits import Limits, SandboxLimits

__all__ = [
    "AnswerCheck",
    "ApproveAction",
    "BrokerRefused",
    "CancelTask",
    "Client",
    "ClientError",
    "CommandCheck",
    "FileCheck",
    "Handle",
    "InputFile",
    "Limits",
    "MessageTask",
    "NoAnswer",
    "NotFound",
    "PauseTask",
    "RecordFeedback",
    "ResumeTask",
    "Sampling",
    "SandboxLimits",
    "SubmitTask",
    "TaskAccepted",
    "TaskEnded",
    "TaskRefused",
    "Unreachable",
    "Unroutable",
    "UsageProblem",
]
