"""The tools there are, by name."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic.errors import PydanticUserError

from longstride.contracts.envelope import explain
from longstride.contracts.model import Contract
from longstride.contracts.v1.action import ToolSpec
from longstride.contracts.v1.commands import ExecuteAction
from longstride.tools.artifact_get import ArtifactGet
from longstride.tools.artifact_put import ArtifactPut
from longstride.tools.bash import Bash
from longstride.tools.delegate import Delegate
from longstride.tools.edit_file import EditFile
from longstride.tools.fetch_url import FetchUrl
from longstride.tools.install_packages import InstallPackages
from longstride.tools.noop import Noop
from longstride.tools.process_poll import ProcessPoll
from longstride.tools.process_send import ProcessSend
from longstride.tools.process_start import ProcessStart
from longstride.tools.process_stop import ProcessStop
from longstride.tools.python import Python
from longstride.tools.read_file import ReadFile
from longstride.tools.recall import Recall
from longstride.tools.run_tests import RunTests
from longstride.tools.schema import objection
from longstride.tools.search_files import SearchFiles
from longstride.tools.shell import Shell
from longstride.tools.submit import Submit
from longstride.tools.tool import Tool
from longstride.tools.write_file import WriteFile

AnyTool = Tool[Any]


class Registry:
    """Tools with names of their own."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        """
        Raises:
            ValueError: two tools have the same name, or one cannot be shown to a policy; the sentence says which and why.
        """
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            spec = _shown(tool)
            if spec.name in self._tools:
                raise ValueError(f"two tools are named {spec.name!r}: rename one")
            if why := objection(spec):
                raise ValueError(why)
            self._tools[spec.name] = tool

    def extended(self, tools: Iterable[AnyTool]) -> "Registry":
        """These tools, and more.

        Raises:
            ValueError: as when a registry is made.
        """
        return Registry((*self._tools.values(), *tools))

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._tools)

    def get(self, name: str) -> AnyTool | None:
        """One of them."""
        return self._tools.get(name)

    def allowed(self, asked: Sequence[str] | None) -> tuple[str, ...]:
        """The tools of a task: those it names, in its order; those offered to all when it names none.

        A name that no tool has is passed over: the planner takes no task with one, but a task may outlive an MCP server.
        """
        if not asked:
            return tuple(name for name, tool in self._tools.items() if tool.offered)
        return tuple(name for name in asked if name in self._tools)

    def unknown(self, asked: Sequence[str] | None) -> tuple[str, ...]:
        """Names that no tool has."""
        return tuple(name for name in asked or () if name not in self._tools)

    def specs(self, asked: Sequence[str] | None = None) -> tuple[ToolSpec, ...]:
        """What a policy is shown of a task's tools."""
        return tuple(self._tools[name].spec for name in self.allowed(asked))

    def kept(self, command: ExecuteAction) -> bool:
        """Whether all calls of a command's task have to be carried out by one process."""
        return any(tool.kept for name in command.tools if (tool := self._tools.get(name)))

    def unsafe(self, message: Contract) -> bool:
        """Whether a command is one whose interrupted call must not be made again without a person.

        Nothing brings back what an agent's program has sent over the network, whatever its tool does to the workspace.
        """
        if not isinstance(message, ExecuteAction) or (tool := self._tools.get(message.action.tool)) is None:
            return False
        reaches_out = message.egress is not None and tool.changes_workspace and tool.sends
        return tool.idempotency == "unsafe" or reaches_out


def _shown(tool: AnyTool) -> ToolSpec:
    """A tool's spec, which pydantic may refuse to make: a name of other characters, arguments without a schema."""
    try:
        return tool.spec
    except ValidationError as error:
        raise ValueError(f"tool {tool.name!r} cannot be registered: {explain(error)}") from error
    except PydanticUserError as error:
        raise ValueError(f"tool {tool.name!r} has arguments without a JSON schema: {error}") from error


def builtin_tools() -> Registry:
    """The tools that Longstride comes with."""
    executed = (Shell(), Python(), ReadFile(), WriteFile(), SearchFiles(), Submit(), Noop())
    on_request = (Bash(), EditFile(), RunTests(), ArtifactPut(), ArtifactGet(), FetchUrl(), InstallPackages())
    living = (ProcessStart(), ProcessPoll(), ProcessSend(), ProcessStop())
    return Registry((*executed, Delegate(), Recall(), *on_request, *living))
