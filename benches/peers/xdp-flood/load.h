/* What is sent: flows of subscribers to one remote endpoint, in host byte order. */
struct load {
	__u32 interface; /* out of which it goes; 0: it comes in by the one for which it is made */
	__u32 first; /* number of the first flow */
	__u32 flows;
	__u32 random; /* or one after the other */
	__u8 to[6];
	__u8 from[6];
};

enum {
	PORTS = 64, /* of a subscriber */
	FIRST_PORT = 10000,
	FIRST_ADDRESS = 0x0a000100,
	REMOTE = 0xc6336409,
	REMOTE_PORT = 53,
};
