/* What Rust cannot call or compute by itself: inline functions, macros and structure layouts of DPDK.
 * Everything here is called per burst or per event, never per packet. */
#ifndef NETDYNO_SHIM_H
#define NETDYNO_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_net.h>
#include <rte_ring.h>
#include <rte_version.h>

/* The layout of an mbuf differs between DPDK releases in its unions only by name; offsets are all we need. */
enum nd_mbuf {
	ND_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	ND_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	ND_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	ND_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	ND_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	ND_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	ND_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	ND_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	ND_MBUF_TX_OFFLOAD = offsetof(struct rte_mbuf, tx_offload),
};

/* Where each length begins in the field of ND_MBUF_TX_OFFLOAD. */
enum nd_lengths {
	ND_L2_LEN = RTE_MBUF_L2_LEN_OFS,
	ND_L3_LEN = RTE_MBUF_L3_LEN_OFS,
	ND_L4_LEN = RTE_MBUF_L4_LEN_OFS,
	ND_SEGMENT = RTE_MBUF_TSO_SEGSZ_OFS,
};

/* Macros of RTE_BIT64(), which bindgen cannot evaluate. */
static const uint64_t ND_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint64_t ND_TX_OFFLOAD_MBUF_FAST_FREE = RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
static const uint64_t ND_TX_OFFLOAD_VLAN_INSERT = RTE_ETH_TX_OFFLOAD_VLAN_INSERT;
static const uint64_t ND_TX_OFFLOAD_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t ND_TX_OFFLOAD_UDP_CKSUM = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
static const uint64_t ND_TX_OFFLOAD_TCP_CKSUM = RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
static const uint64_t ND_TX_OFFLOAD_TCP_TSO = RTE_ETH_TX_OFFLOAD_TCP_TSO;
static const uint64_t ND_RX_OFFLOAD_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t ND_RX_OFFLOAD_VLAN_STRIP = RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
static const uint64_t ND_RX_OFFLOAD_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t ND_RX_OFFLOAD_UDP_CKSUM = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
static const uint64_t ND_RX_OFFLOAD_TCP_CKSUM = RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
static const uint64_t ND_RX_OFFLOAD_TIMESTAMP = RTE_ETH_RX_OFFLOAD_TIMESTAMP;
static const uint64_t ND_RX_L4_BAD = RTE_MBUF_F_RX_L4_CKSUM_BAD;
static const uint64_t ND_RX_L4 = RTE_MBUF_F_RX_L4_CKSUM_MASK;
/* Packets whose bytes may be those of other packets, too. */
static const uint64_t ND_ATTACHED = RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
static const uint64_t ND_TX_IPV4 = RTE_MBUF_F_TX_IPV4;
static const uint64_t ND_TX_IPV6 = RTE_MBUF_F_TX_IPV6;
static const uint64_t ND_TX_IPV4_CKSUM = RTE_MBUF_F_TX_IP_CKSUM;
static const uint64_t ND_TX_UDP_CKSUM = RTE_MBUF_F_TX_UDP_CKSUM;
static const uint64_t ND_TX_TCP_CKSUM = RTE_MBUF_F_TX_TCP_CKSUM;
static const uint64_t ND_TX_SEGMENT = RTE_MBUF_F_TX_TCP_SEG;
static const uint64_t ND_RSS = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP;
static const uint32_t ND_MQ_RX_RSS = RTE_ETH_MQ_RX_RSS;
static const uint32_t ND_RING_SP = RING_F_SP_ENQ;
static const uint32_t ND_RING_SC = RING_F_SC_DEQ;

struct nd_link {
	uint32_t mbps; /* 0: not known */
	uint8_t up;
	uint8_t full_duplex;
};

typedef void (*nd_log_fn)(uint32_t level, const char *text, size_t len);

uint16_t nd_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);
uint16_t nd_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n);
/* Put tags that the port took out of packets back. */
void nd_restore_tags(struct rte_mbuf **mbufs, uint32_t n);
/* The same as nd_tx_burst for a port that does work for us: what packets' flags say is made ready; with `tags`, 802.1Q tags
 * are taken out for the port to put in. A packet that the driver finds unfit is freed, and counted in *unfit. */
uint16_t nd_tx_burst_helped(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n, int tags,
			    uint64_t *unfit);
/* A pool of packets without holes, for memory in small pages: else DPDK gives each packet pages of its own, which takes
 * near twice the memory, lays all headers on the same few places of the caches, and leads net_af_xdp, which computes
 * where the pool ends as if there were no holes, to lose frames. Needs IOVA as VA. NULL, and nd_errno: none. */
struct rte_mempool *nd_dense_pool(const char *name, uint32_t n, uint32_t cache, uint16_t room);
/* All of n or none, each of len bytes, which its buffer must have: 0 or a negative errno. */
int nd_alloc_frames(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t n, uint16_t len);
/* Give packets back to their pools. */
void nd_free_burst(struct rte_mbuf **mbufs, uint32_t n);
/* Copy the first len bytes of all segments; there must be as many. */
void nd_read(const struct rte_mbuf *packet, void *to, uint32_t len);
/* Make tail the end of head: 0 or a negative errno, and then nothing changed. */
int nd_chain(struct rte_mbuf *head, struct rte_mbuf *tail);
/* Room of so many bytes in all packets, aligned to 8, and a flag that says whether it is used: 0 or a negative errno. */
int nd_meta_register(uint32_t size, int *offset, uint64_t *flag);
/* As many of the first packets as the pool has packets for: new ones with the same bytes. Cloned, they share the memory that
 * these are in; copied, they have them in memory of their own. Returns how many, in out. */
uint32_t nd_clone_burst(struct rte_mempool *pool, struct rte_mbuf **mbufs, struct rte_mbuf **out, uint32_t n);
uint32_t nd_copy_burst(struct rte_mempool *pool, struct rte_mbuf **mbufs, struct rte_mbuf **out, uint32_t n);
/* Whether other packets have the bytes of the first segment, too. */
int nd_is_shared(const struct rte_mbuf *packet);
/* Put a packet with a copy of the bytes in place of this one: 0 or a negative errno, and then nothing changed. */
int nd_unshare(struct rte_mbuf **packet);
/* Take bytes off the end, all of which must be in the last segment: 0, or -1 and nothing changed. */
int nd_trim(struct rte_mbuf *packet, uint16_t len);
/* Ends of a ring with one thread at each: as many as there is room for, as there are. */
uint32_t nd_ring_enqueue(struct rte_ring *ring, struct rte_mbuf **mbufs, uint32_t n);
uint32_t nd_ring_dequeue(struct rte_ring *ring, struct rte_mbuf **mbufs, uint32_t n);
/* Packets that there is room for. */
uint32_t nd_ring_room(const struct rte_ring *ring);
/* Any ring's end. */
uint32_t nd_ring_drain(struct rte_ring *ring, struct rte_mbuf **mbufs, uint32_t n);
/* The ring that net_ring made for a queue of the port of that name, one thread at each end. NULL: none. */
struct rte_ring *nd_port_ring(const char *port, uint16_t queue);
int nd_link_get(uint16_t port, struct nd_link *out);
/* Wait until DPDK's own thread has done what drivers left it to do later; at most about a second. virtio-user has it close
 * the connection to a peer that is gone, and does not call that off when the port is closed before. */
void nd_settle(void);
uint32_t nd_lcore_id(void);
int nd_errno(void);
uint64_t nd_tsc(void);
/* Send everything DPDK logs, on any thread, to `fn`: 0 or a negative errno. */
int nd_log_to(nd_log_fn fn);

#endif
