#!/usr/bin/env bash
# Every job of this repository is a verb here. `./do help` lists them.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"

RUST=1.95.0 # installed where no new enough Rust is present; clippy's warnings are errors with this one
export PATH="$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# A CPU without what .cargo/config.toml builds for gets the least that DPDK runs on.
for flag in avx avx2 bmi1 bmi2 f16c fma abm movbe; do
    [ "$(uname -m)" != x86_64 ] || grep -qw "$flag" /proc/cpuinfo ||
        export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-cpu=x86-64-v2"
done

say() { printf '• %s\n' "$*"; }
die() { # CODE WHAT
    printf 'error: %s\n' "$2" >&2
    exit "$1"
}
have() { command -v "$1" >/dev/null 2>&1; }

root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die 92 "this needs root: run it as root, or install sudo"
    fi
}

# What root runs in a checkout of somebody else's leaves no files of root's there.
TRACELESS=(GIT_OPTIONAL_LOCKS=0 PYTHONDONTWRITEBYTECODE=1)

# Under `sudo ./do`, the user's toolchain is used, and what was made is the user's in the end.
if [ "$(id -u)" = 0 ] && [ -n "${SUDO_UID:-}" ] && [ "$(stat -c %u .)" = "${SUDO_UID:-}" ] && [ "$SUDO_UID" != 0 ]; then
    HOME=$(getent passwd "$SUDO_UID" | cut -d: -f6)
    export HOME PATH="$PATH:$HOME/.cargo/bin" PIP_NO_CACHE_DIR=1 "${TRACELESS[@]}"
    give_back() {
        local made=()
        for path in target .venv runs python "$HOME/.cargo" "$HOME/.rustup"; do
            [ -e "$path" ] && made+=("$path")
        done
        [ ${#made[@]} = 0 ] || find "${made[@]}" -xdev -uid 0 -exec chown -h "$SUDO_UID:${SUDO_GID:-}" {} +
    }
fi

at_exit() {
    [ -z "$AHEAD" ] || kill -- "-$AHEAD" 2>/dev/null || true
    if declare -F give_back >/dev/null; then give_back; fi
}
AHEAD=
trap at_exit EXIT

# shellcheck source=tools/install.sh
. tools/install.sh
# shellcheck source=tools/test.sh
. tools/test.sh
# shellcheck source=tools/package.sh
. tools/package.sh

# ------------------------------------------------------------------------------------------ verbs

setup() { # [release|debug [COMMAND]] -- the daemon's build, and what to begin as soon as that is there
    local kind=${1:-release}
    install "${BUILD[@]}" "${RUN[@]}"
    ! known mold || install mold/mold
    rust
    environment &
    local environment=$!
    virtual_machines
    build "$kind"
    "${@:2}"
    wait "$environment"
}

verb_setup() { # [opendaylight] -- install what is missing, build netdynod, make .venv; or assemble OpenDaylight alone
    case ${1:-} in
    '') setup ;;
    opendaylight) opendaylight ;;
    *) die 104 "there is no set-up of '$1'; there is: opendaylight" ;;
    esac
    say "ready: .venv/bin/netdyno --help"
}

verb_demo() { # [ARGS] -- load a real broker and a real web server; ARGS go to netdyno demo
    setup
    local status=0
    if [ "$(id -u)" = 0 ]; then
        .venv/bin/netdyno demo "$@" || status=$?
    else
        root env "${TRACELESS[@]}" "NETDYNO_RUNS=${NETDYNO_RUNS:-$PWD/runs}" .venv/bin/netdyno demo "$@" || status=$?
        [ ! -d runs ] || root chown -hR "$(id -u):$(id -g)" runs
    fi
    return "$status"
}

browser() { # what the browser tests need
    have chromedriver && { have chromium || have chromium-browser || have google-chrome; } && return
    if grep -qx 'ID=debian' /etc/os-release; then
        install chromium chromium-driver fonts-noto-cjk
    else # on Ubuntu they are snaps
        say "no chromium and chromedriver in PATH: the browser tests will be skipped"
    fi
}

# Most tests wait, and compilers want processors: what lint and rust compile is compiled beside the other stages, by a session
# that gets what they leave of the processors. It only fills the caches of cargo and mypy: what is good, the stages say.
verb_ahead() {
    # nice values count within a session, and this one among sessions, where the kernel groups by them
    { echo 19 >/proc/self/autogroup; } 2>/dev/null || true
    cargo clippy --version >/dev/null 2>&1 && clippy
    cargo test "${TESTED[@]}" --lib --bins --tests --locked --no-run
    [ ! -e .venv/.stamp ] || mypy
}

