/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What counters and looks at sockets do not tell of a network namespace: each dropped packet with the kernel's
 * reason and place, and connections that end sooner than somebody looks.
 *
 * Types hold the fields that are read; where they lie in the running kernel its BTF tells (CO-RE).
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))
#define FIELD(type, name) type *name
#define KIND(number) int(*type)[number]

static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*now)(void) = (void *)5;
static long (*copy)(void *to, u32 size, const void *from) = (void *)113;

enum { ARRAY = 2, HASH = 1, LRU_HASH = 9 };
enum { ESTABLISHED = 1, SYN_SENT = 2, SYN_RECV = 3, CLOSE = 7 };
enum { LOCAL = 1, IPV4 = 2, IPV6 = 10 };
enum { TCP = 6, UDP = 17 };
enum { CLIENT = 1, SERVER = 2 };
enum { RECEIVED = 1, SENT = 2 };

struct net {
	u64 net_cookie;
} RELOCATED;
typedef struct {
	struct net *net;
} RELOCATED possible_net_t;
struct net_device {
	possible_net_t nd_net;
} RELOCATED;
struct dst_entry {
	struct net_device *dev;
} RELOCATED;
struct in6_addr {
	u8 bytes[16];
};
struct sock_common {
	u32 skc_daddr;
	u16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
} RELOCATED;
struct sock {
	struct sock_common __sk_common;
} RELOCATED;
struct tcp_sock {
	u32 srtt_us;
	u32 total_retrans;
	u32 segs_out;
} RELOCATED;
struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	unsigned long _skb_refdst;
	u16 protocol;
	u16 transport_header;
	u16 network_header;
	unsigned char *head;
} RELOCATED;

#define READ(to, pointer, field) copy(&(to), sizeof(to), __builtin_preserve_access_index(&(pointer)->field))

struct drop {
	u64 place;
	u32 reason;
	u16 protocol; /* of Ethernet */
	u16 port;     /* of the destination */
	u32 transport;
	u32 unused;
};
struct flow {
	u8 peer[16];
	u16 family;
	u16 port; /* of the server */
	u32 role;
};
struct life {
	u64 begun;
	u16 port;
	u16 family;
	u32 role;
	u32 reset;
	u32 over;
	struct flow flow;
};
struct flows {
	u64 connections;
	u64 microseconds;
	u64 refused; /* or given up before they were established */
	u64 reset_by_peer;
	u64 reset_here;
	u64 segments;
	u64 retransmitted;
	u64 round_trips; /* connections whose round trip is known */
	u64 round_trip;  /* their sum, in microseconds */
};

struct {
	KIND(ARRAY);
	int (*max_entries)[2];
	FIELD(u32, key);
	FIELD(u64, value);
} watched SEC(".maps"); /* the namespace's cookie, and how long a connection is brief, in nanoseconds */
struct {
	KIND(HASH);
	int (*max_entries)[8192];
	FIELD(struct drop, key);
	FIELD(u64, value);
} drops SEC(".maps");
struct {
	KIND(ARRAY);
	int (*max_entries)[1];
	FIELD(u32, key);
	FIELD(u64, value);
} uncounted SEC(".maps"); /* what found no room in the other maps */
struct {
	KIND(LRU_HASH);
	int (*max_entries)[65536];
	FIELD(u64, key);
	FIELD(struct life, value);
} lives SEC(".maps");
struct {
	KIND(HASH);
	int (*max_entries)[8192];
	FIELD(struct flow, key);
	FIELD(struct flows, value);
} brief SEC(".maps");

static inline void add(u64 *to, u64 more)
{
	__sync_fetch_and_add(to, more);
}

static inline void lost(void)
{
	u32 first = 0;
	u64 *count = lookup(&uncounted, &first);

	if (count)
		add(count, 1);
}

static inline u64 setting(u32 number)
{
	u64 *value = lookup(&watched, &number);

	return value ? *value : 0;
}

static inline u64 of_socket(struct sock *sk)
{
	struct net *net = 0;
	u64 cookie = 0;

	READ(net, sk, __sk_common.skc_net.net);
	READ(cookie, net, net_cookie);
	return cookie;
}

static inline u64 of_device(struct net_device *dev)
{
	struct net *net = 0;
	u64 cookie = 0;

	READ(net, dev, nd_net.net);
	READ(cookie, net, net_cookie);
	return cookie;
}

static inline u64 of_way(struct sk_buff *skb)
{
	struct net_device *dev = 0;
	unsigned long route = 0;
	u64 cookie = 0;

	/* datagrams on their way into a socket have something else in place of the device */
	READ(route, skb, _skb_refdst);
	route &= ~7ul;
	if (route) {
		READ(dev, (struct dst_entry *)route, dev);
		cookie = of_device(dev);
	}
	if (cookie)
		return cookie;
	READ(dev, skb, dev);
	return of_device(dev);
}

/* The namespace that a packet is in. The socket that it has is its sender's, also in the namespaces that it crosses,
 * until it is received. Where it is not told which socket was to receive it, `known` is 0: segments that wait in a
 * socket have something else in place of the device then, and have that socket.
 */
static inline u64 of_packet(struct sk_buff *skb, struct sock *receiver, u32 known)
{
	struct sock *own = 0;
	u64 cookie = 0;

	if (receiver)
		cookie = of_socket(receiver);
	if (cookie)
		return cookie;
	READ(own, skb, sk);
	if (known || !own)
		cookie = of_way(skb);
	if (cookie || !own)
		return cookie;
	cookie = of_socket(own);
	return cookie || known ? cookie : of_way(skb);
}

