# Sourced by test.sh: a container engine. One that answers is used as it is; else a private one is started, and undone.
#
# A private engine changes the machine's network (a bridge, iptables chains, forwarding), so there is one at a time: others
# wait for it. What it found is written down first, so that the next run undoes it even after a kill -9.

ENGINE_LOCK=/run/lock/longstride-engine
ENGINE_STATE=/run/longstride-engine
ENGINE_BRIDGE=10.222.0.1/24
ENGINE_POOL=10.223.0.0/16
ENGINE_RULES='DOCKER|docker0|br-[0-9a-f]{12}|10\.22[23]\.'
ENGINE_OURS=

engine_find() {
    if docker info > /dev/null 2>&1; then
        say "using the container engine that runs here"
        return
    fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
        no_engine "no container engine answers (docker info), and a private one needs root on Debian: start Docker, or set DOCKER_HOST"
    fi
    engine_install docker.io:dockerd iptables:iptables mmdebstrap:mmdebstrap
    engine_start
}

# Without an engine nothing can be tested: a failure, unless ENGINE_OPTIONAL says that this machine need not have one.
no_engine() {
    [ -n "${ENGINE_OPTIONAL:-}" ] || fail "$*"
    say "NOT RUN: $*" >&2
    exit 0
}

# engine_install PACKAGE:PROGRAM...: those whose program is missing, without starting their system services.
engine_install() {
    local missing=() pair
    for pair; do
        command -v "${pair#*:}" > /dev/null || missing+=("${pair%%:*}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    exec 7> /run/lock/longstride-install
    flock 7
    stage "installing ${missing[*]} with apt-get" engine_apt "${missing[@]}"
    exec 7>&-
}

engine_apt() (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        trap 'rm -f $policy' EXIT
        printf '#!/bin/sh\n# For the time of an installation by infra/compose/engine.sh of longstride.\nexit 101\n' > $policy
        chmod 755 $policy
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=600 update
    apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends "$@"
)

engine_start() {
    exec 8> $ENGINE_LOCK
    if ! flock -n 8; then
        say "another private engine runs; waiting for it to end"
        flock -w 3600 8 || fail "another private engine ($(cat $ENGINE_STATE)) has run for an hour: end it, or start Docker"
    fi
    if [ -f $ENGINE_STATE ]; then
        say "undoing what a killed run left"
        engine_undo
    fi
    if ip link show docker0 > /dev/null 2>&1; then
        fail "there is a bridge docker0, yet no engine answers (docker info): set DOCKER_HOST to the engine it belongs to"
    fi
    engine_remember
    ENGINE_OURS=yes
    export DOCKER_HOST=unix://$WORK/engine/docker.sock
    (stage "starting a private engine" engine_launch) || no_engine "a private engine does not start on this machine; its log is above"
}

engine_remember() {
    {
        echo "folder=$WORK/engine"
        echo "forward=$(iptables -S FORWARD | awk '/^-P/ { print $3 }')"
        echo "ip_forward=$(cat /proc/sys/net/ipv4/ip_forward)"
    } > $ENGINE_STATE
}

engine_launch() {
    local folder=$WORK/engine
    mkdir -p "$folder"
    setsid dockerd --data-root "$folder/root" --exec-root "$folder/exec" --pidfile "$folder/dockerd.pid" --host "$DOCKER_HOST" \
        --bip $ENGINE_BRIDGE --default-address-pool base=$ENGINE_POOL,size=24 > "$folder/log" 2>&1 < /dev/null 7>&- 8>&- &
    local waited=0
    until docker info > /dev/null 2>&1; do
        [ $((waited += 1)) -le 120 ] && kill -0 $! 2> /dev/null || { tail -20 "$folder/log"; return 1; }
        sleep 0.5
    done
}

engine_stop() {
    [ -n "$ENGINE_OURS" ] || return 0
    docker ps --all --quiet | xargs --no-run-if-empty docker rm --force --volumes > /dev/null
    docker network prune --force > /dev/null
    engine_undo
}

# The machine as it was, from what was written down; also for an engine whose run was killed.
engine_undo() {
    local folder forward ip_forward
    . $ENGINE_STATE
    engine_end "$folder/dockerd.pid"
    engine_unmount "$folder"
    ip -o link show type bridge | awk -F '[ :]+' '{ print $2 }' | while read -r bridge; do
        if ip -o -4 addr show dev "$bridge" | grep -qE 'inet 10\.22[23]\.'; then
            ip link delete "$bridge"
        fi
    done
    engine_unfilter filter
    engine_unfilter nat
    iptables -P FORWARD "$forward"
    echo "$ip_forward" > /proc/sys/net/ipv4/ip_forward
    rm -rf "$folder"
    rm -f $ENGINE_STATE
}

# engine_end PIDFILE: the engine, its containerd and what is left of its containers.
engine_end() {
    local pid waited=0
    [ -f "$1" ] || return 0
    pid=$(cat "$1")
    grep -qa dockerd "/proc/$pid/cmdline" 2> /dev/null || return 0
    kill "$pid"
    while [ -e "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2> /dev/null; do
        [ $((waited += 1)) -le 60 ] || { kill -9 "$pid"; break; }
        sleep 0.5
    done
}

engine_unmount() {
    awk -v folder="$1/" 'index($5, folder) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r point; do
        umount --lazy "$point"
    done
}

# engine_unfilter TABLE: its rules first, then its chains.
engine_unfilter() {
    local rule chain
    iptables -t "$1" -S | grep '^-A' | grep -E "$ENGINE_RULES" | sed 's/^-A/-D/' | while read -r rule; do
        # shellcheck disable=SC2086 # a rule is several words, none of them quoted
        iptables -t "$1" $rule
    done
    iptables -t "$1" -S | awk '/^-N DOCKER/ { print $2 }' | while read -r chain; do
        iptables -t "$1" -X "$chain"
    done
}
