#!/bin/sh
# Run once, when the volume is made: Grafana's user, who may read the tables and nothing else.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" -v secret="$LONGSTRIDE_GRAFANA_PASSWORD" <<'SQL'
CREATE ROLE grafana LOGIN PASSWORD :'secret' CONNECTION LIMIT 20;
GRANT pg_read_all_data TO grafana;
ALTER ROLE grafana SET default_transaction_read_only = on;
ALTER ROLE grafana SET statement_timeout = '30s';
SQL
