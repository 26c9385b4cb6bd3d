"""A keeper over bubblewrap and artifacts on disk, for tests: ``python -m tests.support.keeper_process``.

Arguments: the folder of its door, the service's process id, a folder for artifacts, seconds of idleness.
"""

import os
import sys
import threading
from pathlib import Path

from longstride.sandbox import backends
from longstride.sandbox.demand import Bounds
from longstride.sandbox.pool import Pool
from longstride.sandbox.workspace import Workspaces
from longstride.storage.disk import DiskArtifacts
from longstride.tools.executor import Executor
from longstride.tools.household import Households
from longstride.tools.keeper import Door, Keeper
from longstride.tools.kept_call import KeptAnswer, KeptCall
from longstride.tools.registry import builtin_tools


def main(folder: str, service: str, artifacts: str, idle_s: str) -> None:
    door, descriptor = Door(Path(folder), int(service)), os.pidfd_open(int(service))
    store, backend = DiskArtifacts(Path(artifacts)), Pool(backends.make(), Bounds(floor=0))
    workspaces = Workspaces(store, backend.volumes)
    households = Households(workspaces)
    executor = Executor(backend, workspaces, store, builtin_tools(), households=households)

    def carry_out(call: KeptCall, called_off: threading.Event) -> KeptAnswer:
        who = {"task_id": call.task_id, "session_id": call.session_id, "tenant": call.tenant}
        try:
            return KeptAnswer(executed=executor.execute(call.command, cancelled=called_off, **who))
        except Exception as error:  # noqa: BLE001 - it is raised where the call came from
            return KeptAnswer.of_error(error)

    with door.owned() as mine:
        if mine:
            Keeper(door, carry_out, households, float(idle_s)).serve(door.listen(), descriptor)
    households.close()
    workspaces.close()
    backend.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