#: test quick -- what needs neither root nor a network, within five minutes
#: test full -- all of it: what other runs draw a sample of, and long simulations; before a release
#: test --stress NAME [TIMES] -- the tests that match NAME, or all, 20 times in a row while a busy loop holds every core
verb_test() { # [lint|rust|python|e2e|web] -- lint, and tests of which the long ones are a sample; or one kind
    local start=$SECONDS only=${1:-}
    if [ "$only" = --stress ]; then
        shift
        stress "$@"
        return
    fi
    [ $# -le 1 ] || die 104 "./do test takes one word: quick, full, lint, rust, python, e2e or web"
    case $only in '' | quick | full | lint | rust | python | e2e | web) ;; *) die 104 "no tests are called '$only'; there are: quick, full, lint, rust, python, e2e, web" ;; esac
    if [ "$only" = full ]; then
        export NETDYNO_TESTS=full
        only=
    fi
    if [ "$only" = quick ]; then test_quick "$start"; else test_all "$only" "$start"; fi
    say "took $((SECONDS - start)) s: $(printf '%s, ' "${TIMES[@]}" | sed 's/, $//')"
    if [ ${#BROKEN[@]} -gt 0 ]; then say "failed: ${BROKEN[*]} (target/do/*.log)"; fi
    # only when it is the whole truth: a stage that broke without a failed test says it above
    if [ "$((PASSED + FAILED))" -gt 0 ] && { [ ${#BROKEN[@]} = 0 ] || [ "$FAILED" -gt 0 ]; }; then
        echo "$PASSED passed, $FAILED failed, $SKIPPED skipped, $INCONCLUSIVE inconclusive"
    fi
    [ ${#BROKEN[@]} = 0 ] && [ "$FAILED" = 0 ]
}

verb_lint() { # -- formats, clippy, ruff, mypy, shellcheck, and generated files that are out of date
    local bad=0
    if [ -z "${TIMES[*]:-}" ]; then setup; fi
    install shellcheck/shellcheck
    check() {
        local start=$SECONDS
        if "$@"; then say "$1 $2: good ($((SECONDS - start)) s)"; else
            bad=1
            say "$1 $2: NOT good"
        fi
    }
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
        rustup component add clippy rustfmt || die 92 "clippy and rustfmt are needed: rustup component add clippy rustfmt"
    check cargo fmt --all --check
    check clippy workspace
    check ruff check
    check ruff format --check
    check mypy python
    check shellcheck -x ./do .ci/run tools/*.sh
    check imports downwards
    check generated files
    return "$bad"
}
clippy() {
    # newer compilers know new warnings: they are shown, and do not fail
    local deny=()
    if [[ $(rustc --version) == "rustc $RUST "* ]]; then deny=(-- -D warnings); fi
    # fuzz targets are looked at with the rest and not linked: libFuzzer's C++ need not be compiled
    CUSTOM_LIBFUZZER_PATH=/not/linked/libfuzzer.a cargo clippy --quiet --workspace --all-targets --locked "${deny[@]}"
}
ruff() { # one set of rules, from python/pyproject.toml, for all Python
    local folder scripts=()
    for folder in tools tests benches examples packaging; do [ ! -d "$folder" ] || scripts+=("$folder"); done
    .venv/bin/ruff "$@" --quiet python && .venv/bin/ruff "$@" --quiet --config python/pyproject.toml \
        --config 'src = ["python"]' "${scripts[@]}"
}
mypy() { (cd python && ../.venv/bin/mypy --strict netdyno); }
imports() { # crates and packages depend downwards, and no files import in a circle
    .venv/bin/python tools/imports.py && .venv/bin/python tools/python_imports.py
}
generated() { .venv/bin/python tools/reference.py --check; }

verb_fmt() { # -- format everything
    setup
    cargo fmt --all
    ruff check --fix || true
    ruff format
}

verb_new_model() { # NAME -- create a protocol model to start from: compiles, is registered, has tests
    [ $# = 1 ] || die 104 "./do new-model takes one word, the name of the model"
    setup
    .venv/bin/python tools/new_model.py "$1"
}

verb_schema() { # -- write schema/ and the generated pages of docs/reference
    setup
    .venv/bin/python tools/reference.py
}

verb_bench() { # [CASE] [--json FILE] -- measure against peers, interleaved; see benches/README.md
    install golang-go/go
    setup
    if [ "$(id -u)" = 0 ]; then
        .venv/bin/python benches/run.py "$@"
    else
        root env "PATH=$PATH" "${TRACELESS[@]}" .venv/bin/python benches/run.py "$@"
    fi
}

#: package wheel --portable -- a wheel for any distribution: its daemon has DPDK built in and needs only glibc
#: package [deb|wheel] --for trixie|noble|bookworm -- the same in a root of that distribution, which debootstrap makes
verb_package() { # [deb|wheel|sdist|image] -- build a package for this distribution, into target/package
    local kind=deb release='' portable='' usage="./do package takes one of deb, wheel, sdist and image, --portable and --for DISTRIBUTION"
    while [ $# -gt 0 ]; do
        case $1 in
        --for) [ $# -gt 1 ] || die 104 "$usage" && release=$2 && shift 2 ;;
        --portable) portable=yes && shift ;;
        deb | wheel | sdist | image) kind=$1 && shift ;;
        -h | --help) verb_help | grep '^  package' && return ;;
        *) die 104 "$usage, not '$1'" ;;
        esac
    done
    if [ -n "$portable" ]; then
        [ "$kind" = wheel ] || die 104 "--portable goes with wheel, not with $kind"
        kind="portable-wheel"
    fi
    if [ -n "$release" ]; then
        case $kind in deb | wheel | portable-wheel) ;; *) die 104 "--for goes with deb and wheel, not with $kind" ;; esac
        package_for "$release" "$kind"
        return
    fi
    if [ "$kind" = sdist ]; then environment; else package_tools "$kind"; fi
    package "$kind"
}

verb_docs() { # -- build the site of the documentation into target/docs/site, and follow its links
    local program
    site_builder
    program=$(python_with_venv)
    "$program" tools/docs.py target/docs || die 1 "links of the pages lead nowhere: see above"
    NO_MKDOCS_2_WARNING=1 "$MKDOCS" build --strict --quiet --config-file target/docs/mkdocs.yml ||
        die 1 "the site was not built: see above"
    "$program" tools/docs.py --check target/docs/site || die 1 "links of the site lead nowhere: see above"
    say "site: target/docs/site/index.html"
}

verb_fuzz() { # [TARGET] [SECONDS] -- fuzz one target, or each, for SECONDS (30)
    local target=${1:-} seconds=${2:-30} fuzz
    if [[ $target =~ ^[0-9]+$ ]]; then seconds=$target target=; fi
    [[ $seconds =~ ^[0-9]+$ ]] || die 104 "SECONDS is a whole number, not '$seconds'"
    [ -d fuzz ] || die 104 "there are no fuzz targets"
    install "${BUILD[@]}"
    rust
    export CARGO_PROFILE_RELEASE_LTO=off # it is for the speed of the product, and takes long to build
    if ! cargo fuzz --version >/dev/null 2>&1; then
        export PATH="$PWD/target/tools/bin:$PATH"
        if ! cargo fuzz --version >/dev/null 2>&1; then
            say "installing cargo-fuzz into target/tools"
            cargo install --quiet --locked --root target/tools cargo-fuzz || die 92 "cargo-fuzz could not be installed"
        fi
    fi
    if have rustup && [[ $(rustup toolchain list) == *nightly* ]]; then
        fuzz=(command cargo +nightly fuzz)
    else # the sanitizer flags are nightly's; this compiler takes them when told that it may
        fuzz=(env RUSTC_BOOTSTRAP=1 cargo fuzz)
    fi
    local targets=("$target")
    [ -n "$target" ] || mapfile -t targets < <("${fuzz[@]}" list)
    for target in "${targets[@]}"; do
        say "fuzzing $target for $seconds s"
        mkdir -p "fuzz/corpus/$target"
        local corpus=("fuzz/corpus/$target")
        [ ! -d "fuzz/seeds/$target" ] || corpus+=("fuzz/seeds/$target")
        "${fuzz[@]}" run "$target" "${corpus[@]}" -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
            -print_final_stats=1
    done
}

verb_help() { # -- this
    echo "./do VERB"
    sed -nE 's/^verb_([a-z_]+)\(\) \{ # *(.*) ?-- (.*)/\1 \2\x1f\3/p; s/^#: (.*) -- (.*)/\1\x1f\2/p' ./do |
        while IFS=$'\x1f' read -r usage what; do printf '  %-32s %s\n' "${usage//_/-}" "$what"; done
}

verb=${1:-help}
[ $# = 0 ] || shift
case $verb in -h | --help) verb=help ;; esac
called=verb_${verb//-/_}
declare -F "$called" >/dev/null || die 104 "no verb '$verb'; see ./do help"
"$called" "$@"
