#!/bin/sh
# xdp_forwarder.sh [drop]: a function of a chain that forwards between `in` and `out` by XDP; `drop`: nothing from `out` to `in`
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
index() { ip -o link show dev "$1" | cut -d: -f1; }
attach() { # INTERFACE RESULT
    cat > "$folder/$1.c" <<C
static long (*redirect)(unsigned, unsigned long long) = (void *)23;
__attribute__((section("xdp"), used)) int forward(void *frame) { return $2; }
char terms[] __attribute__((section("license"), used)) = "GPL";
C
    clang -O2 -g -target bpf -c "$folder/$1.c" -o "$folder/$1.o"
    ip link set dev "$1" xdpgeneric obj "$folder/$1.o" sec xdp
}
attach in "redirect($(index out), 0)"
if [ "$1" = drop ]; then attach out 1; else attach out "redirect($(index in), 0)"; fi
trap 'rm -rf "$folder"; exit 0' TERM
while :; do
    sleep 1000 &
    wait $!
done
