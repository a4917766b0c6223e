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

# package, or package/command: the command will do, wherever it comes from
BUILD=(build-essential pkg-config/pkg-config libdpdk-dev libclang-dev clang/clang libnuma-dev libpcap-dev
    git/git curl/curl ca-certificates)
RUN=(dpdk mosquitto/mosquitto mosquitto-clients/mosquitto_sub nginx/nginx iproute2/ip ethtool/ethtool
    iputils-ping/ping tshark/tshark iperf3/iperf3 apache2-utils/ab wrk/wrk dpdk-dev/dpdk-testpmd
    libcoap3-bin/coap-server-notls nfdump/nfcapd pmacct/nfacctd
    natpmpc/natpmpc kea-dhcp4-server/kea-dhcp4 udhcpc/udhcpc nftables/nft busybox/busybox)
[ "$(uname -m)" != x86_64 ] || RUN+=(qemu-system-x86/qemu-system-x86_64)
SERVICES=(mosquitto nginx nfdump kea-dhcp4-server nftables) # packages of the above whose services would start by themselves

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

# ---------------------------------------------------------------------------------------- packages

missing() { # PACKAGE[/COMMAND]... → the packages that are not there, one a line
    local entry installed
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${@%%/*}" 2>/dev/null |
        sed -n 's/ installed$//p' || true)
    for entry in "$@"; do
        grep -qxF "${entry%%/*}" <<<"$installed" && continue
        [ "${entry##*/}" != "$entry" ] && have "${entry##*/}" && continue
        echo "${entry%%/*}"
    done
}

UPDATED=
apt_update() {
    [ -z "$UPDATED" ] || return 0
    UPDATED=yes
    say "reading the package lists"
    root apt-get -qq -o DPkg::Lock::Timeout=300 update >/dev/null ||
        say "the package lists could not be read; going on with the old ones"
}

known() { # is there such a package to install?
    [[ $(apt-cache policy "$1" 2>/dev/null) == *'Candidate: '[^\(]* ]]
}

install() { # PACKAGE[/COMMAND]... : installs what is missing and starts no service
    local need=() services=() package log
    have apt-get || die 92 "no apt-get here: install the equivalents of: ${*%%/*}"
    mapfile -t need < <(missing "$@")
    [ ${#need[@]} -gt 0 ] || return 0
    apt_update
    say "installing ${need[*]}"
    for package in "${need[@]}"; do
        known "$package" || die 92 "the package $package is not to be had here; check the network and /etc/apt"
        [[ " ${SERVICES[*]} " != *" $package "* ]] || services+=("$package")
    done
    [ ${#services[@]} = 0 ] || hold_services "${services[@]}"
    log=$(mktemp)
    if ! root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get -y -qq -o DPkg::Lock::Timeout=300 \
        install --no-install-recommends --no-remove "${need[@]}" >"$log" 2>&1 </dev/null; then
        tail -n 15 "$log" >&2
        [ ${#services[@]} = 0 ] || release_services "${services[@]}"
        die 92 "apt-get could not install them; the whole log is $log"
    fi
    rm -f "$log"
    [ ${#services[@]} = 0 ] || release_services "${services[@]}"
}

# A service that is newly installed for its program must not take the ports of this machine. A policy of our own
# (it ends with this process, whatever happens to it) denies the start; somebody else's policy is left as it is,
# and systemd holds the units down until the next boot at most. Services that were there before are not touched.
POLICY=/usr/sbin/policy-rc.d
MARK='netdyno: written by ./do while it installs; of no effect after'

hold_services() {
    if [ ! -e "$POLICY" ] || grep -qsF "$MARK" "$POLICY"; then
        root tee "$POLICY" >/dev/null <<-END
			#!/bin/sh
			# $MARK
			case " $* " in *" \${1%.service} "*) [ -d /proc/$$ ] && exit 101 ;; esac
			exit 0
		END
        root chmod 755 "$POLICY"
    elif [ -d /run/systemd/system ]; then
        root systemctl --quiet --runtime mask "${@/%/.service}" || true
    fi
}

release_services() {
    local name
    if grep -qsF "$MARK" "$POLICY"; then root rm -f "$POLICY"; fi
    for name in "$@"; do
        if have systemctl; then
            [ ! -d /run/systemd/system ] || root systemctl --quiet --runtime unmask "$name.service" || true
            root systemctl --quiet disable "$name.service" >/dev/null 2>&1 || true
            [ ! -d /run/systemd/system ] || root systemctl --quiet stop "$name.service" || true
        elif have update-rc.d; then
            root update-rc.d "$name" disable >/dev/null 2>&1 || true
        fi
        say "$name is installed for its program; its service stays off (systemctl enable --now $name turns it on)"
    done
}

virtual_machines() { # what they are made of beside QEMU, which is there on x86-64
    [ "$(uname -m)" = x86_64 ] || return 0
    # QEMU brought its own until version 8
    [ -x /usr/lib/qemu/virtiofsd ] || [ -x /usr/libexec/virtiofsd ] || ! known virtiofsd || install virtiofsd
    kernel || say "no kernel for virtual machines could be had: tune reproduce does without"
}

# A kernel that virtual machines boot, where this machine has none on its disk, as in a container: that of Debian's cloud
# images, put below target/vm and not installed.
kernel() {
    local release deb folder
    release=$(uname -r)
    if [ -e "/boot/vmlinuz-$release" ] && grep -qs virtiofs "/lib/modules/$release/modules".{dep,builtin}; then return; fi
    compgen -G 'target/vm/lib/modules/*/modules.dep' >/dev/null && return
    known linux-image-cloud-amd64 || apt_update
    deb=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n1)
    [ -n "$deb" ] || return 1
    say "getting $deb for virtual machines, not installing it"
    folder=$(mktemp -d)
    if (cd "$folder" && apt-get -qq download "$deb" 2>/dev/null) && rm -rf target/vm && mkdir -p target/vm &&
        dpkg-deb -x "$folder"/*.deb target/vm; then
        for release in target/vm/lib/modules/*; do busybox depmod -b target/vm "${release##*/}"; done
    fi
    rm -rf "$folder"
    compgen -G 'target/vm/lib/modules/*/modules.dep' >/dev/null
}

# ------------------------------------------------------------------------------------------- rust

at_least() { # HAVE WANT
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]
}

rust_fits() {
    local version
    version=$(RUSTUP_AUTO_INSTALL=0 rustc --version 2>/dev/null | cut -d' ' -f2) && [ -n "$version" ] && have cargo &&
        at_least "$version" "$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
}

rust() {
    rust_fits && return
    if ! have rustup; then
        known rustup || apt_update
        # beside the distribution's own rustc its rustup cannot be installed: leave that one alone
        if known rustup && [ -n "$(missing rustc)" ]; then
            install rustup
        fi
    fi
    if have rustup; then
        export RUSTUP_TOOLCHAIN=$RUST
        rust_fits && return
        say "installing Rust $RUST beside what is there (rustup)"
        rustup toolchain install "$RUST" --profile minimal --component clippy --component rustfmt --no-self-update ||
            die 92 "Rust $RUST could not be downloaded; check the network"
    else
        say "installing Rust $RUST (rustup's installer)"
        curl --proto '=https' --tlsv1.2 -fsSL https://sh.rustup.rs |
            RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y -q --no-modify-path --profile minimal \
                --component clippy --component rustfmt --default-toolchain "$RUST" ||
            die 92 "rustup could not be downloaded; check the network, or install Rust $RUST yourself"
        hash -r
    fi
    rust_fits || die 92 "Rust is installed but rustc does not run; see: rustup show"
}

build() {
    local quiet=(--quiet)
    if [ -t 2 ]; then quiet=(); fi
    [ -x target/release/netdynod ] || say "building netdynod (minutes, the first time)"
    cargo build --release --locked -p netdynod "${quiet[@]}" ||
        die 1 "netdynod does not build; the compiler's words are above"
}

# ----------------------------------------------------------------------------------------- python

python() { # the first Python that is new enough and can make environments
    local name
    for name in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

environment() {
    local stamp program
    stamp=$(cat python/pyproject.toml <(echo "$PWD") | sha256sum)
    if [ -x .venv/bin/python ] && [ "$(cat .venv/.stamp 2>/dev/null)" = "$stamp" ] &&
        .venv/bin/python -c 'import netdyno' 2>/dev/null; then
        return
    fi
    program=$(python) || {
        install python3-venv
        program=$(python) || die 92 "Python 3.11 or newer is needed"
    }
    say "making .venv with $("$program" --version)"
    rm -f .venv/.stamp
    "$program" -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --editable 'python[dev]' </dev/null ||
        die 92 "the Python packages could not be installed; check the network"
    .venv/bin/python -m compileall -q python/netdyno
    echo "$stamp" >.venv/.stamp
}

# ------------------------------------------------------------------------------------------ verbs

setup() { # [COMMAND] -- and what to begin as soon as there is a compiler
    install "${BUILD[@]}" "${RUN[@]}"
    rust
    environment &
    local environment=$!
    virtual_machines
    "$@"
    build
    wait "$environment"
}

verb_setup() { # -- install what is missing, build netdynod, make .venv
    setup
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

# Runs one stage, shows what it says, and counts what its test runners counted.
PASSED=0 FAILED=0 SKIPPED=0 INCONCLUSIVE=0 BROKEN=() TIMES=()
stage() { # NAME COMMAND...
    local name=$1 log=target/do/$1.log start=$SECONDS status=0 passed failed skipped inconclusive
    shift
    mkdir -p target/do
    say "$name"
    "$@" </dev/null 2>&1 | tee "$log" || status=$?
    # Rust knows no other end of a test than passed and failed: what was skipped is among the passed, and says so itself
    skipped=$(said "$log" SKIPPED | wc -l) inconclusive=$(said "$log" INCONCLUSIVE | wc -l)
    passed=$(($(count "$log" passed) - skipped - inconclusive))
    skipped=$((skipped + $(count "$log" skipped))) inconclusive=$((inconclusive + $(count "$log" inconclusive)))
    failed=$(($(count "$log" failed) + $(count "$log" 'errors?')))
    bounded "$log" "$((passed + failed + inconclusive))" "$inconclusive" && needed "$log" || status=1
    [ "$status" = 0 ] || BROKEN+=("$name")
    PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed))
    SKIPPED=$((SKIPPED + skipped)) INCONCLUSIVE=$((INCONCLUSIVE + inconclusive))
    TIMES+=("$name $((SECONDS - start)) s")
}

count() { # LOG WORD -- cargo: `test result: ok. 3 passed; 0 failed;…`; pytest: `1 failed, 3 passed in 2s`
    awk -v word="^($2)[,;]?\$" '
        /^test result: |^(=+ )?[0-9]+ [a-z]+(, [0-9]+ [a-z]+)* in [0-9.]+s/ {
            for (i = 1; i < NF; i++) if ($(i + 1) ~ word) n += $i
        }
        END {print n + 0}' "$1"
}

said() { # LOG SKIPPED|INCONCLUSIVE -- what Rust tests say of themselves (crates/outcome): `RUST SKIPPED: NAME: REASON`
    grep -oE "RUST $2: .*" "$1" || true
}

# An inconclusive test could not measure, for a cause that was measured. That is not let become a habit: at most one test
# of ten in a stage, and no test in three runs of its stage one after the other.
bounded() { # LOG RAN INCONCLUSIVE
    local streaks=${1%.log}.inconclusive new often
    new=$(mktemp)
    grep -oE 'INCONCLUSIVE: [^ ]+' "$1" | sed 's/.*: //; s/:$//' | sort -u |
        awk -v old="$streaks" 'BEGIN {while ((getline < old) > 0) n[$2] = $1} {print n[$1] + 1, $1}' >"$new" || true
    mv "$new" "$streaks"
    often=$(awk '$1 >= 3 {print $2}' "$streaks")
    [ "$3" = 0 ] || say "$3 of $2 inconclusive: the machine took their time away"
    [ -z "$often" ] || say "inconclusive three times in a row, which counts as failed: ${often//$'\n'/ }"
    [ $(($3 * 10)) -le "$2" ] || say "more than one of ten is inconclusive: repeat on a quieter machine"
    [ -z "$often" ] && [ $(($3 * 10)) -le "$2" ]
}

# What ./do setup installs and builds, and what root may do, is there: who skips a test for the want of it is wrong.
needed() { # LOG
    local reasons='is not installed|is not built|could not import' skipped
    if [ "$(id -u)" = 0 ] && unshare -n true 2>/dev/null; then reasons+='|needs? root|CAP_NET_RAW'; fi
    # ./do setup gets a kernel for virtual machines, where the distribution has one
    [ -z "${CI:-}" ] || reasons+='|no kernel to boot'
    [ -z "$QUICK" ] || return 0
    skipped=$(grep -E 'SKIPPED(:| \[)' "$1" | grep -E "$reasons" || true)
    [ -z "$skipped" ] || say "skipped without need: $skipped"
    [ -z "$skipped" ]
}

pytests() { # ARGS -- as root where that is possible: network namespaces need it. Why tests are skipped is shown.
    local status=0 cache
    cache=$(mktemp -d)
    as_tester .venv/bin/python -m pytest -rs --durations=20 --durations-min=5 -o "cache_dir=$cache" "$@" || status=$?
    rm -rf "$cache" 2>/dev/null || root rm -rf "$cache"
    return "$status"
}

as_tester() { # PROGRAM ARGS
    local program=$PWD/$1
    shift
    if [ "$(id -u)" != 0 ] && have sudo && sudo -n true 2>/dev/null; then
        sudo env PATH="$PATH" "${TRACELESS[@]}" "$program" "$@"
    else
        "$program" "$@"
    fi
}
rust_programs() { # FILE -- compile the Rust tests; their programs are listed in FILE
    mkdir -p "${1%/*}"
    cargo test --workspace --locked --no-run --quiet --message-format json-render-diagnostics >"$1"
}
test_rust() {
    local programs=target/do/rust-tests.json
    rust_programs "$programs" && .venv/bin/python tools/rust_tests.py "$programs"
}

# Most tests wait, and compilers want processors: what lint and rust compile is compiled beside the other stages, by a session
# that gets what they leave of the processors. It only fills the caches of cargo and mypy: what is good, the stages say.
verb_ahead() {
    # nice values count within a session, and this one among sessions, where the kernel groups by them
    { echo 19 >/proc/self/autogroup; } 2>/dev/null || true
    cargo clippy --version >/dev/null 2>&1 && clippy
    cargo test --workspace --locked --no-run
    [ ! -e .venv/.stamp ] || mypy
}
ahead() {
    mkdir -p target/do
    setsid nice -n 19 ./do ahead >target/do/ahead.log 2>&1 </dev/null &
    AHEAD=$!
}
ahead_is_done() {
    # now that it is waited for it is as good as others
    [ -z "$AHEAD" ] || { echo 0 >"/proc/$AHEAD/autogroup"; } 2>/dev/null || true
    [ -z "$AHEAD" ] || tail --pid="$AHEAD" -f /dev/null # a stage is no parent of it, and cannot wait
    AHEAD=
}

# most tests wait for something, so more of them than there are cores run beside each other
test_python() { pytests -c python/pyproject.toml --rootdir python -n 6 "$@"; }
test_e2e() {
    local status=0 e2e=(-c python/pyproject.toml --rootdir . tests)
    pytests "${e2e[@]}" -m 'not alone' -n 6 || status=$?
    ahead_is_done
    say "those that depend on how fast the machine is"
    pytests "${e2e[@]}" -m alone || status=$?
    return "$status"
}

# Neither root, nor a network other than loopback, nor packages beyond those that building takes. Left out are network
# namespaces, DPDK ports on interfaces of the kernel, real servers, browsers, and what takes minutes.
QUICK=
quick_python() { .venv/bin/python -m pytest -rs -c python/pyproject.toml --rootdir python -n 4 \
    -m 'not root and not browser and not slow and not long' python/tests; }
# --bins takes fuzz targets too, which are no tests and include modules without what those are tested with
quick_rust() { NETDYNO_TESTS=quick cargo test --workspace --exclude fuzz --locked --no-fail-fast --lib --bins; }
test_quick() {
    QUICK=yes
    install "${BUILD[@]}"
    rust
    environment
    TIMES+=("setup $((SECONDS - $1)) s")
    stage quick-python quick_python
    stage quick-rust quick_rust
}

#: test quick -- what needs neither root nor a network, within five minutes
#: test --stress NAME [TIMES] -- the tests that match NAME, or all, 20 times in a row while a busy loop holds every core
stress() { # NAME [TIMES]
    local name=${1:-} times=${2:-20} programs=()
    if [ -z "$name" ] || [ $# -gt 2 ]; then
        die 104 "./do test --stress takes the name of tests, and how many times (20)"
    fi
    [[ $times =~ ^[1-9][0-9]*$ ]] || die 104 "TIMES is a whole number from 1 on, not '$times'"
    setup
    if [ "$name" = all ] || grep -rqE "fn [a-z0-9_]*${name##*::}" crates --include='*.rs'; then
        programs=(target/do/rust-tests.json)
        rust_programs "${programs[0]}" ||
            die 1 "the tests do not compile; the compiler's words are above"
    fi
    set -- tools/stress.py "$name" "$times" "${programs[@]}"
    if [ "$(id -u)" != 0 ] && have sudo && sudo -n true 2>/dev/null; then set -- "$@" --end-with-parent; fi
    as_tester .venv/bin/python "$@"
}

verb_test() { # [lint|rust|python|e2e|web] -- lint and every test; or only one kind
    local start=$SECONDS only=${1:-}
    if [ "$only" = --stress ]; then
        shift
        stress "$@"
        return
    fi
    [ $# -le 1 ] || die 104 "./do test takes one word: quick, lint, rust, python, e2e or web"
    case $only in '' | quick | lint | rust | python | e2e | web) ;; *) die 104 "no tests are called '$only'; there are: quick, lint, rust, python, e2e, web" ;; esac
    if [ "$only" = quick ]; then test_quick "$start"; else test_all "$only" "$start"; fi
    say "took $((SECONDS - start)) s: $(printf '%s, ' "${TIMES[@]}" | sed 's/, $//')"
    if [ ${#BROKEN[@]} -gt 0 ]; then say "failed: ${BROKEN[*]} (target/do/*.log)"; fi
    # only when it is the whole truth: a stage that broke without a failed test says it above
    if [ "$((PASSED + FAILED))" -gt 0 ] && { [ ${#BROKEN[@]} = 0 ] || [ "$FAILED" -gt 0 ]; }; then
        echo "$PASSED passed, $FAILED failed, $SKIPPED skipped, $INCONCLUSIVE inconclusive"
    fi
    [ ${#BROKEN[@]} = 0 ] && [ "$FAILED" = 0 ]
}
test_all() { # ONLY START
    local only=$1
    case $only in '') setup ahead ;; *) setup ;; esac
    TIMES+=("setup $((SECONDS - $2)) s")
    case $only in '' | python | e2e | web) browser ;; esac
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null ||
        say "neither root nor sudo without a password: tests that need network namespaces will be skipped"
    case $only in '' | python) stage python test_python python/tests ;; esac
    case $only in '' | e2e) [ ! -d tests ] || stage e2e test_e2e ;; esac
    ahead_is_done
    case $only in '' | lint) stage lint verb_lint ;; esac
    case $only in '' | rust) stage rust test_rust ;; esac
    case $only in web) stage web test_python python/tests/report ;; esac
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
    check shellcheck ./do .ci/run
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
    for folder in tools tests benches examples; do [ ! -d "$folder" ] || scripts+=("$folder"); done
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
        fuzz=(cargo +nightly fuzz)
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
    sed -nE 's/^verb_([a-z]+)\(\) \{ # *(.*) ?-- (.*)/\1 \2\x1f\3/p; s/^#: (.*) -- (.*)/\1\x1f\2/p' ./do |
        while IFS=$'\x1f' read -r usage what; do printf '  %-32s %s\n' "$usage" "$what"; done
}

verb=${1:-help}
[ $# = 0 ] || shift
case $verb in -h | --help) verb=help ;; esac
declare -F "verb_$verb" >/dev/null || die 104 "no verb '$verb'; see ./do help"
"verb_$verb" "$@"
