# How ./do package makes packages. Sourced by ./do.
# shellcheck shell=bash

# The Python application as a wheel, with the presets that a source tree only links to.
wheel() { # FOLDER -- prints the file
    local folder log python=$PWD/.venv/bin/python
    mkdir -p "$1"
    folder=$(realpath "$1") log=$folder/wheel.log
    rm -rf "$folder"/netdyno-*.whl python/build
    (
        cd python
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
        export SOURCE_DATE_EPOCH
        "$python" -c 'import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])' "$folder"
    ) >"$log" 2>&1 || die 1 "the wheel was not built: $(tail -1 "$log")"
    rm -rf python/build "$log"
    ls "$folder"/netdyno-*.whl
}

package() { # [deb|wheel]
    local made=target/package built
    case ${1:-deb} in
    wheel) wheel "$made" ;;
    deb)
        have dpkg-shlibdeps || install dpkg-dev/dpkg-shlibdeps
        built=$(wheel "$made")
        .venv/bin/python packaging/deb.py --daemon target/release/netdynod --wheel "$built" --into "$made"
        ;;
    *) die 104 "no package is called '$1'; there are: deb, wheel" ;;
    esac
}
