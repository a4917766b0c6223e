# What ./do installs, and where it finds what is there: packages, Rust, Python. Sourced by ./do.
# shellcheck shell=bash disable=SC2034,SC2317

# package, or package/command: the command will do, wherever it comes from
BUILD=(build-essential pkg-config/pkg-config libdpdk-dev libclang-dev clang/clang libnuma-dev libpcap-dev
    git/git curl/curl ca-certificates)
RUN=(dpdk mosquitto/mosquitto mosquitto-clients/mosquitto_sub nginx/nginx iproute2/ip ethtool/ethtool
    iputils-ping/ping tshark/tshark iperf3/iperf3 apache2-utils/ab wrk/wrk dpdk-dev/dpdk-testpmd
    apache2/apache2 libcoap3-bin/coap-server-notls nfdump/nfcapd pmacct/nfacctd
    natpmpc/natpmpc kea-dhcp4-server/kea-dhcp4 udhcpc/udhcpc nftables/nft busybox/busybox
    kamailio/kamailio kamailio-sqlite-modules kamailio-postgres-modules kamailio-mysql-modules kamailio-tls-modules kamailio-websocket-modules
    postgresql mariadb-server/mariadbd knot/knotd ejabberd/ejabberdctl erlang-p1-sip openssl/openssl
    tcpdump/tcpdump libndpi-bin/ndpiReader openvswitch-switch openvswitch-switch-dpdk etcd-server/etcd
    baresip/baresip linphone-cli/linphonec sip-tester/sipp rtpengine-daemon/rtpengine haproxy/haproxy squid/squid openssh-client/ssh openssh-server/sshd prometheus/prometheus libbpf1)
[ "$(uname -m)" != x86_64 ] || RUN+=(qemu-system-x86/qemu-system-x86_64)
SERVICES=(mosquitto nginx apache2 nfdump kea-dhcp4-server nftables kamailio postgresql mariadb-server/mariadb
    knot ejabberd rtpengine-daemon openvswitch-switch etcd-server/etcd haproxy squid openssh-server/ssh openssh-server/ssh.socket prometheus) # package, or package/service: those of the above whose services would start by themselves

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
    local need=() services=() package entry log
    have apt-get || die 92 "no apt-get here: install the equivalents of: ${*%%/*}"
    mapfile -t need < <(missing "$@")
    [ ${#need[@]} -gt 0 ] || return 0
    apt_update
    say "installing ${need[*]}"
    for package in "${need[@]}"; do
        known "$package" || die 92 "the package $package is not to be had here; check the network and /etc/apt"
        for entry in "${SERVICES[@]}"; do
            [ "${entry%%/*}" != "$package" ] || services+=("${entry##*/}")
        done
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
        # Debian 13 packs modules below usr/lib, to which /lib leads
        [ -e target/vm/lib ] || ln -s usr/lib target/vm/lib
        for release in target/vm/lib/modules/*; do busybox depmod -b target/vm "${release##*/}"; done
    fi
    rm -rf "$folder"
    compgen -G 'target/vm/lib/modules/*/modules.dep' >/dev/null
}

# OpenDaylight with its OpenFlow plugin and RESTCONF from Maven Central, for `--controller opendaylight`.
opendaylight() {
    install default-jre-headless/java maven/mvn
    say "assembling OpenDaylight in target/opendaylight (0.4 GB in Maven's repository; minutes, the first time)"
    rm -rf target/opendaylight
    mkdir -p target/opendaylight
    # it is built beside its description
    cp packaging/opendaylight/pom.xml target/opendaylight/
    mvn --batch-mode --quiet --file target/opendaylight/pom.xml package ||
        die 92 "OpenDaylight cannot be assembled; Maven's words are above"
    [ -x target/opendaylight/target/assembly/bin/karaf ] || die 92 "Maven left no target/opendaylight/target/assembly/bin/karaf"
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

# mold links the tests' programs in a small part of the time that other linkers take; what is built does not change.
cargo() {
    if have mold; then command mold -run cargo "$@"; else command cargo "$@"; fi
}

# What is tested is built with the features that the tests give its libraries: else all would be compiled twice.
# What Rust tests are built of: cargo builds no examples then, nor the C++ of the fuzz targets. Clippy looks at both.
TESTED=(--workspace --exclude fuzz)

build() { # [release|debug]
    local kind=${1:-release} quiet=(--quiet) what=(build --release -p netdynod)
    if [ -t 2 ]; then quiet=(); fi
    if [ "$kind" = debug ]; then what=(test "${TESTED[@]}" --no-run --test daemon); fi
    [ -x "target/$kind/netdynod" ] || say "building netdynod (minutes, the first time)"
    cargo "${what[@]}" --locked "${quiet[@]}" ||
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

python_with_venv() { # the same, installed where there is none
    python || {
        install python3-venv >&2
        python || die 92 "Python 3.11 or newer is needed"
    }
}

MKDOCS=target/tools/docs/bin/mkdocs
site_builder() { # MkDocs and its theme, for ./do docs alone
    local folder=${MKDOCS%/bin/*} program
    ! "$MKDOCS" --version >/dev/null 2>&1 || return 0
    program=$(python_with_venv)
    say "installing mkdocs-material into $folder"
    mkdir -p "${folder%/*}"
    "$program" -m venv --clear "$folder"
    "$folder/bin/python" -m pip install --quiet 'mkdocs-material>=9.5,<10' </dev/null ||
        die 92 "mkdocs-material could not be installed; check the network"
}

environment() {
    local stamp program wanted='python[dev]'
    # in a root that `./do package --for` made, nothing is developed
    [ -z "${NETDYNO_PACKAGING:-}" ] || wanted=python
    stamp=$(cat python/pyproject.toml <(echo "$PWD${NETDYNO_PACKAGING:+ $wanted}") | sha256sum)
    if [ -x .venv/bin/python ] && [ "$(cat .venv/.stamp 2>/dev/null)" = "$stamp" ] &&
        .venv/bin/python -c 'import netdyno' 2>/dev/null; then
        return
    fi
    program=$(python_with_venv)
    say "making .venv with $("$program" --version)"
    rm -f .venv/.stamp
    "$program" -m venv --clear .venv
    .venv/bin/python -m pip install --quiet setuptools --editable "$wanted" </dev/null ||
        die 92 "the Python packages could not be installed; check the network"
    .venv/bin/python -m compileall -q python/netdyno
    env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c 'from netdyno.report import render; render.compile_templates()'
    echo "$stamp" >.venv/.stamp
}
