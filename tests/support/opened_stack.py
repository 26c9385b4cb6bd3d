"""The embedded stack, with sandboxes whose allowed hosts are this host's loopback: ``python opened_stack.py --home DIR``."""

import sys
from ipaddress import ip_network

from longstride.sandbox import backends
from longstride.sandbox.bubblewrap import BubblewrapSandbox
from longstride.sandbox.egress.addresses import Addresses
from longstride.sandbox.egress.gate import Gates
from longstride.sandbox.egress.proxy import World
from services.embedded.__main__ import main

WORLD = World(addresses=Addresses([ip_network("127.0.0.0/8")]), resolve=lambda host, port: ["127.0.0.1"])

if __name__ == "__main__":
    opened = {backends.DEFAULT: lambda scratch: BubblewrapSandbox(scratch, Gates(WORLD))}
    backends.MAKERS = {**backends.MAKERS, **opened}
    sys.exit(main())