/* What is freed unread in a local socket is no packet. */
static inline int is_local(struct sk_buff *skb, struct sock *sk)
{
	u16 family = 0;

	if (!sk)
		READ(sk, skb, sk);
	if (sk)
		READ(family, sk, __sk_common.skc_family);
	return family == LOCAL;
}

static inline int count_drop(struct sk_buff *skb, u64 place, u32 reason, struct sock *sk, u32 known)
{
	struct drop key = {};
	unsigned char *head = 0;
	u16 network = 0, transport = 0;
	u8 version = 0, kind = 0;
	u64 one = 1, *count;

	if (of_packet(skb, sk, known) != setting(0) || is_local(skb, sk))
		return 0;
	key.place = place;
	key.reason = reason;
	READ(key.protocol, skb, protocol);
	key.protocol = __builtin_bswap16(key.protocol);
	READ(head, skb, head);
	READ(network, skb, network_header);
	READ(transport, skb, transport_header);
	copy(&version, 1, head + network);
	if (version >> 4 == 4)
		copy(&kind, 1, head + network + 9);
	else if (version >> 4 == 6)
		copy(&kind, 1, head + network + 6);
	key.transport = kind;
	if ((kind == TCP || kind == UDP) && transport != 0xffff && transport > network) {
		copy(&key.port, 2, head + transport + 2);
		key.port = __builtin_bswap16(key.port);
	}
	count = lookup(&drops, &key);
	if (count)
		add(count, 1);
	else if (update(&drops, &key, &one, 1)) {
		count = lookup(&drops, &key);
		if (count)
			add(count, 1);
		else
			lost();
	}
	return 0;
}

/* since Linux 6.11 it is told which socket was to receive a packet */
SEC("tp_btf/kfree_skb")
int dropped_of_socket(u64 *ctx)
{
	return count_drop((void *)ctx[0], ctx[1], ctx[2], (void *)ctx[3], 1);
}

SEC("tp_btf/kfree_skb")
int dropped(u64 *ctx)
{
	return count_drop((void *)ctx[0], ctx[1], ctx[2], 0, 0);
}

static inline struct flows *flows_of(struct flow *key)
{
	struct flows none = {}, *found = lookup(&brief, key);

	if (!found) {
		update(&brief, key, &none, 1);
		found = lookup(&brief, key);
	}
	if (!found)
		lost();
	return found;
}

static inline void ended(struct sock *sk, struct life *life, u32 old)
{
	u32 trip = 0, retransmitted = 0, segments = 0, address = 0;
	struct flows *flows;

	life->over = 1;
	if (now() - life->begun >= setting(1))
		return;
	life->flow.family = life->family;
	life->flow.port = life->port;
	life->flow.role = life->role;
	if (life->family == IPV4) {
		READ(address, sk, __sk_common.skc_daddr);
		__builtin_memcpy(life->flow.peer, &address, 4);
	} else
		READ(life->flow.peer, sk, __sk_common.skc_v6_daddr);
	flows = flows_of(&life->flow);
	if (!flows)
		return;
	READ(trip, (struct tcp_sock *)sk, srtt_us);
	READ(retransmitted, (struct tcp_sock *)sk, total_retrans);
	READ(segments, (struct tcp_sock *)sk, segs_out);
	add(&flows->connections, 1);
	add(&flows->microseconds, (now() - life->begun) / 1000);
	add(&flows->segments, segments);
	add(&flows->retransmitted, retransmitted);
	if (old == SYN_SENT || old == SYN_RECV)
		add(&flows->refused, 1);
	else if (life->reset & RECEIVED)
		add(&flows->reset_by_peer, 1);
	if (life->reset & SENT)
		add(&flows->reset_here, 1);
	if (trip) {
		add(&flows->round_trips, 1);
		add(&flows->round_trip, trip >> 3);
	}
}

SEC("tp_btf/inet_sock_set_state")
int state(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	u32 old = ctx[1], new = ctx[2];
	u64 key = ctx[0];
	struct life life = {}, *there;

	if (new == SYN_SENT || new == SYN_RECV) {
		if (of_socket(sk) != setting(0))
			return 0;
		life.begun = now();
		READ(life.family, sk, __sk_common.skc_family);
		if (new == SYN_SENT) {
			life.role = CLIENT;
			READ(life.port, sk, __sk_common.skc_dport);
			life.port = __builtin_bswap16(life.port);
		} else {
			life.role = SERVER;
			READ(life.port, sk, __sk_common.skc_num);
		}
		update(&lives, &key, &life, 0);
	} else if (new == CLOSE) {
		there = lookup(&lives, &key);
		if (there && !there->over)
			ended(sk, there, old);
	}
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int reset_received(u64 *ctx)
{
	u64 key = ctx[0];
	struct life *there = lookup(&lives, &key);

	if (there)
		there->reset |= RECEIVED;
	return 0;
}

/* of a socket that is closed before all was read, the reset follows the state */
SEC("tp_btf/tcp_send_reset")
int reset_sent(u64 *ctx)
{
	u64 key = ctx[0];
	struct life *there = key ? lookup(&lives, &key) : 0;
	struct flows *flows;

	if (!there || there->reset & SENT)
		return 0;
	there->reset |= SENT;
	if (there->over && now() - there->begun < setting(1)) {
		flows = lookup(&brief, &there->flow);
		if (flows)
			add(&flows->reset_here, 1);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
