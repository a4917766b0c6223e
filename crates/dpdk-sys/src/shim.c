#define _GNU_SOURCE /* fopencookie */
#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_ring_peek_zc.h>

uint16_t nd_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, mbufs, n);
}

uint16_t nd_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, mbufs, n);
}

void nd_restore_tags(struct rte_mbuf **mbufs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (mbufs[i]->ol_flags & (RTE_MBUF_F_RX_VLAN_STRIPPED | RTE_MBUF_F_TX_VLAN))
			rte_vlan_insert(&mbufs[i]); /* there is room: headroom is left alone by all */
}

/* The tag into the packet's header, from where the port takes it; only an 802.1Q one, as ports put in no other. */
static void take_tag(struct rte_mbuf *packet)
{
	char *frame = rte_pktmbuf_mtod(packet, char *);
	const uint16_t *tag = (const uint16_t *)(frame + 2 * RTE_ETHER_ADDR_LEN);

	/* Of shared bytes nobody may write any; such a tag is sent as it stands. */
	if (nd_is_shared(packet) || rte_pktmbuf_data_len(packet) < sizeof(struct rte_ether_hdr) + sizeof(struct rte_vlan_hdr) ||
	    packet->ol_flags & RTE_MBUF_F_TX_VLAN || tag[0] != RTE_BE16(RTE_ETHER_TYPE_VLAN))
		return;
	packet->vlan_tci = rte_be_to_cpu_16(tag[1]);
	packet->ol_flags |= RTE_MBUF_F_TX_VLAN;
	if (packet->ol_flags & RTE_MBUF_F_TX_L4_MASK || packet->ol_flags & RTE_MBUF_F_TX_IP_CKSUM)
		packet->l2_len -= sizeof(struct rte_vlan_hdr);
	memmove(frame + sizeof(struct rte_vlan_hdr), frame, 2 * RTE_ETHER_ADDR_LEN);
	rte_pktmbuf_adj(packet, sizeof(struct rte_vlan_hdr));
}

uint16_t nd_tx_burst_helped(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n, int tags,
			    uint64_t *unfit)
{
	uint16_t i, fit, sent;

	for (i = 0; i < n; i++) {
		/* Sums are written into the bytes: not into those of others. The rest waits until there is memory. */
		if (mbufs[i]->ol_flags & RTE_MBUF_F_TX_OFFLOAD_MASK && nd_is_shared(mbufs[i]) &&
		    nd_unshare(&mbufs[i]) != 0) {
			n = i;
			break;
		}
		if (tags)
			take_tag(mbufs[i]);
		/* Pseudo-headers' sums where checksums will be; headers are in the first segment, as we wrote them. */
		rte_net_intel_cksum_prepare(mbufs[i]);
	}
	fit = rte_eth_tx_prepare(port, queue, mbufs, n);
	sent = fit > 0 ? rte_eth_tx_burst(port, queue, mbufs, fit) : 0;
	if (sent == fit && fit < n) {
		rte_pktmbuf_free(mbufs[fit]);
		*unfit += 1;
		sent++;
	}
	/* As others look at them, and they are sent again. */
	if (tags)
		nd_restore_tags(mbufs + sent, n - sent);
	return sent;
}

/* Pools without holes are made of memory of which DPDK does not know where devices find it: where we do. */
static void init_packet(struct rte_mempool *pool, void *opaque, void *packet, unsigned int i)
{
	rte_mempool_get_header(packet)->iova = (rte_iova_t)(uintptr_t)packet;
	rte_pktmbuf_init(pool, opaque, packet, i);
}

struct rte_mempool *nd_dense_pool(const char *name, uint32_t n, uint32_t cache, uint16_t room)
{
	struct rte_pktmbuf_pool_private about = { .mbuf_data_room_size = room };
	struct rte_mempool *pool;
	int rc;

	pool = rte_mempool_create_empty(name, n, sizeof(struct rte_mbuf) + room, cache, sizeof(about),
					SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (pool == NULL)
		return NULL;
	rc = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(pool, &about);
		rc = rte_mempool_populate_default(pool);
	}
	if (rc < 0) {
		rte_mempool_free(pool);
		rte_errno = -rc;
		return NULL;
	}
	rte_mempool_obj_iter(pool, init_packet, NULL);
	return pool;
}

/* From here 32 bytes: the headroom, references, segments, port, flags, type, lengths, VLAN tag and hash. */
#define ND_FRESH offsetof(struct rte_mbuf, rearm_data)
_Static_assert(offsetof(struct rte_mbuf, rx_descriptor_fields1) + 16 == ND_FRESH + 32, "a packet's first half");

