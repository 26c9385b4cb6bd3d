"""The stack from the command line: RabbitMQ, PostgreSQL and an S3 server as native processes."""

# ruff: noqa: T201 - a command line prints.

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from infra.native import ports, rabbitmq
from infra.native.errors import StackError
from infra.native.install import install as install_packages
from infra.native.linux import die_with_parent
from infra.native.lock import hold
from infra.native.stack import Stack
from infra.native.supervisor import Supervisor

DEFAULT_FOLDER = Path(".stack")


def say(text: str) -> None:
    print(f"stack: {text}", file=sys.stderr, flush=True)


def install(options: argparse.Namespace) -> int:
    """install the system packages that are missing (as root, with apt), or say which they are"""
    install_packages(say)
    return 0


def up(options: argparse.Namespace) -> int:
    """start the stack and stay until Ctrl-C, or return at once with --detach"""
    stack = Stack(options.folder, say)
    if options.detach and stack.running():
        say(f"runs already in {stack.folder}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stack.start(detach=options.detach)
    say(f'ready; in another shell: eval "$({sys.executable} -m infra.native env --folder {stack.folder})"')
    if options.detach:
        return 0
    try:
        stack.wait()
    finally:
        say("stopping")
        stack.stop()
    raise StackError(f"the stack ended by itself: see {stack.folder}/log/supervisor.log")


def down(options: argparse.Namespace) -> int:
    """stop the stack; its data stays in the folder"""
    Stack(options.folder, say).stop()
    return 0


def env(options: argparse.Namespace) -> int:
    """print the LONGSTRIDE_* variables as shell exports"""
    for name, value in Stack(options.folder).addresses().environment().items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def status(options: argparse.Namespace) -> int:
    """print what runs; exit code 1 where something is dead"""
    servers = Stack(options.folder).status()
    for name, server in servers.items():
        print(f"{name:10} {_state(server):32} log {server['log']}")
    return int(any(server["exit_code"] is not None for server in servers.values()))


def _state(server: dict[str, int | None]) -> str:
    code = server["exit_code"]
    return f"runs as process {server['pid']}" if code is None else f"ended with exit code {code}"


def restart(options: argparse.Namespace) -> int:
    """end one server and start it again, with its data and on its port"""
    Stack(options.folder).restart(options.server, kill=options.kill)
    return 0


def rabbitmqctl(options: argparse.Namespace) -> int:
    """run rabbitmqctl on the stack's node, e.g. `rabbitmqctl -- list_queues`"""
    Stack(options.folder).addresses()
    node = rabbitmq.RabbitMQ(options.folder.absolute(), ports.recorded(options.folder))
    return subprocess.run(node.ctl(*_words(options)), env={**os.environ, **node.environment()}).returncode


def run(options: argparse.Namespace) -> int:
    """run a command with a throw-away stack of its own, stop that always, and pass on the exit code"""
    command = _words(options)
    if not command:
        raise StackError("run what? e.g. `run -- pytest tests/integration`")
    stack = Stack(tempfile.mkdtemp(prefix="longstride-stack-"), say)
    say(f"starting in {stack.folder}")
    try:
        addresses = stack.start(discard=True)
        code = _with_environment(command, addresses.environment())
        for name, server in stack.status().items():
            if server["exit_code"] is not None:
                say(f"{name} {_state(server)} meanwhile")
    finally:
        stack.stop()
        say("stopped")
    return code


def _words(options: argparse.Namespace) -> list[str]:
    words: list[str] = options.words
    return words[1:] if words[:1] == ["--"] else words


def _with_environment(command: list[str], variables: dict[str, str]) -> int:
    parent = os.getpid()
    started: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: object) -> None:
        started[0].send_signal(number)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        die_with_parent(parent, signal.SIGTERM)

    # Held back until there is somebody to pass it on to: the command may be up before Popen returns.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, forward)  # Sent to this process alone, unlike Ctrl-C, which the terminal's all get.
    process = subprocess.Popen(command, env={**os.environ, **variables}, preexec_fn=prepare)
    started.append(process)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = process.wait()
    return code if code >= 0 else 128 - code


def supervise(options: argparse.Namespace) -> int:
    """(internal) be the process that owns the servers"""
    with hold(options.folder):
        Supervisor(options.folder, sys.stdout, options.owner, options.discard).run()
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.native", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(function: Callable[[argparse.Namespace], int], *, folder: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        command.set_defaults(function=function)
        if folder:
            command.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where its data lies (.stack)")
        return command

    add(install, folder=False)
    add(up).add_argument("--detach", action="store_true", help="leave it running in the background")
    add(down)
    add(env)
    add(status)
    again = add(restart)
    again.add_argument("server", choices=["rabbitmq", "postgres", "s3"])
    again.add_argument("--kill", action="store_true", help="end it by SIGKILL")
    add(rabbitmqctl).add_argument("words", nargs=argparse.REMAINDER, metavar="-- ARGUMENTS")
    add(run, folder=False).add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    owned = add(supervise)
    owned.add_argument("--owner", type=int, help="process whose end is this one's too")
    owned.add_argument("--discard", action="store_true", help="kill at the end, and remove the folder")
    return parser


def main() -> int:
    options = parser().parse_args()
    try:
        return int(options.function(options))
    except StackError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
