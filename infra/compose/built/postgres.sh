#!/bin/sh
# What the entry point of the public images does, as far as data.yml needs it: on an empty volume make the cluster, the
# user, the database, and run the scripts; then become the server.
set -eu

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    chmod 700 "$PGDATA"
    printf '%s' "$POSTGRES_PASSWORD" > /tmp/secret
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/secret --auth-local=trust --auth-host=scram-sha-256 > /dev/null
    rm /tmp/secret
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    # On the socket alone: nobody else is to see a server that is about to be stopped.
    pg_ctl --silent --wait --options "-c listen_addresses=''" start
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    for script in /docker-entrypoint-initdb.d/*.sh; do
        sh "$script"
    done
    pg_ctl --silent --wait --mode=fast stop
fi
exec "$@"
