# How ./do test runs its stages and counts what they say. Sourced by ./do.
# shellcheck shell=bash disable=SC2034,SC2317

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
        sudo env PATH="$PATH" NETDYNO_DAEMON="${NETDYNO_DAEMON:-}" "${TRACELESS[@]}" "$program" "$@"
    else
        "$program" "$@"
    fi
}
rust_programs() { # FILE -- compile the Rust tests; their programs are listed in FILE
    mkdir -p "${1%/*}"
    cargo test "${TESTED[@]}" --lib --bins --tests --locked --no-run --quiet --message-format json-render-diagnostics >"$1"
}
test_rust() {
    local programs=target/do/rust-tests.json
    rust_programs "$programs" && .venv/bin/python tools/rust_tests.py "$programs"
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
test_python() {
    local marks=()
    [ "${NETDYNO_TESTS:-}" != full ] || marks=(-m '') # what python/pyproject.toml leaves out: the long ones
    pytests -c python/pyproject.toml --rootdir python -n 6 "${marks[@]}" "$@"
}
test_e2e() {
    local status=0 e2e=(-c python/pyproject.toml --rootdir . tests)
    pytests "${e2e[@]}" -m 'not alone' -n 6 || status=$?
    ahead_is_done
    say "those that depend on how fast the machine is"
    pytests "${e2e[@]}" -m alone || status=$?
    return "$status"
}

# Logic alone: neither root, nor a network other than loopback, nor packages beyond those that building takes. Left out is
# what starts programs (netdynod, real servers, browsers), needs network namespaces or computes for seconds.
QUICK=
quick_python() { .venv/bin/python -m pytest -rs -c python/pyproject.toml --rootdir python -n 4 \
    -m 'not drawn and not daemon and not long' python/tests; }
quick_rust() { NETDYNO_TESTS=quick cargo test "${TESTED[@]}" --locked --no-fail-fast --lib --bins; }
test_quick() {
    QUICK=yes
    install "${BUILD[@]}"
    rust
    environment
    TIMES+=("setup $((SECONDS - $1)) s")
    stage quick-python quick_python
    stage quick-rust quick_rust
}

stress() { # NAME [TIMES]
    local name=${1:-} times=${2:-20} programs=()
    if [ -z "$name" ] || [ $# -gt 2 ]; then
        die 104 "./do test --stress takes the name of tests, and how many times (20)"
    fi
    [[ $times =~ ^[1-9][0-9]*$ ]] || die 104 "TIMES is a whole number from 1 on, not '$times'"
    setup debug
    tested_daemon
    if [ "$name" = all ] || grep -rqE "fn [a-z0-9_]*${name##*::}" crates --include='*.rs'; then
        programs=(target/do/rust-tests.json)
        rust_programs "${programs[0]}" ||
            die 1 "the tests do not compile; the compiler's words are above"
    fi
    set -- tools/stress.py "$name" "$times" "${programs[@]}"
    if [ "$(id -u)" != 0 ] && have sudo && sudo -n true 2>/dev/null; then set -- "$@" --end-with-parent; fi
    as_tester .venv/bin/python "$@"
}

# The Rust tests' build has a daemon too, with overflow checks: one build for all stages.
tested_daemon() { export NETDYNO_DAEMON=$PWD/target/debug/netdynod; }

test_all() { # ONLY START
    local only=$1
    case $only in '') setup debug ahead ;; *) setup debug ;; esac
    tested_daemon
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
