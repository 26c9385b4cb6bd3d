"""``longstride policy``: who thinks, in versions."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from longstride.client.cli import exit_codes
from longstride.client.cli.options import Json
from longstride.client.connect import Deployment, connect
from longstride.client.errors import ClientError, NotFound, UsageProblem
from longstride.client.failures import translated
from longstride.client.policy_update import PolicyUpdate
from longstride.client.screen import units
from longstride.client.screen.console import say, show, show_json, show_json_line
from longstride.client.screen.table import table
from longstride.contracts.envelope import Envelope
from longstride.storage.policies import PolicyVersion

TRAINER = "longstride.policies.builtin.train"
LABEL = 10
Name = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="A policy; without a version its latest.")]

app = typer.Typer(
    help="Policies and their versions: what was published, from what it was trained, and training more.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list")
def list_policies(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Of this one alone.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List published versions."""
    with connect(say) as deployment, deployment.reader.transaction() as uow:
        versions = uow.policies.list(name)
    if json:
        show_json([_document(version) for version in versions])
    elif versions:
        show(_table(versions))
    else:
        say("no policy has been published here yet")


@app.command("show")
def show_policy(name: Name, json: Json = False) -> None:
    """Show a version: its metrics, and the batch and tasks it was trained on."""
    with connect(say) as deployment:
        found = _find(deployment, name)
        with deployment.reader.transaction() as uow:
            tasks = uow.training_ledger.trained_into(found.name, found.version)
    if json:
        show_json({**_document(found), "tasks": tasks})
        return
    show(Text(f"{found.name}@{found.version}", "strong"))
    parent = f"{found.name}@{found.parent_version}" if found.parent_version is not None else "none"
    facts: list[tuple[str, str]] = [
        ("published", f"{found.created_at:%Y-%m-%d %H:%M:%S}" if found.created_at else ""),
        ("parent", parent),
        ("batch", found.batch_id or "none"),
        ("manifest", found.manifest.key),
        *(
            (metric, f"{value:.6g}" if isinstance(value, float) else str(value))
            for metric, value in found.metrics.items()
        ),
        *(("task", task) for task in tasks),
    ]
    show(*(Text.assemble((f"{label:<{LABEL}} ", "faint"), told) for label, told in facts))


@app.command()
def update(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The policy to improve.")] = "builtin",
    groups: Annotated[
        int, typer.Option("--groups", metavar="N", min=1, help="Fewer groups with a signal are refused.")
    ] = 1,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until its version is published, or refused.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait so long at the most (for ever).")
    ] = None,
    json: Json = False,
) -> None:
    """Ask for one update on the finished groups that were not trained on yet.

    Make groups first: longstride run … --group 8. The new version is served as soon as it is published.

    Exit code: 0 asked for, or with --wait published; 1 nothing to train on, or refused; 3 not in time; 130 Ctrl-C
    (the update goes on).

    Example:

      longstride policy update --wait
    """
    from longstride.messaging.outbox import Outbox
    from longstride.training.batches import NothingToTrain, ask_for_update

    if timeout is not None and not wait:
        raise UsageProblem("--timeout is for --wait: say both")
    with connect(say) as deployment:
        if deployment.artifacts is None:
            raise UsageProblem("an update needs the artifact store: set LONGSTRIDE_S3_ENDPOINT and its keys")
        try:
            with deployment.reader.transaction() as uow:
                command = ask_for_update(uow, Outbox(), deployment.artifacts, name, least_groups=groups)
        except NothingToTrain as error:
            raise ClientError(str(error)) from error
        _asked(command, json, wait)
        if wait:
            _follow(deployment, command, timeout, json)


def _asked(command: Envelope, json: bool, wait: bool) -> None:
    name, batch_id, base = (command.body[field] for field in ("policy", "batch_id", "base_version"))
    if json:
        show_json_line({"batch_id": batch_id, "policy": name, "base_version": base})
    else:
        later = "" if wait else f"; longstride policy list {name} shows the result"
        show(f"asked for an update of {name}@{base} on batch {batch_id}{later}")


def _follow(deployment: Deployment, command: Envelope, timeout_s: float | None, json: bool) -> None:
    name, batch_id = str(command.body["policy"]), str(command.body["batch_id"])
    asked = PolicyUpdate(deployment.reader, name, batch_id, command.message_id)
    try:
        version = asked.outcome(timeout_s)
    except KeyboardInterrupt:
        say(f"detached; the update goes on. longstride policy list {name}")
        raise typer.Exit(exit_codes.DETACHED) from None
    if json:
        show_json_line(_document(version))
    else:
        metrics = ", ".join(f"{metric} {_short(value)}" for metric, value in list(version.metrics.items())[:4])
        show(f"published {version.name}@{version.version}" + (f"  {metrics}" if metrics else ""))


def _document(version: PolicyVersion) -> dict[str, Any]:
    return asdict(version) | {"manifest": version.manifest.model_dump(mode="json")}


@app.command()
def export(
    name: Name,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; a folder of its own is made in it.")],
    json: Json = False,
) -> None:
    """Write a version's weights and model card to a folder, checked against its manifest."""
    from longstride.training.errors import WeightsRefused
    from longstride.training.weights import fetch, open_manifest

    with connect(say) as deployment:
        found = _find(deployment, name)
        if deployment.artifacts is None:
            raise UsageProblem("an export needs the artifact store: set LONGSTRIDE_S3_ENDPOINT and its keys")
        try:
            with translated():
                manifest = open_manifest(found.manifest, deployment.artifacts, policy=found.name, version=found.version)
                written = fetch(manifest, deployment.artifacts, directory)
        except WeightsRefused as error:
            raise ClientError(str(error)) from error
    if json:
        show_json({"policy": found.name, "version": found.version, "directory": str(written)})
    else:
        show(str(written))


@app.command("train-builtin", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def train_builtin(
    context: typer.Context,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same weights.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the weights and model card go.")
    ] = Path("builtin"),
    json: Json = False,
) -> None:
    """Train the builtin policy from nothing, in minutes on two cores.

    Further options go to the trainer: longstride policy train-builtin -- --help lists them.
    """
    command = [sys.executable, "-m", TRAINER, "--seed", str(seed), "--out", str(out), *context.args]
    code = subprocess.run(command, stdout=sys.stderr if json else None).returncode
    if code:
        raise typer.Exit(code)
    if json:
        show_json({"seed": seed, "directory": str(out)})


def _find(deployment: Deployment, name: str) -> PolicyVersion:
    family, at, number = name.rpartition("@")
    if at and not number.isdigit():
        raise UsageProblem(f"{name!r} is not a policy version: write NAME or NAME@7")
    with deployment.reader.transaction() as uow:
        found = uow.policies.get(family, int(number)) if at else uow.policies.latest(name)
    if found is None:
        raise NotFound(f"no policy {name!r} has been published here; longstride policy list")
    return found


def _table(versions: list[PolicyVersion]) -> Table:
    grid = table("policy", ">version", ">parent", ">age")
    grid.add_column("metrics", overflow="fold")
    for version in versions:
        grid.add_row(
            Text(version.name, "name"),
            str(version.version),
            "" if version.parent_version is None else str(version.parent_version),
            units.ago(version.created_at),
            ", ".join(f"{name} {_short(value)}" for name, value in list(version.metrics.items())[:4]),
        )
    return grid


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
