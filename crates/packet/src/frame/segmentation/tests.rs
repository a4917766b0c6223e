use super::super::tests::{flow, judge};
use super::super::{ChecksumOffload, Devices, Program, Sizes, Vary, compose, compose_for};
use super::*;
use crate::Layers;
use crate::ethernet::Tags;
use crate::signature::Signature;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn made(layers: Json, vary: Json, sizes: Sizes, measured: bool) -> Result<Program, FrameError> {
    let layers: Vec<Layer> = serde_json::from_value(layers).expect("layers");
    let vary: Vec<Vary> = serde_json::from_value(vary).expect("variation");
    let flow = flow();
    let devices = Devices::default();
    compose(&Recipe { layers: &layers, vary: &vary, sizes: &sizes, measured, flow: &flow, devices, seed: 1 })
}

fn layers(ip: Json, tcp: Json) -> Json {
    json!([{"ethernet": {}}, ip, {"tcp": tcp}, {"payload": {"fill": "random"}}])
}

/// A frame, and the packets that it becomes.
fn segmented(program: &mut Program) -> (Vec<u8>, Vec<Vec<u8>>) {
    let segmentation = program.segmentation().expect("it is segmented");
    let mut frame = vec![0; program.next_len()];
    program.write(&mut frame, 0, &Signature { stream: 0, sequence: 0, sent_ns: 0 });
    let packet = |number| {
        let mut packet = vec![0xaa; segmentation.packet_len(number)];
        segmentation.write(&frame, number, &mut packet);
        packet
    };
    let packets = (0..segmentation.packets()).map(packet).collect();
    (frame, packets)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Worked out from RFC 791 and RFC 9293; tshark finds nothing wrong with them.
#[test]
fn packets_are_these() {
    let text = "0123456789abcdef".repeat(8) + "end!";
    let layers = json!([
        {"ethernet": {}},
        {"ipv4": {"identification": 65535}},
        {"tcp": {"sequence": 4294967200u32, "acknowledgment": 9, "flags": "FPA", "window": 512, "segment": 64}},
        {"payload": {"text": text}}
    ]);
    let (_, packets) =
        segmented(&mut made(layers, json!([]), Sizes::Cycle(vec![186]), false).expect("a program"));
    let sixteen = hex(b"0123456789abcdef").repeat(4);
    let expected = [
        // 104 bytes of IP, identification 65535, sequence number 2^32 - 96, ACK alone
        "02000000000202000000000108004500 0068ffff40004006268e0a0000010a00 0002 27100007ffffffa000000009 50100200b5f40000 …",
        // identification 0; 64 bytes on
        "02000000000202000000000108004500 0068000040004006268e0a0000010a00 0002 27100007ffffffe000000009 50100200b5b40000 …",
        // the sequence number went past its end, too; FIN, PSH and ACK; four bytes of payload, and two of padding
        "02000000000202000000000108004500 002c00014000400626c90a0000010a00 0002 271000070000002000000009 50190200a8f50000 \
         656e6421 0000",
    ];
    let expected = expected.map(|packet| packet.replace(' ', "").replace('…', &sixteen));
    assert_eq!(packets.iter().map(|packet| hex(packet)).collect::<Vec<_>>(), expected);
    packets.iter().for_each(|packet| judge(packet));
}

/// What stands in a packet's header, in the order that the fields have.
fn number(packet: &[u8], at: usize, bytes: usize) -> u64 {
    packet[at..at + bytes].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

proptest! {
    #[test]
    fn packets_have_the_payload_in_order_and_headers_of_their_own(
        (payload, segment) in (64u16..=16_000).prop_flat_map(|s| (usize::from(s) + 1..=64_900, Just(s))),
        v6: bool,
        tags in proptest::collection::vec(1u16..4095, 0..3),
        first in any::<u32>(),
    ) {
        let ip = match v6 {
            true => json!({"ipv6": {"source": "fd00::1", "destination": "fd00::2"}}),
            false => json!({"ipv4": {"identification": first as u16}}),
        };
        let headers = 14 + if v6 { 40 } else { 20 } + 20;
        let size = (headers + payload).min(LONGEST);
        let layers = layers(ip, json!({"flags": "FPA", "sequence": first, "segment": segment}));
        let program = made(layers, json!([]), Sizes::Cycle(vec![size]), false).expect("a program");
        let mut program = program.tagged(&Tags::vlans(&tags).unwrap_or_default());
        let (whole, packets) = segmented(&mut program);
        let headers = headers + 4 * tags.len();
        let mut together = Vec::new();
        for (i, packet) in packets.iter().enumerate() {
            judge(packet);
            let found = Layers::find(packet).expect("headers");
            let (ip, l4) = (found.ip, found.l4);
            prop_assert_eq!(l4 + 20, headers);
            prop_assert_eq!(number(packet, l4 + 4, 4) as u32, first.wrapping_add(together.len() as u32));
            if !v6 {
                prop_assert_eq!(number(packet, ip + 4, 2) as u16, (first as u16).wrapping_add(i as u16));
            }
            let last = i + 1 == packets.len();
            prop_assert_eq!(packet[l4 + 13], if last { 0x19 } else { 0x10 });
            prop_assert!(packet.len() >= 60 && packet[found.end..].iter().all(|byte| *byte == 0));
            let carried = &packet[headers..found.end];
            prop_assert!(carried.len() == usize::from(segment) || last && !carried.is_empty());
            together.extend_from_slice(carried);
        }
        prop_assert_eq!(&together, &whole[headers..]);
        let made = program.segmentation().expect("it is segmented");
        prop_assert_eq!(packets.iter().map(Vec::len).sum::<usize>(), made.bytes());
        prop_assert_eq!(program.mean_len(), made.bytes() as f64 / packets.len() as f64);
    }

    #[test]
    fn what_does_not_fit_is_left_as_it_is(frame in 0usize..300, out in 0usize..300, packet in 0usize..5) {
        let layers = layers(json!({"ipv4": {}}), json!({"segment": 64}));
        let program = made(layers, json!([]), Sizes::Cycle(vec![250]), false).expect("a program");
        let segmentation = program.segmentation().expect("it is segmented");
        let mut place = vec![7; out];
        segmentation.write(&vec![1; frame], packet, &mut place);
        if frame < 54 {
            prop_assert!(place.iter().all(|byte| *byte == 7));
        }
    }
}

#[test]
fn fields_vary_from_frame_to_frame_and_not_within() {
    let layers = layers(json!({"ipv4": {}}), json!({"segment": 100}));
    let vary =
        json!([{"field": "tcp.sequence", "change": {"increment": {"from": 0, "step": 250, "count": 1000}}}]);
    let mut program = made(layers, vary, Sizes::Cycle(vec![304]), false).expect("a program");
    let mut sequences = Vec::new();
    for _ in 0..3 {
        sequences.extend(segmented(&mut program).1.iter().map(|packet| number(packet, 38, 4)));
    }
    assert_eq!(sequences, [0, 100, 200, 250, 350, 450, 500, 600, 700]);
}

/// The port gets the headers' offsets, and makes as many of the checksums as it can.
#[test]
fn a_port_that_segments_gets_the_frame_whole() {
    let layers: Vec<Layer> =
        serde_json::from_value(layers(json!({"ipv4": {}}), json!({"segment": 100}))).expect("layers");
    let (flow, sizes, devices) = (flow(), Sizes::Cycle(vec![304]), Devices::default());
    let recipe =
        Recipe { layers: &layers, vary: &[], sizes: &sizes, measured: false, flow: &flow, devices, seed: 1 };
    for (left, ip_checksum) in
        [(ChecksumOffload::None, true), (ChecksumOffload::Transport, true), (ChecksumOffload::All, false)]
    {
        let mut program = compose_for(&recipe, left).expect("a program");
        let segmentation = program.segmentation().expect("it is segmented");
        assert_eq!(program.offloaded(), Some(segmentation.carried));
        assert_eq!(
            (segmentation.frame_bytes(), segmentation.packets(), segmentation.headers()),
            (304, 3, 54)
        );
        let mut frame = vec![0; program.next_len()];
        program.write(&mut frame, 0, &Signature { stream: 0, sequence: 0, sent_ns: 0 });
        assert_eq!((number(&frame, 24, 2) != 0, number(&frame, 50, 2)), (ip_checksum, 0), "{left:?}");
    }
}

#[test]
fn what_cannot_be_segmented_is_said() {
    let v4 = || json!({"ipv4": {}});
    let one = || Sizes::Cycle(vec![1000]);
    let why = |layers, vary, sizes, measured| {
        made(layers, vary, sizes, measured).expect_err("it cannot be segmented")
    };
    let tunnel = json!([
        {"ethernet": {}}, v4(), {"udp": {}}, {"vxlan": {}}, {"ethernet": {}}, v4(), {"tcp": {"segment": 100}}
    ]);
    let flags = json!([{"field": "tcp.flags", "change": {"list": [1, 2]}}]);
    let good = || layers(v4(), json!({"segment": 100}));
    for (layers, vary, sizes, measured, word) in [
        (good(), json!([]), one(), true, "signature"),
        (tunnel, json!([]), one(), false, "outermost"),
        (
            layers(json!({"ipv4": {"protocol": 6}}), json!({"segment": 100})),
            json!([]),
            one(),
            false,
            "outermost",
        ),
        (layers(v4(), json!({"segment": 63})), json!([]), one(), false, "63"),
        (layers(v4(), json!({"segment": 16001})), json!([]), one(), false, "16001"),
        (layers(v4(), json!({"segment": 946})), json!([]), one(), false, "one segment"),
        (layers(v4(), json!({"segment": 100, "flags": "SA"})), json!([]), one(), false, "flags"),
        (good(), flags, one(), false, "flags"),
        (good(), json!([]), Sizes::Cycle(vec![1000, 900]), false, "several sizes"),
        (good(), json!([]), Sizes::Random(900, 1000), false, "several sizes"),
    ] {
        let why = why(layers, vary, sizes, measured);
        assert!(why.at.ends_with("tcp.segment") && why.what.contains(word), "{why}");
    }
    let too_long = why(good(), json!([]), Sizes::Cycle(vec![LONGEST + 1]), false);
    assert!(too_long.at == "size" && too_long.what.contains("65000"), "{too_long}");
    for (segment, sizes) in
        [(945, one()), (64, one()), (100, Sizes::Cycle(vec![LONGEST])), (100, Sizes::Random(900, 900))]
    {
        assert!(made(layers(v4(), json!({"segment": segment})), json!([]), sizes, false).is_ok());
    }
}
