# Sourced by test.sh: base images made with mmdebstrap, for machines that cannot pull any.
#
# They use the package mirror, the apt settings and the certificates of the machine that makes them. So they are for this
# machine alone: nothing of them is committed, and they are not to be pushed anywhere.

CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

# The mirror that this machine's own apt installs from.
bases_mirror() {
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | sort | uniq -c | sort -rn \
        | awk 'NR == 1 { print $2 }'
}

# A folder's worth of a recipe: what makes two bases equal.
bases_key() {
    { declare -f bases_make; echo "$*"; cat "$WORK/apt.conf" "$CERTIFICATES"; } | sha256sum | cut -c1-16
}

# bases_image NAME SUITE PACKAGES: sets IMAGE to an image with these packages, from the cache where it is there.
bases_image() {
    local name=$1 suite=$2 packages=$3 mirror key tar
    mirror=$(bases_mirror)
    [ -n "$mirror" ] || fail "apt on this machine names no package mirror, so no base image can be made"
    apt-config dump | grep -E '^(Acquire::[^:]+::Proxy|Acquire::Check)' > "$WORK/apt.conf" || true
    key=$(bases_key "$suite" "$packages" "$mirror")
    IMAGE=longstride-base/$name:$key
    if docker image inspect "$IMAGE" > /dev/null 2>&1; then
        say "$IMAGE is there"
        return
    fi
    tar=$CACHE/$name-$key.tar
    if [ ! -f "$tar" ]; then
        stage "making $IMAGE ($suite with $packages)" bases_make "$suite" "$packages" "$mirror" "$WORK/$name.tar"
        keep "$WORK/$name.tar" "$tar" || tar=$WORK/$name.tar
    fi
    stage "importing $IMAGE" docker import --change "ENV PIP_CERT=$CERTIFICATES" "$tar" "$IMAGE"
    rm -f "$WORK/$name.tar"
}

bases_make() {
    local suite=$1 packages=$2 mirror=$3 target=$4
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt="$WORK/apt.conf" --include="ca-certificates,$packages" \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --essential-hook='mkdir -p "$1/etc/postgresql-common"' \
        --essential-hook='echo create_main_cluster=false > "$1/etc/postgresql-common/createcluster.conf"' \
        --customize-hook="cp $CERTIFICATES \"\$1$CERTIFICATES\"" \
        "$suite" "$target" "deb $mirror $suite main"
}

# keep FILE PLACE: into the cache, whole or not at all; says so where the cache cannot be written.
keep() {
    if mkdir -p "$CACHE" && mv "$1" "$2.$$" && mv "$2.$$" "$2"; then
        return
    fi
    say "the cache $CACHE cannot be written; the next run makes this again"
    return 1
}
