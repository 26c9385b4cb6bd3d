"""Where the servers under test are, and a private corner of each for one test: a database, a virtual host, a bucket."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

VARIABLES = (
    "LONGSTRIDE_AMQP_URL",
    "LONGSTRIDE_MANAGEMENT_URL",
    "LONGSTRIDE_DATABASE_URL",
    "LONGSTRIDE_S3_ENDPOINT",
    "LONGSTRIDE_S3_ACCESS_KEY",
    "LONGSTRIDE_S3_SECRET_KEY",
    "LONGSTRIDE_S3_BUCKET",
)


@dataclass(frozen=True)
class Servers:
    """The servers that the environment names; they may be native processes or the compose stack's."""

    amqp_url: str
    management_url: str
    database_url: str
    s3_endpoint: str
    access_key: str
    secret_key: str
    bucket: str

    @classmethod
    def from_environment(cls) -> "Servers":
        """Raises `LookupError`, naming what is not set."""
        unset = [name for name in VARIABLES if not os.environ.get(name)]
        if unset:
            raise LookupError(f"no servers: {', '.join(unset)} not set (run `make test`, or `make up` and its `env`)")
        return cls(*(os.environ[name] for name in VARIABLES))


def fresh_name(kind: str) -> str:
    """A name that no other test and no other run has, valid for databases, virtual hosts and buckets."""
    return f"test-{kind}-{secrets.token_hex(5)}"


def with_path(url: str, path: str) -> str:
    """`url` with another database or virtual host."""
    return urlunsplit(urlsplit(url)._replace(path="/" + quote(path, safe="")))


def name_of(url: str) -> str:
    """The database or virtual host of `url`."""
    return unquote(urlsplit(url).path.removeprefix("/"))


@contextmanager
def database(servers: Servers, template: str = "template0") -> Iterator[str]:
    """The URL of a new database, a copy of `template`; dropped afterwards, whoever is still connected."""
    import psycopg
    from psycopg.sql import SQL, Identifier

    name = fresh_name("db")
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(Identifier(name), Identifier(template)))
    try:
        yield with_path(servers.database_url, name)
    finally:
        with psycopg.connect(servers.database_url, autocommit=True) as connection:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@contextmanager
def virtual_host(servers: Servers) -> Iterator[str]:
    """The AMQP URL of a new virtual host; removed afterwards with its queues and connections."""
    import httpx

    name = fresh_name("vhost")
    user = quote(urlsplit(servers.amqp_url).username or "", safe="")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    with httpx.Client(base_url=servers.management_url, timeout=30) as api:
        api.put(f"/api/vhosts/{name}").raise_for_status()
        api.put(f"/api/permissions/{name}/{user}", json=everything).raise_for_status()
        try:
            yield with_path(servers.amqp_url, name)
        finally:
            api.delete(f"/api/vhosts/{name}").raise_for_status()


@contextmanager
def bucket(servers: Servers) -> Iterator[str]:
    """The name of a new bucket; removed afterwards with what is in it."""
    from minio import Minio

    address = urlsplit(servers.s3_endpoint)
    client = Minio(address.netloc, servers.access_key, servers.secret_key, secure=address.scheme == "https")
    name = fresh_name("bucket")
    client.make_bucket(bucket_name=name)
    try:
        yield name
    finally:
        for item in client.list_objects(bucket_name=name, recursive=True):
            client.remove_object(bucket_name=name, object_name=item.object_name)
        client.remove_bucket(bucket_name=name)
