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
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
        export SOURCE_DATE_EPOCH
        "$python" -c "import sys; from setuptools import build_meta; build_meta.build_$kind(sys.argv[1])" "$folder"
    ) >"$log" 2>&1 || die 1 "the $kind was not built: $(tail -1 "$log")"
    rm -rf python/build "$log"
    ls "$folder"/netdyno-*
}

package() { # deb|wheel|sdist|image
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
    deb)
        have dpkg-shlibdeps || install dpkg-dev/dpkg-shlibdeps
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
