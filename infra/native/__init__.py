"""The full stack as native processes: RabbitMQ, PostgreSQL and an S3 server without Docker. See README.md."""

from infra.native.addresses import Addresses
from infra.native.errors import StackError
from infra.native.stack import Stack

__all__ = ["Addresses", "Stack", "StackError"]
