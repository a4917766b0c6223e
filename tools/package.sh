# How ./do package makes packages. Sourced by ./do.
# shellcheck shell=bash

# The Python application as setuptools builds it, with the presets that a source tree only links to.
setuptools() { # wheel|sdist FOLDER -- prints the file
    local kind=$1 folder log python=$PWD/.venv/bin/python
    mkdir -p "$2"
    folder=$(realpath "$2") log=$folder/build.log
    rm -rf "$folder"/netdyno-*.whl "$folder"/netdyno-*.tar.gz python/build
    (
        cd python
        SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
        export SOURCE_DATE_EPOCH
        "$python" -c "import sys; from setuptools import build_meta; build_meta.build_$kind(sys.argv[1])" "$folder"
    ) >"$log" 2>&1 || die 1 "the $kind was not built: $(tail -1 "$log")"
    rm -rf python/build "$log"
    ls "$folder"/netdyno-*
}

# What builds packages: less than `./do setup` installs, which has the servers of the tests too.
package_tools() { # KIND
    install "${BUILD[@]}" dpkg-dev/dpkg-shlibdeps
    [ "$1" != portable-wheel ] || install flex/flex bison/bison
    rust
    environment
    # the bill of materials reads the manifests of all crates, also of those that are built elsewhere only
    cargo fetch --locked --quiet || die 92 "the crates could not be downloaded; check the network"
    [ "$1" = portable-wheel ] || build
}

package() { # deb|wheel|sdist|image|portable-wheel
    local made=target/package plain=target/package/plain daemon=target/release/netdynod built
    case $1 in
    sdist)
        built=$(setuptools sdist "$plain")
        mv "$built" "$made"
        (cd "$made" && ../../.venv/bin/python ../../packaging/common.py .)
        echo "$made/${built##*/}"
        ;;
    wheel)
        built=$(setuptools wheel "$plain")
        .venv/bin/python packaging/wheel.py --daemon "$daemon" --wheel "$built" --into "$made"
        ;;
    portable-wheel)
        daemon=$(.venv/bin/python packaging/portable.py) || die 1 "the portable netdynod was not built: see above"
        built=$(setuptools wheel "$plain")
        .venv/bin/python packaging/wheel.py --portable --daemon "$daemon" --wheel "$built" --into "$made"
        ;;
    deb)
        built=$(setuptools wheel "$plain")
        .venv/bin/python packaging/deb.py --daemon "$daemon" --wheel "$built" --into "$made"
        ;;
    image) image "$(package deb)" ;;
    *) die 104 "no package is called '$1'; there are: deb, wheel, sdist, image" ;;
    esac
}

image() { # DEB -- an OCI image with it, by podman or buildah
    local builder
    builder=$(command -v podman || command -v buildah) ||
        die 92 "an image is built by podman or buildah: apt install podman"
    "$builder" build --file packaging/Containerfile --build-arg "DEB=${1##*/}" --tag netdyno "${1%/*}"
}

# ---------------------------------------------------------------------------- for another distribution

declare -A ARCHIVE=([bookworm]=debian [trixie]=debian [noble]=ubuntu)
# The keys of Ubuntu's archive, which Debian does not have: the package that has them, and its checksum in noble's own list.
UBUNTU_KEYS=pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb
UBUNTU_KEYS_SHA256=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8

distribution() { # RELEASE FOLDER -- an empty root of it
    local release=$1 folder=$2 keys log made=$2.part
    local words=(--variant=minbase)
    install debootstrap/debootstrap
    root rm -rf --one-file-system "$made"
    mkdir -p "${folder%/*}"
    case ${ARCHIVE[$release]} in
    debian) words+=("$release" "$made" http://deb.debian.org/debian) ;;
    ubuntu)
        keys=${folder%/*}/keys
        curl -fsSL -o "$keys.deb" "http://archive.ubuntu.com/ubuntu/$UBUNTU_KEYS" ||
            die 92 "the keys of Ubuntu's archive could not be downloaded; check the network"
        sha256sum --quiet --check <<<"$UBUNTU_KEYS_SHA256  $keys.deb" || die 92 "$keys.deb is not what Ubuntu published"
        dpkg-deb -x "$keys.deb" "$keys"
        # the script by which debootstrap makes every Ubuntu since; it knows only those before it by name
        words+=("--components=main,universe" "--keyring=$keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
            "$release" "$made" http://archive.ubuntu.com/ubuntu /usr/share/debootstrap/scripts/gutsy)
        ;;
    esac
    say "making a root of $release (debootstrap; minutes)"
    log=$folder.log
    root debootstrap "${words[@]}" >"$log" 2>&1 || die 92 "debootstrap failed: $(tail -n1 "$log"); the whole log is $log"
    # certificates of authorities that this machine trusts by its administrator's choice
    root mkdir -p "$made/usr/local/share/ca-certificates"
    find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$made/usr/local/share/ca-certificates/" \; 2>/dev/null || true
    printf '#!/bin/sh\nexit 101\n' | root tee "$made/usr/sbin/policy-rc.d" >/dev/null
    root chmod 755 "$made/usr/sbin/policy-rc.d"
    root mv "$made" "$folder"
}

# The same verb in a root of the distribution, where this checkout is /netdyno, with a `target` and a `.venv` of that distribution.
# The compiler is this machine's: it needs no library newer than those.
package_for() { # RELEASE KIND
    local release=$1 kind=$2 folder=target/package/for/$1 binds=() chosen=() portable='' name
    [ "$kind" != portable-wheel ] || portable=--portable
    [ -n "${ARCHIVE[$release]:-}" ] || die 104 "packages are made for: ${!ARCHIVE[*]}; not for '$release'"
    rust
    [ -d "$folder/root" ] || distribution "$release" "$PWD/$folder/root"
    folder=$(realpath "$folder")
    mkdir -p "$folder"/{target,venv} .venv "$HOME/.cargo" "$HOME/.rustup"
    root mkdir -p "$folder/root/netdyno" "$folder/root/root/.cargo" "$folder/root/root/.rustup"
    root cp /etc/resolv.conf "$folder/root/etc/resolv.conf"
    binds=("$PWD" netdyno "$folder/target" netdyno/target "$folder/venv" netdyno/.venv
        "$HOME/.cargo" root/.cargo "$HOME/.rustup" root/.rustup /dev dev /proc proc)
    mapfile -t chosen < <(env | grep -E '^CARGO_(PROFILE_[A-Z_]+|BUILD_JOBS|INCREMENTAL)=')
    # shellcheck disable=SC2016 # it is for the inner shell
    root unshare --mount --propagation private sh -c '
        root=$1; shift
        while [ "$1" != -- ]; do mount --rbind "$1" "$root/$2" && shift 2 || exit 92; done
        shift
        exec chroot "$root" "$@"' sh "$folder/root" "${binds[@]}" -- \
        env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/root/.cargo/bin \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)" NETDYNO_PACKAGING=yes \
        ${RUSTUP_TOOLCHAIN:+"RUSTUP_TOOLCHAIN=$RUSTUP_TOOLCHAIN"} "${chosen[@]}" \
        /netdyno/do package "${kind##*-}" ${portable:+"$portable"} >&2
    mkdir -p "target/package/$release"
    for name in "$folder"/target/package/*; do
        [ ! -f "$name" ] || cp -f "$name" "target/package/$release/"
    done
    find "$PWD/target/package/$release" -name 'netdyno*' ! -name '*.json'
}
