// Sends 64-byte UDP in frames that XDP makes in the kernel, as fast as they are taken, until it is ended.
//
//     flood OBJECT send INTERFACE MAC FIRST FLOWS random|sequence   out of INTERFACE, to MAC
//     flood OBJECT come INTERFACE MAC FIRST FLOWS random|sequence   as if they came in by INTERFACE
//     flood OBJECT take INTERFACE                                   let INTERFACE take what another one sends so
#include <errno.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "load.h"

// What is set up for a run takes longer than many frames; a signal ends it.
enum { BATCH = 64, REPEAT = 1 << 30 };

static volatile sig_atomic_t over;

static void end(int signal)
{
	(void)signal;
	over = 1;
}

static int failed(const char *what)
{
	fprintf(stderr, "flood: %s: %s\n", what, strerror(errno));
	return 1;
}

static int program(struct bpf_object *object, const char *name)
{
	return bpf_program__fd(bpf_object__find_program_by_name(object, name));
}

static int flood(struct bpf_object *object, int interface)
{
	char frame[60] = { 0 };
	struct xdp_md context = { .data_end = sizeof(frame), .ingress_ifindex = interface };
	while (!over) {
		LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame, .data_size_in = sizeof(frame), .ctx_in = &context,
			    .ctx_size_in = sizeof(context), .repeat = REPEAT, .batch_size = BATCH,
			    .flags = BPF_F_TEST_XDP_LIVE_FRAMES);
		if (bpf_prog_test_run_opts(program(object, "flood"), &run) && errno != EINTR)
			return failed("frames cannot be made");
	}
	return 0;
}

int main(int count, char **words)
{
	int takes = count == 4 && !strcmp(words[2], "take"), comes = count == 8 && !strcmp(words[2], "come");
	if (!takes && !comes && !(count == 8 && !strcmp(words[2], "send"))) {
		fprintf(stderr, "flood: wrong arguments\n");
		return 2;
	}
	int interface = if_nametoindex(words[3]);
	struct bpf_object *object = bpf_object__open(words[1]);
	if (!interface || !object)
		return failed(words[interface ? 1 : 3]);
	if (takes) {
		if (bpf_object__load(object) || bpf_xdp_attach(interface, program(object, "take"), 0, NULL))
			return failed("XDP is not to be had");
		return 0;
	}
	struct load load = {
		.interface = comes ? 0 : interface,
		.first = strtoul(words[5], NULL, 10),
		.flows = strtoul(words[6], NULL, 10),
		.random = !strcmp(words[7], "random"),
		.from = { 2, 0, 0, 0, 0, 1 },
	};
	struct ether_addr *to = ether_aton(words[4]);
	if (!to || !load.flows) {
		fprintf(stderr, "flood: no MAC address, or no flow\n");
		return 2;
	}
	memcpy(load.to, to, sizeof(load.to));
	struct bpf_map *map = bpf_object__find_map_by_name(object, ".rodata");
	if (!map || bpf_map__set_initial_value(map, &load, sizeof(load)) || bpf_object__load(object))
		return failed("the program cannot be loaded");
	struct sigaction action = { .sa_handler = end };
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	return flood(object, comes ? interface : 0);
}
