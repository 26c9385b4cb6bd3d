"""`python -m infra.native`: the stack from the command line."""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.native.errors import StackError
from infra.native.linux import die_with_parent
from infra.native.lock import hold
from infra.native.stack import Stack
from infra.native.supervisor import Supervisor

DEFAULT_FOLDER = Path(".stack")


def say(text: str) -> None:
    print(f"stack: {text}", file=sys.stderr, flush=True)


def up(options: argparse.Namespace) -> int:
    """start RabbitMQ, PostgreSQL and S3, and stay until Ctrl-C (or return, with --detach)"""
    stack = Stack(options.folder, say)
    if options.detach and stack.running():
        say(f"runs already in {stack.folder}")
        return 0
    stack.start(detach=options.detach)
    say(f'ready; in another shell: eval "$({sys.executable} -m infra.native env --folder {stack.folder})"')
    if not options.detach:
        signal.sigwait({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        stack.stop()
    return 0


def down(options: argparse.Namespace) -> int:
    """stop the stack of a folder; its data stays"""
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
        state = "runs" if server["exit_code"] is None else f"ended with exit code {server['exit_code']}"
        print(f"{name:10} pid {server['pid']:<8} {state:28} log {server['log']}")
    return int(any(server["exit_code"] is not None for server in servers.values()))


def restart(options: argparse.Namespace) -> int:
    """end one server and start it again, with its data and on its port"""
    Stack(options.folder).restart(options.server, kill=options.kill)
    return 0


def run(options: argparse.Namespace) -> int:
    """run a command with a stack of its own in a temporary folder, stop that always, pass on the exit code"""
    folder = Path(tempfile.mkdtemp(prefix="longstride-stack-"))
    stack = Stack(folder, say)
    try:
        addresses = stack.start(discard=True)
        return run_command(options.command, addresses.environment())
    finally:
        stack.stop()


def run_command(command: list[str], variables: dict[str, str]) -> int:
    parent = os.getpid()
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
    )
    # Ctrl-C reaches the command by itself, as it shares the terminal; a SIGTERM is for this process alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    code = process.wait()
    return code if code >= 0 else 128 - code


def supervise(options: argparse.Namespace) -> int:
    """(internal) be the process that owns the servers"""
    folder = Path(options.folder)
    with hold(folder):
        Supervisor(folder, sys.stdout, options.owner, options.discard).run()
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.native", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(function: object, *, folder: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(function.__name__, help=function.__doc__)
        command.set_defaults(function=function)
        if folder:
            command.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where its data lies (.stack)")
        return command

    add(up).add_argument("--detach", action="store_true", help="leave it running in the background")
    add(down)
    add(env)
    add(status)
    again = add(restart)
    again.add_argument("server", choices=["rabbitmq", "postgres", "s3"])
    again.add_argument("--kill", action="store_true", help="by SIGKILL")
    add(run, folder=False).add_argument("command", nargs=argparse.REMAINDER)
    owner = add(supervise)
    owner.add_argument("--owner", type=int, help="process whose end is this one's too")
    owner.add_argument("--discard", action="store_true", help="kill at the end, and remove the folder")
    return parser


def main() -> int:
    options = parser().parse_args()
    try:
        return int(options.function(options))
    except StackError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
