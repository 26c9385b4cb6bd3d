"""Each test's private corner of the servers: made, its own, and gone afterwards."""

from urllib.parse import urlsplit

import httpx
import pika
import psycopg
from minio import Minio

from tests.support import servers as under_test
from tests.support.servers import Servers


def databases(servers: Servers) -> set[str]:
    with psycopg.connect(servers.database_url) as connection:
        return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


def test_each_database_is_a_migrated_one_of_its_own(database_url: str, module_database_url: str) -> None:
    assert {"tasks", "task_events", "outbox", "alembic_version"} <= tables(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE only_here ()")
    assert "only_here" not in tables(module_database_url)


def test_an_empty_database_is_empty(empty_database_url: str) -> None:
    assert tables(empty_database_url) == set()


def test_a_database_is_dropped_even_with_a_client_connected(servers: Servers) -> None:
    with under_test.database(servers) as url:
        name = under_test.name_of(url)
        assert name in databases(servers)
        connection = psycopg.connect(url)
    assert name not in databases(servers)
    connection.close()


def test_a_virtual_host_is_usable_and_removed_with_its_queues(servers: Servers) -> None:
    with httpx.Client(base_url=servers.management_url) as api:
        with under_test.virtual_host(servers) as url:
            name = under_test.name_of(url)
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                connection.channel().queue_declare("queue", durable=True, arguments={"x-queue-type": "quorum"})
            assert [queue["name"] for queue in api.get(f"/api/queues/{name}").json()] == ["queue"]
        assert api.get(f"/api/vhosts/{name}").status_code == 404


def test_the_vhost_fixture_names_the_host_of_the_url(amqp_url: str, vhost: str) -> None:
    assert urlsplit(amqp_url).path == f"/{vhost}"


def test_a_bucket_is_removed_with_its_objects(servers: Servers, bucket: str) -> None:
    address = urlsplit(servers.s3_endpoint).netloc
    client = Minio(address, servers.access_key, servers.secret_key, secure=False)
    with under_test.bucket(servers) as name:
        assert name != bucket
        client.fput_object(bucket_name=name, object_name="a/b", file_path=__file__)
    assert not client.bucket_exists(bucket_name=name)
    assert client.bucket_exists(bucket_name=bucket)
