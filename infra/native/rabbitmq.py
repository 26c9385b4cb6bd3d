"""RabbitMQ from the system's package, as a private node."""

import base64
import secrets
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from infra.native.errors import StackError
from infra.native.ports import HOST
from infra.native.private import password, write_private
from infra.native.server import Command

PORTS = ("amqp", "management", "prometheus", "distribution", "epmd")
USER = "longstride"
SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Not the one in /usr/sbin, which changes directory and user."""
SHARED = Path(__file__).parents[1] / "rabbitmq"
"""Settings that the compose stack mounts too."""


class RabbitMQ:
    name = "rabbitmq"
    stop_signal = signal.SIGTERM
    stop_seconds = 20.0

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.litter: list[Path] = []
        self.home = folder / "rabbitmq"
        self.log = folder / "log" / "rabbitmq.log"
        self._ports = ports
        self._password = password(folder, "rabbitmq")

    @property
    def amqp_url(self) -> str:
        return f"amqp://{USER}:{self._password}@{HOST}:{self._ports['amqp']}/%2F"

    @property
    def management_url(self) -> str:
        return f"http://{USER}:{self._password}@{HOST}:{self._ports['management']}"

    @property
    def prometheus_url(self) -> str:
        return f"http://{HOST}:{self._ports['prometheus']}/metrics"

    def prepare(self) -> None:
        if not SCRIPT.exists():
            raise StackError(f"RabbitMQ is not installed ({SCRIPT} is missing): run `python -m infra.native install`")
        self.home.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(SHARED / "enabled_plugins", self.home / "enabled_plugins")
        # A cookie of its own: two stacks of one user would otherwise share ~/.erlang.cookie.
        cookie = self.home / ".erlang.cookie"
        if not cookie.exists():
            write_private(cookie, secrets.token_hex(20))
            cookie.chmod(0o400)
        node = self.home / "node_name"
        if not node.exists():
            write_private(node, f"longstride-{secrets.token_hex(4)}@localhost")
        write_private(self.home / "rabbitmq.conf", self._configuration())

    def _configuration(self) -> str:
        return "\n".join(
            (
                (SHARED / "rabbitmq.conf").read_text(),
                f"default_user = {USER}",
                f"default_pass = {self._password}",
                f"management.tcp.ip = {HOST}",
                f"management.tcp.port = {self._ports['management']}",
                f"prometheus.tcp.ip = {HOST}",
                f"prometheus.tcp.port = {self._ports['prometheus']}",
                "",
            )
        )

    def environment(self) -> dict[str, str]:
        """For the server, and for `rabbitmqctl` of the same node."""
        home = str(self.home)
        return {
            "HOME": home,
            "RABBITMQ_NODENAME": (self.home / "node_name").read_text(),
            "RABBITMQ_BASE": home,
            "RABBITMQ_MNESIA_BASE": f"{home}/mnesia",
            "RABBITMQ_LOG_BASE": f"{home}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{home}/rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": f"{home}/rabbitmq-env.conf",
            "RABBITMQ_PID_FILE": f"{home}/rabbitmq.pid",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self._ports["amqp"]),
            "RABBITMQ_DIST_PORT": str(self._ports["distribution"]),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self._ports["epmd"]),
            "ERL_EPMD_ADDRESS": HOST,
            # Makes the script exec Erlang in its place, so that signals and the parent's death reach the node itself.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def commands(self) -> list[Command]:
        environment = self.environment()
        # Erlang would start its port mapper itself, as a daemon that outlives every node; as a child it ends with us.
        mapper = Command(["epmd"], environment, self.log)
        return [mapper, Command([str(SCRIPT)], environment, self.log)]

    def ctl(self, *arguments: str) -> list[str]:
        """The command line of `rabbitmqctl` for this node, to be run with its `environment`."""
        return [str(SCRIPT.with_name("rabbitmqctl")), "-q", *arguments]

    def ready(self) -> bool:
        url = f"http://{HOST}:{self._ports['management']}/api/health/checks/port-listener/{self._ports['amqp']}"
        token = base64.b64encode(f"{USER}:{self._password}".encode()).decode()
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {token}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
