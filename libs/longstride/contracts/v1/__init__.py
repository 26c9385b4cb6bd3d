"""Version 1 of every message. An additive change stays here; any other is a v2 beside an upcaster."""

from longstride.contracts.model import Contract
from longstride.contracts.v1 import commands, events

MESSAGES: dict[str, type[Contract]] = {
    "submit_task": commands.SubmitTask,
    "generate": commands.Generate,
    "generated": events.Generated,
    "execute_action": commands.ExecuteAction,
    "action_executed": events.ActionExecuted,
    "task_accepted": events.TaskAccepted,
    "task_rejected": events.TaskRejected,
    "task_ended": events.TaskEnded,
    "update_policy": commands.UpdatePolicy,
    "policy_published": events.PolicyPublished,
    "cancel_task": commands.CancelTask,
    "pause_task": commands.PauseTask,
    "resume_task": commands.ResumeTask,
    "message_task": commands.MessageTask,
    "approve_action": commands.ApproveAction,
    "expire_task": commands.ExpireTask,
    "record_feedback": commands.RecordFeedback,
    "sweep": commands.Sweep,
}
