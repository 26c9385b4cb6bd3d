"""What crosses the socket between a service's processes and their keeper."""

import pytest

from longstride.contracts.v1.events import ActionExecuted
from longstride.sandbox.errors import ExecutionCancelled, SandboxFailed
from longstride.storage.errors import ArtifactMissing, StorageFull
from longstride.tools.kept_call import KeptAnswer


def test_an_answer_arrives_as_it_was() -> None:
    executed = ActionExecuted(step=3, error="two\nlines")
    line = KeptAnswer(executed=executed).line()
    assert line.count(b"\n") == 1
    assert KeptAnswer.model_validate_json(line).result() == executed


@pytest.mark.parametrize(
    "error", [ExecutionCancelled(), SandboxFailed("broke"), StorageFull("full"), ArtifactMissing("gone")]
)
def test_an_error_is_raised_as_it_was(error: Exception) -> None:
    answer = KeptAnswer.model_validate_json(KeptAnswer.of_error(error).line())
    with pytest.raises(type(error), match=str(error) or None):
        answer.result()


def test_any_other_error_names_itself() -> None:
    with pytest.raises(SandboxFailed, match="KeyError: 'x'"):
        KeptAnswer.of_error(KeyError("x")).result()