static inline void prefetch_to_write(const void *line)
{
#ifdef __x86_64__
	/* Of the builtin compilers for any x86-64 make a prefetch for reading. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const volatile char *)line));
#else
	__builtin_prefetch(line, 1, 3);
#endif
}

/* Packets ahead of which lines are prefetched. */
#define ND_AHEAD 16

/* Prefetch the lines of a packet that its maker writes: who freed it may have been another core, and a CPU sends off few writes at a
 * time, in their order. */
static inline void prefetch_frame(struct rte_mbuf *packet, size_t first)
{
	prefetch_to_write(packet);
	prefetch_to_write((char *)packet + first);
}

int nd_alloc_frames(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t n, uint16_t len)
{
	/* Where its bytes begin. */
	const size_t first = sizeof(struct rte_mbuf) + rte_pktmbuf_priv_size(pool) + RTE_PKTMBUF_HEADROOM;
	struct rte_mbuf fresh;
	uint32_t i;
	int rc;

	rc = rte_mempool_get_bulk(pool, (void **)mbufs, n);
	if (rc != 0)
		return rc;
	/* A packet in its pool has one reference, one segment and none after it; offsets that offloads use mean
	 * nothing without their flags. So its second cache line is left alone, and the first takes two writes. */
	memset(&fresh, 0, sizeof(fresh));
	fresh.data_off = RTE_PKTMBUF_HEADROOM;
	fresh.refcnt = 1;
	fresh.nb_segs = 1;
	fresh.port = RTE_MBUF_PORT_INVALID;
	fresh.pkt_len = len;
	fresh.data_len = len;
	for (i = 0; i < n && i < ND_AHEAD; i++)
		prefetch_frame(mbufs[i], first);
	for (i = 0; i < n; i++) {
		char *packet = (char *)mbufs[i];

		if (i + ND_AHEAD < n)
			prefetch_frame(mbufs[i + ND_AHEAD], first);
		memcpy(packet + ND_FRESH, (char *)&fresh + ND_FRESH, 32);
	}
	return 0;
}

/* One segment that nobody else has, with bytes of its own: as its pool wants it. Such has none after it, so that its second
 * cache line is not looked at. */
static bool is_plain(struct rte_mbuf *packet)
{
	return packet->nb_segs == 1 && rte_mbuf_refcnt_read(packet) == 1 && RTE_MBUF_DIRECT(packet);
}

void nd_read(const struct rte_mbuf *packet, void *to, uint32_t len)
{
	for (; packet != NULL && len > 0; packet = packet->next) {
		const uint32_t piece = RTE_MIN(len, packet->data_len);

		memcpy(to, rte_pktmbuf_mtod(packet, const char *), piece);
		to = (char *)to + piece;
		len -= piece;
	}
}

void nd_free_burst(struct rte_mbuf **mbufs, uint32_t n)
{
	uint32_t i = 0, from;

	while (i < n) {
		struct rte_mempool *pool = mbufs[i]->pool;

		/* What follows each other here and goes to the same pool goes there from where it stands. */
		for (from = i; i < n && mbufs[i]->pool == pool && is_plain(mbufs[i]); i++)
			;
		if (i > from)
			rte_mempool_put_bulk(pool, (void *const *)(mbufs + from), i - from);
		else
			rte_pktmbuf_free(mbufs[i++]);
	}
}

int nd_chain(struct rte_mbuf *head, struct rte_mbuf *tail)
{
	return rte_pktmbuf_chain(head, tail);
}

int nd_meta_register(uint32_t size, int *offset, uint64_t *flag)
{
	struct rte_mbuf_dynfield field = { .name = "netdyno_meta", .size = size, .align = 8 };
	struct rte_mbuf_dynflag valid = { .name = "netdyno_meta_valid" };
	int bit;

	*offset = rte_mbuf_dynfield_register(&field);
	bit = rte_mbuf_dynflag_register(&valid);
	if (*offset < 0 || bit < 0)
		return -rte_errno;
	*flag = UINT64_C(1) << bit;
	return 0;
}

/* Clones of one buffer beyond which its count of references could overflow. */
#define ND_CLONES 60000

static uint16_t references(const struct rte_mbuf *segment)
{
	if (RTE_MBUF_HAS_EXTBUF(segment))
		return rte_mbuf_ext_refcnt_read(segment->shinfo);
	if (RTE_MBUF_CLONED(segment))
		segment = rte_mbuf_from_indirect((struct rte_mbuf *)segment);
	return rte_mbuf_refcnt_read(segment);
}

int nd_is_shared(const struct rte_mbuf *packet)
{
	/* Bytes that were of another packet are taken as shared, even when that one is gone. */
	return RTE_MBUF_CLONED(packet) || references(packet) > 1;
}

uint32_t nd_clone_burst(struct rte_mempool *pool, struct rte_mbuf **mbufs, struct rte_mbuf **out, uint32_t n)
{
	const struct rte_mbuf *segment;
	uint32_t i;

	for (i = 0; i < n; i++) {
		for (segment = mbufs[i]; segment != NULL; segment = segment->next)
			if (references(segment) > ND_CLONES)
				return i;
		out[i] = rte_pktmbuf_clone(mbufs[i], pool);
		if (out[i] == NULL)
			return i;
	}
	return n;
}

/* rte_pktmbuf_copy() knows no packets without bytes. */
static struct rte_mbuf *copy_of(const struct rte_mbuf *packet, struct rte_mempool *pool)
{
	return packet->pkt_len > 0 ? rte_pktmbuf_copy(packet, pool, 0, UINT32_MAX) : rte_pktmbuf_alloc(pool);
}

uint32_t nd_copy_burst(struct rte_mempool *pool, struct rte_mbuf **mbufs, struct rte_mbuf **out, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		out[i] = copy_of(mbufs[i], pool);
		if (out[i] == NULL)
			return i;
	}
	return n;
}

