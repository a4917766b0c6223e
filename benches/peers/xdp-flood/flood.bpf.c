// What runs in the kernel: writes the frames of a load, takes them at one end and discards them at the other.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "load.h"

const volatile struct load load = {};
__u32 next;

struct frame {
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
	__u8 payload[18];
} __attribute__((packed));

static __always_inline __u16 checksum(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return bpf_htons(~sum);
}

SEC("xdp")
int flood(struct xdp_md *context)
{
	struct frame *frame = (void *)(long)context->data;
	if ((void *)(frame + 1) > (void *)(long)context->data_end)
		return XDP_ABORTED;

	__u32 flow = load.first + (load.random ? bpf_get_prandom_u32() : next++) % load.flows;
	__u32 source = FIRST_ADDRESS + flow / PORTS;
	__u16 port = FIRST_PORT + flow % PORTS;
	const __u16 datagram = sizeof(frame->udp) + sizeof(frame->payload);
	const __u16 packet = sizeof(frame->ip) + datagram;
	__u32 addresses = (source >> 16) + (source & 0xffff) + (REMOTE >> 16) + (REMOTE & 0xffff);

	// All of it each time: the kernel takes a frame again that it has translated.
	for (int i = 0; i < ETH_ALEN; i++) {
		frame->ethernet.h_dest[i] = load.to[i];
		frame->ethernet.h_source[i] = load.from[i];
	}
	frame->ethernet.h_proto = bpf_htons(ETH_P_IP);
	frame->ip = (struct iphdr){
		.version = 4, .ihl = 5, .tot_len = bpf_htons(packet), .ttl = 64, .protocol = IPPROTO_UDP,
		.saddr = bpf_htonl(source), .daddr = bpf_htonl(REMOTE),
	};
	frame->ip.check = checksum(0x4500 + packet + (64 << 8 | IPPROTO_UDP) + addresses);
	frame->udp = (struct udphdr){
		.source = bpf_htons(port), .dest = bpf_htons(REMOTE_PORT), .len = bpf_htons(datagram),
	};
	// The payload is zeros.
	frame->udp.check = checksum(addresses + IPPROTO_UDP + 2 * datagram + port + REMOTE_PORT);
	return load.interface ? bpf_redirect(load.interface, 0) : XDP_PASS;
}

SEC("xdp")
int take(struct xdp_md *context)
{
	return XDP_PASS;
}

SEC("tc")
int discard(struct __sk_buff *packet)
{
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
