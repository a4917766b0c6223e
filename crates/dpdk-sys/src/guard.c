/* Bursts of a driver that unmaps memory which a queue may be using: net_memif does so, on its interrupt thread, when the
 * process at the other end dies. Whoever is in the middle of a burst then, as it had no CPU, would end by SIGSEGV. Here
 * the burst ends, and the next one finds the port without a connection.
 *
 * The jump leaves frames of the driver alone: it holds no lock during a burst, and touches that memory only outside of
 * what it asks of mempools. */

#include "shim.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>

/* Where this thread's burst goes on after a fault; NULL: it is in none. */
static _Thread_local sigjmp_buf *volatile guarded;
/* How many bursts of each port a fault has ended. */
static _Atomic uint32_t faults[RTE_MAX_ETHPORTS];
/* What was there before: of SIGSEGV and SIGBUS. */
static struct sigaction before[2];

static void on_fault(int number, siginfo_t *info, void *context)
{
	sigjmp_buf *to = guarded;
	const struct sigaction *other = &before[number == SIGBUS];

	if (to != NULL) {
		guarded = NULL;
		siglongjmp(*to, 1);
	}
	if (other->sa_flags & SA_SIGINFO)
		other->sa_sigaction(number, info, context);
	else if (other->sa_handler != SIG_DFL && other->sa_handler != SIG_IGN)
		other->sa_handler(number);
	else
		/* It comes again, and ends us. */
		signal(number, SIG_DFL);
}

static void install(void)
{
	/* Not blocked while it is handled, as a jump does not come back to allow it again. */
	struct sigaction ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };

	sigemptyset(&ours.sa_mask);
	sigaction(SIGSEGV, &ours, &before[0]);
	sigaction(SIGBUS, &ours, &before[1]);
}

void nd_guard_faults(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

uint32_t nd_faults(uint16_t port)
{
	return port < RTE_MAX_ETHPORTS ? faults[port] : 0;
}

uint16_t nd_rx_burst_guarded(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	sigjmp_buf here;
	uint16_t got;

	memset(mbufs, 0, n * sizeof(*mbufs));
	if (sigsetjmp(here, 0) != 0) {
		faults[port]++;
		/* A packet is there when it is whole. The one that was being copied is lost to its pool. */
		for (got = 0; got < n && mbufs[got] != NULL;)
			got++;
		return got;
	}
	guarded = &here;
	got = nd_rx_burst(port, queue, mbufs, n);
	guarded = NULL;
	return got;
}

uint16_t nd_tx_burst_guarded(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	sigjmp_buf here;
	uint16_t sent;

	if (sigsetjmp(here, 0) != 0) {
		faults[port]++;
		/* Some were given back to their pools and others were not: none may be touched again. */
		return n;
	}
	guarded = &here;
	sent = nd_tx_burst(port, queue, mbufs, n);
	guarded = NULL;
	return sent;
}