int nd_unshare(struct rte_mbuf **packet)
{
	struct rte_mbuf *own = copy_of(*packet, (*packet)->pool);

	if (own == NULL)
		return -ENOMEM;
	rte_pktmbuf_free(*packet);
	*packet = own;
	return 0;
}

int nd_trim(struct rte_mbuf *packet, uint16_t len)
{
	return rte_pktmbuf_trim(packet, len);
}

/* memcpy, as DPDK's own loops copy pointer by pointer where they are compiled for any CPU. */
uint32_t nd_ring_enqueue(struct rte_ring *ring, struct rte_mbuf **mbufs, uint32_t n)
{
	struct rte_ring_zc_data room;

	n = rte_ring_enqueue_zc_burst_start(ring, n, &room, NULL);
	if (n == 0)
		return 0;
	memcpy(room.ptr1, mbufs, room.n1 * sizeof(*mbufs));
	if (room.n1 < n)
		memcpy(room.ptr2, mbufs + room.n1, (n - room.n1) * sizeof(*mbufs));
	rte_ring_enqueue_zc_finish(ring, n);
	return n;
}

uint32_t nd_ring_dequeue(struct rte_ring *ring, struct rte_mbuf **mbufs, uint32_t n)
{
	struct rte_ring_zc_data held;

	n = rte_ring_dequeue_zc_burst_start(ring, n, &held, NULL);
	if (n == 0)
		return 0;
	memcpy(mbufs, held.ptr1, held.n1 * sizeof(*mbufs));
	if (held.n1 < n)
		memcpy(mbufs + held.n1, held.ptr2, (n - held.n1) * sizeof(*mbufs));
	rte_ring_dequeue_zc_finish(ring, n);
	return n;
}

uint32_t nd_ring_room(const struct rte_ring *ring)
{
	return rte_ring_free_count(ring);
}

struct rte_ring *nd_port_ring(const char *port, uint16_t queue)
{
	char name[RTE_RING_NAMESIZE];
	int n = snprintf(name, sizeof(name), "ETH_RXTX%u_%s", queue, port);

	return n < (int)sizeof(name) ? rte_ring_lookup(name) : NULL;
}

uint32_t nd_ring_drain(struct rte_ring *ring, struct rte_mbuf **mbufs, uint32_t n)
{
	return rte_ring_dequeue_burst(ring, (void **)mbufs, n, NULL);
}

int nd_link_get(uint16_t port, struct nd_link *out)
{
	struct rte_eth_link link;
	int rc;

	memset(&link, 0, sizeof(link));
	rc = rte_eth_link_get_nowait(port, &link);
	if (rc < 0)
		return rc;
	out->mbps = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	out->full_duplex = link.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	return 0;
}

static uint32_t alarms;

static void alarm_came(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&alarms, 1, __ATOMIC_RELEASE);
}

void nd_settle(void)
{
	uint32_t before = __atomic_load_n(&alarms, __ATOMIC_ACQUIRE);
	int tries;

	if (rte_eal_alarm_set(1, alarm_came, NULL) < 0)
		return;
	for (tries = 0; tries < 10000 && __atomic_load_n(&alarms, __ATOMIC_ACQUIRE) == before; tries++)
		usleep(100);
}

uint32_t nd_lcore_id(void)
{
	return rte_lcore_id();
}

int nd_errno(void)
{
	return rte_errno;
}

uint64_t nd_tsc(void)
{
	return rte_rdtsc();
}

static nd_log_fn log_fn;

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	log_fn((uint32_t)rte_log_cur_msg_loglevel(), text, len);
	return (ssize_t)len;
}

int nd_log_to(nd_log_fn fn)
{
	cookie_io_functions_t io = { .write = log_write };
	FILE *stream;

	log_fn = fn;
	stream = fopencookie(NULL, "w", io);
	if (stream == NULL)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, 4096);
	return rte_openlog_stream(stream);
}
